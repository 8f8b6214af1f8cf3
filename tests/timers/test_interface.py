"""The HTTP interface of Metaswitch Chronos, on a real node."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiohttp import StreamReader
from aiohttp.base_protocol import BaseProtocol
from aiohttp.test_utils import make_mocked_request

from chronoline.core.errors import InvalidInput
from chronoline.node.timer_service import ServiceOptions, TimerService
from chronoline.runtime.child_process import free_addresses
from chronoline.timers.http.responses import HttpRefusal, read_body
from chronoline.timers.replica import Attempts
from tests.deadline import run_scene, until
from tests.timers.scene import Answered, Cluster, Popped, cluster, receiving, timer

_FAR_MS = 3_600_000
_TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_timer_pops_after_its_interval_with_its_body(tmp_path: Path) -> None:
    async def scene() -> None:
        async with receiving() as receiver, cluster(tmp_path) as nodes:
            asked_s = asyncio.get_running_loop().time()
            answered = await nodes.ask("POST", "/timers", timer(receiver.uri, interval_ms=50))
            assert answered.status == 200
            assert answered.location.startswith("/timers/")
            assert answered.headers["X-Copies"] == "1/1"
            (pop,) = await receiver.count(1)
        assert (pop.path, pop.sequence, pop.body) == ("/pop", 1, "hello")
        assert pop.headers["Host"] == f"127.0.0.1:{receiver.port}"
        assert pop.headers["Content-Length"] == "5"
        assert pop.headers["Content-Type"] == "application/octet-stream"
        assert pop.at_s >= asked_s + 0.05

    run_scene(scene)


@pytest.mark.parametrize(("given", "kept"), [(_TRACE, _TRACE), ("no trace", None)])
def test_callback_has_the_trace_of_its_client(tmp_path: Path, given: str, kept: str | None) -> None:
    async def scene() -> None:
        async with receiving() as receiver, cluster(tmp_path, 2) as nodes:
            asked = timer(receiver.uri, interval_ms=50)
            await nodes.ask("POST", "/timers", asked, headers={"traceparent": given})
            (pop,) = await receiver.count(1)
        assert pop.headers.get("traceparent") == kept

    run_scene(scene)


def test_the_readmes_request(tmp_path: Path) -> None:
    body = b'{"timing":{"interval":0.05},"callback":{"http":{"uri":"http://127.0.0.1:%d/pop","opaque":"hello"}}}'

    async def scene() -> None:
        async with receiving() as receiver, cluster(tmp_path) as nodes:
            answered = await nodes.ask("POST", "/timers", body % receiver.port)
            assert answered.status == 200
            (pop,) = await receiver.count(1)
        assert (pop.sequence, pop.body) == (1, "hello")

    run_scene(scene)


_EVERYTHING = {
    "timing": {"interval": 100, "repeat-for": 250},
    "callback": {"http": {"uri": "http://127.0.0.1:9/pop", "opaque": "c2VjcmV0"}},
    "reliability": {"replication-factor": 3},
    "statistics": {
        "tag-info": [{"type": "CALL", "count": 2}, {"type": "REG"}, {"type": "X", "count": 1}]
    },
}
"""The documented request of Metaswitch Chronos, with every optional field."""


def test_request_with_every_documented_field(tmp_path: Path) -> None:
    async def scene() -> None:
        async with cluster(tmp_path) as nodes:
            made = await nodes.ask("POST", "/timers", _EVERYTHING)
            assert made.status == 200
            # More replicas than nodes are as many as there are nodes.
            assert made.headers["X-Copies"] == "1/1"
            shown = (await nodes.ask("GET", f"/v1{made.location}")).json
            assert (shown["interval_ms"], shown["repeat_for_ms"], shown["pops"]) == (
                100_000,
                250_000,
                2,
            )
            assert shown["tags"] == {"CALL": 2, "REG": 1, "X": 1}
            # It may be refreshed, by that name; its factor stays what it was.
            again = await nodes.ask("PUT", made.location, _EVERYTHING)
            assert (again.status, again.location) == (200, made.location)
            other = {**_EVERYTHING, "reliability": {"replication-factor": 2}}
            assert (await nodes.ask("PUT", made.location, other)).status == 400
            # A body is ignored; one that is gone, or never was, may be deleted as well.
            for path in (made.location, made.location, "/timers/00000000000004d2-2"):
                assert (await nodes.ask("DELETE", path, b"{nonsense")).status == 200
            assert (await nodes.ask("GET", "/v1/timers")).json["timers"] == []

    run_scene(scene)


@pytest.mark.parametrize("nothing", [{}, {"repeat-for": 0}, {"repeat-for-ms": 0}])
def test_timer_without_interval_pops_once_at_once(tmp_path: Path, nothing: dict[str, int]) -> None:
    async def scene() -> None:
        async with receiving() as receiver, cluster(tmp_path) as nodes:
            body = {**timer(receiver.uri), "timing": {"interval": 0, **nothing}}
            made = await nodes.ask("POST", "/timers", body)
            await receiver.count(1)
            await until(partial(_is_over, nodes, made.location))
        assert [pop.sequence for pop in receiver.popped] == [1]

    run_scene(scene)


def test_secrets_in_a_uri_are_in_no_log_and_no_view(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "chronoline")

    async def refuse(_: Popped) -> int:
        return 500

    async def scene() -> None:
        hasty = Attempts(most=2, first_wait_ms=1, longest_wait_ms=1)
        async with receiving() as receiver, cluster(tmp_path, attempts=hasty) as nodes:
            receiver.answer = refuse
            uri = f"{receiver.uri}?token=s3cret#s3cret"
            made = await nodes.ask("POST", "/timers", timer(uri))
            shown = await nodes.ask("GET", f"/v1{made.location}")
            assert shown.json["uri"] == f"{receiver.uri}?..."
            listed = await nodes.ask("GET", "/v1/timers")
            await until(partial(_is_over, nodes, made.location))
            assert b"s3cret" not in shown.body + listed.body
            assert len(receiver.popped) == 2

    run_scene(scene)
    assert "callback_given_up" in {getattr(line, "action", "") for line in caplog.records}
    assert not [line for line in caplog.records if "s3cret" in f"{line.getMessage()} {vars(line)}"]


def test_failed_callbacks_share_a_line_of_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "chronoline")

    async def refuse(_: Popped) -> int:
        return 500

    def counts() -> list[int]:
        told = (
            record for record in caplog.records if vars(record).get("action") == "callback_failed"
        )
        return [vars(each)["count"] for each in told]

    async def scene() -> None:
        hasty = Attempts(most=2, first_wait_ms=1, longest_wait_ms=1)
        async with receiving() as receiver, cluster(tmp_path, attempts=hasty) as nodes:
            receiver.answer = refuse
            for _ in range(20):
                await nodes.ask("POST", "/timers", timer(receiver.uri))
            await until(lambda: sum(counts()) == 20)
        given_up = [record for record in caplog.records if "for good" in record.getMessage()]
        assert len(given_up) == 20  # each names its timer

    run_scene(scene)
    assert len(counts()) < 20


async def _is_over(nodes: Cluster, location: str) -> bool:
    return bool((await nodes.ask("GET", f"/v1{location}")).json["state"] == "over")


def test_a_timer_that_repeats_numbers_its_pops(tmp_path: Path) -> None:
    async def scene() -> None:
        async with receiving() as receiver, cluster(tmp_path) as nodes:
            await nodes.ask(
                "POST", "/timers", timer(receiver.uri, interval_ms=20, repeat_for_ms=70)
            )
            await receiver.until(lambda popped: popped[-1:] != [] and popped[-1].sequence == 3)
            asked = await nodes.ask("GET", "/v1/nodes")
            await asyncio.sleep(0.05)  # a fourth would come in this time
        numbers = [pop.sequence for pop in receiver.popped]
        assert numbers == sorted(set(numbers))  # on a machine that is busy the first may be missed
        assert numbers[-1] == 3
        assert asked.json["ready"]

    run_scene(scene)


@pytest.mark.parametrize("form", ["with the filter", "with the factor"])
def test_a_timer_is_replaced_and_deleted_by_either_name(tmp_path: Path, form: str) -> None:
    async def scene() -> None:
        async with receiving() as receiver, cluster(tmp_path) as nodes:
            made = await nodes.ask("POST", "/timers", timer(receiver.uri, interval_ms=_FAR_MS))
            path = made.location if form == "with the filter" else made.location[:24] + "-2"
            replaced = await nodes.ask(
                "PUT", path, timer(receiver.uri, opaque="new", interval_ms=30)
            )
            assert replaced.status == 200
            assert replaced.location == made.location
            (pop,) = await receiver.count(1)
            assert (pop.body, pop.sequence) == ("new", 1)
            again = await nodes.ask(
                "PUT", path, timer(receiver.uri, opaque="never", interval_ms=_FAR_MS)
            )
            assert again.status == 200
            for _ in range(2):
                assert (await nodes.ask("DELETE", path)).status == 200
            assert (await nodes.ask("GET", "/v1/timers")).json["timers"] == []
        assert [pop.body for pop in receiver.popped] == ["new"]

    run_scene(scene)


def test_a_client_may_choose_the_id(tmp_path: Path) -> None:
    async def scene() -> None:
        async with receiving() as receiver, cluster(tmp_path) as nodes:
            answered = await nodes.ask("PUT", "/timers/00000000000004d2-2", timer(receiver.uri))
            assert answered.status == 200
            assert answered.location.startswith("/timers/00000000000004d2")
            await receiver.count(1)

    run_scene(scene)


def test_timer_that_never_fires_is_accepted_and_forgotten(tmp_path: Path) -> None:
    async def scene() -> None:
        async with receiving() as receiver, cluster(tmp_path) as nodes:
            body = timer(receiver.uri, interval_ms=20, repeat_for_ms=10)
            assert (await nodes.ask("POST", "/timers", body)).status == 200
            await asyncio.sleep(0.06)  # it would pop in this time
            assert (await nodes.ask("GET", "/v1/timers")).json["timers"] == []
        assert receiver.popped == []

    run_scene(scene)


def test_tags_are_counted(tmp_path: Path) -> None:
    async def scene() -> None:
        async with cluster(tmp_path, labels={"cluster": "eu-1"}) as nodes:
            tags = {"tag-info": [{"type": "CALL", "count": 3}, {"type": "REG"}]}
            body = timer("http://127.0.0.1:9/", interval_ms=_FAR_MS, statistics=tags)
            made = await nodes.ask("POST", "/timers", body)
            text = (await nodes.ask("GET", "/metrics")).body.decode()
            assert 'chronoline_timers_tagged{cluster="eu-1",tag="CALL"} 3.0' in text
            for name in ("waiting", "primary"):
                assert f'chronoline_timers_{name}{{cluster="eu-1"}} 1.0' in text
            asked = (
                'chronoline_timers_requests_total{cluster="eu-1",method="POST",status="200"} 1.0'
            )
            assert asked in text
            await nodes.ask("DELETE", made.location)
            text = (await nodes.ask("GET", "/metrics")).body.decode()
            for suffix, number in (("", 0), ("_high", 3), ("_low", 0)):
                assert f'timers_tagged{suffix}{{cluster="eu-1",tag="CALL"}} {number}.0' in text
            for suffix in ("average", "variance"):
                assert f'timers_tagged_{suffix}{{cluster="eu-1",tag="CALL"}}' in text
            seen = (await nodes.ask("GET", "/v1/nodes")).json
            assert seen["tags"] == {}
            assert seen["tag_statistics"]["CALL"]["high"] == 3
            assert 'chronoline_timers_waiting{cluster="eu-1"} 0.0' in text
            assert 'method="GET"' not in text  # only what clients ask is counted

    run_scene(scene)


def test_ping(tmp_path: Path) -> None:
    async def scene() -> None:
        async with cluster(tmp_path) as nodes:
            answered = await nodes.ask("GET", "/ping")
        assert (answered.status, answered.body) == (200, b"OK")

    run_scene(scene)


_FACTOR_2 = {"replication-factor": 2}
_NO_CALL = {"type": "CALL", "count": 0}
_OK = timer("http://127.0.0.1:9/", interval_ms=_FAR_MS)
_MAILED = {**_OK, "callback": {"mailto": {"uri": "x@example.com", "opaque": ""}}}
_RECORDS = "POST /cluster/records"


@pytest.mark.parametrize(
    ("request_line", "body", "status", "word"),
    [
        ("POST /timers", b"{", 400, "not JSON"),
        ("POST /timers", b"", 400, "not JSON"),
        ("POST /timers", None, 400, "not JSON"),
        ("POST /timers", b"[" * 100_000, 400, "nested too deeply"),
        ("POST /timers", [_OK], 400, "object"),
        ("POST /timers", {"timing": {"interval": 5}}, 400, "callback is missing"),
        ("POST /timers", {**_OK, "timing": {"interval": "5"}}, 400, "number of seconds"),
        ("POST /timers", {**_OK, "timing": {"repeat-for": 5}}, 400, "interval is missing"),
        ("POST /timers", {**_OK, "reliability": []}, 400, "reliability"),
        ("POST /timers", _MAILED, 400, "callback.http is missing"),
        ("POST /timers", {**_OK, "callback": {**_OK["callback"], "x": 5}}, 400, "beside http"),
        ("POST /timers", {**_OK, "reliability": {"replication-factor": 33}}, 400, "from 1 to 32"),
        ("PUT /timers/00000000000004d2-33", _OK, 400, "from 1 to 32"),
        ("POST /timers", {**_OK, "statistics": {"tag-info": [_NO_CALL]}}, 400, "count must be"),
        ("POST /timers", timer("gopher://x/"), 400, "uri"),
        ("POST /timers", timer("http://10.0.0.1/"), 400, "callbacks.allow"),
        ("PUT /timers/00000000000004d2-2", timer("http://[fd12::1]/"), 400, "callbacks.allow"),
        ("POST /timers", timer("http://x/", interval_ms=0, repeat_for_ms=5), 400, "repeat-for"),
        ("POST /timers", b"x" * 2_000_000, 413, "larger"),
        ("PUT /timers/00000000000004d2-3", {**_OK, "reliability": _FACTOR_2}, 400, "factor"),
        ("PUT /timers/00000000000004d2-0", _OK, 400, "factor"),
        ("PUT /timers/xyz", _OK, 404, "no timer"),
        ("PUT /timers/00000000000004d2", _OK, 404, "no timer"),
        ("PUT /timers/%00%0d%0aX:%20y", _OK, 404, "no timer"),
        ("PUT /timers/00000000000004d2-2", b"{", 400, "not JSON"),
        ("DELETE /timers/4d2", None, 404, "no timer"),
        ("DELETE /timers/00000000000004d2-0", None, 400, "factor"),
        ("DELETE /timers/00000000000004d2-999999999", None, 400, "factor"),
        ("PUT /timers", _OK, 405, "PUT"),
        ("POST /timers/00000000000004d2-2", _OK, 405, "POST"),
        ("GET /timers/00000000000004d2-2", None, 405, "GET"),
        ("PATCH /timers/00000000000004d2-2", _OK, 405, "PATCH"),
        ("MKCOL /timers", None, 405, "other"),
        ("OPTIONS /timers", None, 405, "OPTIONS"),
        ("DELETE /timers", None, 405, "DELETE"),
        ("POST /ping", None, 405, "POST"),
        ("GET /timers", None, 400, "node-for-replicas"),
        ("GET /timers?node-for-replicas=x&cluster-view-id=y", None, 400, "reload"),
        ("DELETE /timers/references", b"[]", 400, "object"),
        (_RECORDS, {"records": {}}, 400, "list"),
        (_RECORDS, {"records": [], "confirmed": 5}, 400, "list"),
        ("POST /cluster/known", {"ids": ["x"]}, 400, "numbers"),
        ("GET /cluster/records?for=nobody", None, 404, "nobody"),
        ("GET /v1/timers/00000000000004d2-2", None, 404, "does not know"),
        ("GET /v1/timers?cursor=x", None, 400, "cursor"),
        ("POST /v1/nothing", None, 404, "nothing"),
        ("GET /", None, 404, "nothing"),
        ("GET /%00%1b%ff", None, 404, "nothing"),
    ],
)
def test_invalid_request_gets_a_reason(
    tmp_path: Path, request_line: str, body: Any, status: int, word: str
) -> None:
    method, path = request_line.split()

    async def scene() -> None:
        async with cluster(tmp_path) as nodes:
            answered = await nodes.ask(method, path, body)
            assert answered.status == status
            assert word in answered.headers["Reason"]
            assert word in answered.body.decode()
            if status == 405:
                assert answered.headers["Allow"]
            assert (await nodes.ask("GET", "/v1/timers")).json["timers"] == []

    run_scene(scene)


_HEAD = b"POST /timers HTTP/1.1\r\nHost: 127.0.0.1\r\n"


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"BREW /timers HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", b"400"),
        (b"\x16\x03\x01\x02\x00\r\n\r\n", b"400"),
        (_HEAD + b"Content-Length: 99999999999\r\n\r\n{", b"413"),
        (_HEAD + b"Content-Length: -1\r\n\r\n{", b"400"),
        (
            _HEAD
            + b"Transfer-Encoding: chunked\r\n\r\n"
            + b"ffff\r\n%b\r\n" % (b"x" * 0xFFFF) * 17,
            b"413",
        ),
        (_HEAD + b"Transfer-Encoding: chunked\r\n\r\nnonsense\r\n", b"400"),
        (_HEAD + b"Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc", b"415"),
        (_HEAD + b"X: " + b"x" * 100_000 + b"\r\n\r\n", b"400"),
        (_HEAD + b"Authorization: Bearer secret\x01\r\n\r\n", b"400"),
        (_HEAD + b"Authorization: Bearer secret\xff\r\nContent-Length: 0\r\n\r\n", b"400"),
    ],
    ids=lambda each: str(each[-40:]) if len(each) > 3 else "",
)
def test_malformed_request_stops_nothing(
    tmp_path: Path, request_bytes: bytes, status: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene() -> None:
        async with cluster(tmp_path) as nodes:
            host, _, port = nodes.names[0].rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(request_bytes)
            assert (await reader.readline()).split()[1] == status
            writer.close()
            assert (await nodes.ask("GET", "/ping")).body == b"OK"

    run_scene(scene)
    assert "secret" not in caplog.text
    assert "Traceback" not in caplog.text


def test_missing_body_times_out() -> None:
    async def scene() -> None:
        protocol = BaseProtocol(asyncio.get_running_loop())
        protocol.connection_made(asyncio.Transport())
        payload = StreamReader(protocol, 1_000)
        payload.feed_data(b"{")
        request = make_mocked_request("POST", "/", {"Content-Length": "9"}, payload=payload)
        with pytest.raises(HttpRefusal, match="did not come") as caught:
            await read_body(request, 1_000, patience_s=0.01)
        assert caught.value.status == 408

    run_scene(scene)


def test_resync_page_matches_metaswitch_chronos(tmp_path: Path) -> None:
    async def scene() -> None:
        async with cluster(tmp_path) as nodes:
            (other,) = free_addresses(1)
            made = {(await nodes.ask("POST", "/timers", _OK)).location[8:24] for _ in range(101)}
            nodes.write(staying=[other], leaving=nodes.names)
            await nodes.services[nodes.names[0]].reload()
            view = (await nodes.ask("GET", "/v1/nodes")).json["view"]
            asked = f"/timers?cluster-view-id={view}&node-for-replicas="
            assert (await nodes.ask("GET", f"{asked}127.0.0.1:1")).status == 404
            first = await nodes.ask("GET", f"{asked}{other}")
            assert (first.status, first.headers["Content-Range"]) == (206, "100")
            second = await nodes.ask("GET", f"{asked}{other}&cursor={first.json['cursor']}")
            assert second.status == 200
            timers = first.json["timers"] + second.json["timers"]
            assert {f"{each['TimerID']:016x}" for each in timers} == made
            assert all(each["OldReplicas"] == nodes.names for each in timers)
            assert all(each["Timer"]["replicas"] == [other] for each in timers)
            ids = [{"ID": each["TimerID"], "ReplicaIndex": 0} for each in timers]
            told = await nodes.ask("DELETE", "/timers/references", {"IDs": ids})
            assert told.status == 202
            assert (await nodes.ask("GET", "/v1/timers")).json["timers"] == []

    run_scene(scene)


def test_timers_beyond_the_limit_are_refused(tmp_path: Path) -> None:
    async def scene() -> None:
        async with cluster(tmp_path, most_timers=2) as nodes:
            answers: list[Answered] = []
            for _ in range(3):
                answers.append(await nodes.ask("POST", "/timers", _OK))
            assert [each.status for each in answers] == [200, 200, 503]
            assert answers[2].headers["Retry-After"] == "1"

    run_scene(scene)


@pytest.mark.parametrize(
    ("request_line", "body"),
    [
        ("POST /timers", _OK),
        ("DELETE /timers/00000000000004d2-2", None),
        (_RECORDS, {"records": []}),
        ("POST /cluster/known", {"ids": []}),
    ],
)
def test_loading_node_refuses_changes(tmp_path: Path, request_line: str, body: Any) -> None:
    """The journal is older, and would overwrite the change."""
    method, path = request_line.split()

    async def scene() -> None:
        async with cluster(tmp_path) as nodes:
            node = nodes.services[nodes.names[0]].node
            assert node is not None
            node.is_loaded = False
            answered = await nodes.ask(method, path, body)
            assert answered.status == 503
            assert "starting" in answered.headers["Reason"]

    run_scene(scene)


def test_timer_with_too_few_copies_is_unavailable(tmp_path: Path) -> None:
    async def scene() -> None:
        async with cluster(tmp_path, 2, least_copies=2) as nodes:
            assert (await nodes.ask("POST", "/timers", _OK)).headers["X-Copies"] == "2/2"
            await nodes.services[nodes.names[1]].stop()
            answered = await nodes.ask("POST", "/timers", _OK)
            assert answered.status == 503
            assert "it may pop" in answered.headers["Reason"]

    run_scene(scene)


def test_a_list_goes_on_where_it_ended(tmp_path: Path) -> None:
    async def scene() -> None:
        async with cluster(tmp_path) as nodes:
            made = {(await nodes.ask("POST", "/timers", _OK)).location for _ in range(120)}
            first = (await nodes.ask("GET", "/v1/timers")).json
            second = (await nodes.ask("GET", f"/v1/timers?cursor={first['cursor']}")).json
            assert len(first["timers"]) == 100
            assert second["cursor"] is None
            listed = {f"/timers/{each['id']}" for each in first["timers"] + second["timers"]}
            assert listed == made
            shown = (await nodes.ask("GET", "/v1" + made.pop())).json
            assert shown["state"] == "waiting"
            assert 0 < shown["due_in_ms"] <= _FAR_MS

    run_scene(scene)


def test_nodes_send_no_token_to_other_machines_without_tls(tmp_path: Path) -> None:
    nodes = tmp_path / "nodes.toml"
    nodes.write_text('staying = ["127.0.0.1:7253", "192.0.2.1:7253"]')
    options = ServiceOptions(
        data=tmp_path, nodes_file=nodes, peer_headers={"Authorization": "Bearer t"}
    )

    async def scene() -> None:
        with pytest.raises(InvalidInput, match=r"192\.0\.2\.1:7253 can read the token"):
            await TimerService(options).start()
        # The list is read, and no node is started.
        TimerService(replace(options, insecure=True))._membership()

    run_scene(scene)
