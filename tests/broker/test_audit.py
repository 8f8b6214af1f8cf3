"""The audit trail: every administrative act has its line, at every edge."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree
from typing import Any

import grpc
import httpx
import pytest

from chronoline.broker.auth import Door
from chronoline.broker.grpc import server
from chronoline.broker.tokens import Tokens
from chronoline.core.rights import Rights
from chronoline.core.topic import TopicSettings
from chronoline.node.logs import JsonLines, audit_to_file
from chronoline.node.settings import NodeSettings
from chronoline.runtime import audit
from chronoline.wire.codes import FAILURE_KEY
from chronoline.wire.v1 import chronoline_pb2 as pb
from tests.broker.http.served import Served, serving
from tests.broker.http.test_rights import REQUESTS

_CHANGES_OF_CLIENTS = {
    "create_message",
    "create_messages",
    "reschedule_message",
    "reschedule_messages",
    "cancel_message",
    "cancel_messages",
    "receive",
    "ack",
    "extend",
    "release",
    "retry",
    "bury",
}
"""Routes that change something, and are no administrative acts: they need a right to a name."""
_READS_OF_CALLS = {
    "Info",
    "GetTopic",
    "ListTopics",
    "Prefer",
    "Lookup",
    "ReadBodies",
    "Count",
    "Forecast",
    "DeadLetters",
    "GetSchedule",
    "ListSchedules",
    "List",
    "States",
}
"""Calls that change nothing. The streams have the changes of clients."""
_DETAILS: Mapping[str, Mapping[str, Any]] = {
    "PauseTopic": {"reason": "the mail server is down"},
    "ChangeTopic": {"changed": ["dedupe_ms"]},
    "DeleteSchedule": {"schedule": "s"},
    "ChangeMatching": {
        "operation": "cancel",
        "prefix": "order-",
        "statuses": ["waiting"],
        "dry_run": True,
        "items": 0,
    },
    "Import": {"items": 0, "refused": 0},
}
"""Details that the lines of some calls have."""
_TRIES = (
    ("stranger", "forbidden"),
    ("reader", "forbidden"),
    ("elsewhere", "forbidden"),
    ("ops", "done"),
)
"""The tokens that ask, each with the outcome."""
_UNREAD = ("stranger", "reader")
"""The tokens whose requests are not read, since they may do such things at no topic."""
_NAMED_IN_BODIES = {"create_topic", "create_schedule"}
"""Routes whose topic is in the body."""


def _acts(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """The lines of the audit trail, as they are written to a file."""
    written = [
        JsonLines().format(each) for each in caplog.records if each.name == audit.logger.name
    ]
    caplog.clear()
    return [json.loads(each) for each in written]


async def _ask(served: Served, name: str, request: Any, token: str) -> str:
    """The code of the answer of a call; empty for success."""
    service = next(each for each, calls in server.UNARY.items() if name in calls)
    async with grpc.aio.insecure_channel(served.address) as channel:
        call: Any = channel.unary_unary(
            f"/{service}/{name}",
            request_serializer=lambda asked: asked.SerializeToString(),
            response_deserializer=lambda answer: answer,
        )
        try:
            await call(request, metadata=(("authorization", f"Bearer {token}"),))
        except grpc.aio.AioRpcError as error:
            failure = pb.Failure.FromString(dict(error.trailing_metadata() or ())[FAILURE_KEY])
            return failure.code
        return ""


def _requests(uid: int) -> Mapping[str, Any]:
    """A valid request for each call that is an administrative act."""
    return {
        "CreateTopic": pb.CreateTopicRequest(name="new"),
        "PauseTopic": pb.PauseTopicRequest(uid=uid, reason="the mail server is down"),
        "ResumeTopic": pb.TopicRef(uid=uid),
        "ChangeTopic": pb.ChangeTopicRequest(uid=uid, settings=pb.TopicSettings(dedupe_ms=1)),
        "Redrive": pb.RedriveRequest(topic_uid=uid, ids=["a"]),
        "Discard": pb.DiscardRequest(topic_uid=uid, ids=["a"]),
        "PutSchedule": pb.PutScheduleRequest(
            schedule=pb.Schedule(
                name="s", topic_uid=uid, every_ms=60_000, producer_group="default", catch_up="one"
            ),
            replace=True,
        ),
        "PauseSchedule": pb.ScheduleRef(name="s"),
        "ResumeSchedule": pb.ScheduleRef(name="s"),
        "DeleteSchedule": pb.ScheduleRef(name="s"),
        "ChangeMatching": pb.ChangeMatchingRequest(
            topic_uid=uid,
            kind=pb.ChangeMatchingRequest.KIND_CANCEL,
            filter=pb.MessageFilter(prefix="order-", statuses=["waiting"]),
            dry_run=True,
        ),
        "Export": pb.ExportRequest(topic_uid=uid),
        "Import": pb.ImportRequest(topic_uid=uid),
        "DropTopic": pb.TopicRef(uid=uid),
    }


def _play(
    tmp_path: Path, play: Callable[[Served, dict[str, str]], Any], caplog: pytest.LogCaptureFixture
) -> None:
    tokens = Tokens(tmp_path / "tokens.json")
    given = {
        "ops": tokens.create("ops"),
        "reader": tokens.create("reader", Rights.parse(["observe", "consume"])),
        "elsewhere": tokens.create(
            "elsewhere", Rights.parse(["administer:mails", "produce:mails"])
        ),
        "stranger": tokens.create("stranger", Rights.parse(["observe:other"])),
    }

    async def run() -> None:
        with caplog.at_level(logging.INFO, audit.logger.name):
            async with serving(tmp_path, door=Door(tokens)) as served:
                await play(served, given)

    asyncio.run(run())


def test_every_administrative_route_is_audited(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def play(served: Served, tokens: dict[str, str]) -> None:
        headers = {"authorization": f"Bearer {tokens['ops']}"}
        described = (await served.http.get("/openapi.json", headers=headers)).json()["paths"]
        names = {
            (method, path): operation["operationId"]
            for path, each in described.items()
            for method, operation in each.items()
        }
        administrative = {
            route: name
            for route, name in names.items()
            if (route[0] != "get" or name == "export") and name not in _CHANGES_OF_CLIENTS
        }
        assert set(names.values()) >= _CHANGES_OF_CLIENTS
        last = "_ delete_schedule drop_topic"
        for place in ("/v1/topics", "/v1/schedules"):
            await served.http.post(place, json=REQUESTS["post", place], headers=headers)
        for token, outcome in _TRIES:
            headers = {"authorization": f"Bearer {tokens[token]}"}
            for route, name in sorted(names.items(), key=lambda each: last.find(each[1])):
                _acts(caplog)
                answer = await _ask_route(served.http, route, headers)
                lines = _acts(caplog)
                if route not in administrative:
                    assert lines == [], name
                    continue
                [line] = lines
                assert line["action"] == "audit"
                assert (line["act"], line["who"]) == (name, f"token {token}")
                is_unread = token in _UNREAD and name in _NAMED_IN_BODIES
                named = None if is_unread else "orders"
                assert (line.get("topic"), line["outcome"]) == (named, outcome), answer.text
                assert line["from"].startswith("127.0.0.1:")

    _play(tmp_path, play, caplog)


async def _ask_route(
    http: httpx.AsyncClient, route: tuple[str, str], headers: dict[str, str]
) -> httpx.Response:
    method, path = route
    url = path.format(topic="orders", id="a", schedule="s")
    return await http.request(method, url, json=REQUESTS.get(route), headers=headers)


def test_every_administrative_call_is_audited(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def play(served: Served, tokens: dict[str, str]) -> None:
        assert served.node.parts is not None
        topic = await served.node.parts.topics.create("orders", TopicSettings(), if_missing=False)
        requests = _requests(topic.uid)
        calls = {name for each in server.UNARY.values() for name in each}
        assert calls == _READS_OF_CALLS | set(requests)
        assert await _ask(served, "PutSchedule", requests["PutSchedule"], tokens["ops"]) == ""
        for token, outcome in _TRIES:
            for name, request in requests.items():
                _acts(caplog)
                code = await _ask(served, name, request, tokens[token])
                [line] = _acts(caplog)
                assert line["act"].replace("_", "") == name.lower()
                assert (line["who"], line["outcome"]) == (f"token {token}", code or "done")
                assert line["outcome"] == outcome
                named = "new" if name == "CreateTopic" else "orders"
                assert line.get("topic") == (None if token in _UNREAD else named)
                if outcome == "done" and name in ("Redrive", "Discard"):
                    assert (line["items"], line["refused"]) == (1, 1)
                if outcome == "done":
                    assert _DETAILS.get(name, {}).items() <= line.items()

    _play(tmp_path, play, caplog)


def test_endless_names_are_cut(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def play(served: Served, tokens: dict[str, str]) -> None:
        asked = pb.CreateTopicRequest(name="y" * 1_000_000)
        for token, code in (("elsewhere", "forbidden"), ("ops", "invalid_input")):
            caplog.clear()
            assert await _ask(served, "CreateTopic", asked, tokens[token]) == code
            [line] = _acts(caplog)
            assert line["outcome"] == code
            assert asked.name.startswith(line["topic"])
            assert len(str(line)) < 5_000

    _play(tmp_path, play, caplog)


def test_stranger_to_a_topic_is_named_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def play(served: Served, tokens: dict[str, str]) -> None:
        headers = {"authorization": f"Bearer {tokens['elsewhere']}"}
        wanted = {"name": "s", "topic": "orders", "every": "1m"}
        _acts(caplog)
        answer = await served.http.post("/v1/schedules", json=wanted, headers=headers)
        [line] = _acts(caplog)
        assert (answer.status_code, line["outcome"]) == (403, "forbidden")
        assert (line["act"], line["who"], line["topic"]) == (
            "create_schedule",
            "token elsewhere",
            "orders",
        )

    _play(tmp_path, play, caplog)


def test_failed_act_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def play(served: Served, tokens: dict[str, str]) -> None:
        headers = {"authorization": f"Bearer {tokens['ops']}"}
        for name in ("t", "t", "t\nu"):
            await served.http.post("/v1/topics", json={"name": name}, headers=headers)
        lines = _acts(caplog)[-3:]
        assert [each["outcome"] for each in lines] == ["done", "topic_exists", "invalid_input"]
        assert "\n" not in lines[-1]["message"]
        assert lines[-1]["topic"] == "t\nu"

    _play(tmp_path, play, caplog)


def test_acts_on_this_machine_are_audited(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, audit.logger.name):
        tokens = Tokens(tmp_path / "tokens.json")
        token = tokens.create("a", Rights.parse(["observe"]))
        tokens.revoke("a")
    made, revoked = _acts(caplog)
    assert (made["act"], made["token"], made["rights"]) == ("create_token", "a", ["observe"])
    assert (revoked["act"], revoked["token"]) == ("revoke_token", "a")
    assert made["who"].startswith("local ")
    assert token not in json.dumps(made)


@contextmanager
def _trail_in(file: Path) -> Iterator[None]:
    handlers = list(audit.logger.handlers)
    try:
        audit_to_file(NodeSettings.load(None, {}, {"audit_file": str(file), "log_level": "error"}))
        yield
    finally:
        for handler in set(audit.logger.handlers) - set(handlers):
            audit.logger.removeHandler(handler)
            handler.close()


def test_trail_is_written_to_its_file_too(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    with _trail_in(file):
        audit.local("one", "here")
        file.rename(tmp_path / "rotated.jsonl")
        audit.local("two", "here")
    assert json.loads(file.read_text())["act"] == "two"
    assert json.loads((tmp_path / "rotated.jsonl").read_text())["act"] == "one"


def test_file_that_cannot_be_written_fails_no_act(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "rotated"
    folder.mkdir()
    with _trail_in(folder / "audit.jsonl"), caplog.at_level(logging.INFO):
        rmtree(folder)
        audit.local("one", "here")
        audit.local("two", "here")
        folder.mkdir()
        audit.local("three", "here")
        rmtree(folder)
        audit.local("four", "here")
    told = [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]
    assert [each.startswith("audit_file") for each in told] == [True, True]
    assert [each["act"] for each in _acts(caplog)] == ["one", "two", "three", "four"]


def test_right_to_no_topic_opens_no_call(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def play(served: Served, tokens: dict[str, str]) -> None:
        assert served.node.parts is not None
        topic = await served.node.parts.topics.create("orders", TopicSettings(), if_missing=False)
        token = Tokens(tmp_path / "tokens.json").create("timers", Rights.parse(["timers", "node"]))
        requests = {
            **_requests(topic.uid),
            "GetTopic": pb.GetTopicRequest(name="orders"),
            "Info": pb.InfoRequest(),
            "Prefer": pb.PreferRequest(topic_uid=topic.uid),
            "Lookup": pb.LookupRequest(topic_uid=topic.uid, ids=["a"]),
            "ReadBodies": pb.BodiesRequest(topic_uid=topic.uid, ids=["a"], consumer="c"),
            "Count": pb.CountRequest(topic_uid=topic.uid),
            "Forecast": pb.ForecastRequest(topic_uid=topic.uid, end_ms=60_000, step_ms=60_000),
            "DeadLetters": pb.DeadLettersRequest(topic_uid=topic.uid),
            "List": pb.ListRequest(topic_uid=topic.uid),
            "States": pb.LookupRequest(topic_uid=topic.uid, ids=["a"]),
        }
        calls = {name for each in server.UNARY.values() for name in each}
        # Lists have what the token may see, and a schedule is not found by others.
        assert calls == {*requests, "ListTopics", "ListSchedules", "GetSchedule"}
        assert await _ask(served, "PutSchedule", requests["PutSchedule"], tokens["ops"]) == ""
        for name, request in requests.items():
            assert await _ask(served, name, request, token) == "forbidden", name

    _play(tmp_path, play, caplog)
