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
_ASKED = 7
"""The `seq` of a frame whose answer is looked for."""
_TRIES = (
    ("stranger", "forbidden"),
    ("reader", "forbidden"),
    ("elsewhere", "hidden"),
    ("ops", "done"),
)
"""The tokens that ask, each with the outcome."""
_UNREAD = ("stranger", "reader")
"""The tokens whose requests are not read, since they may do such things at no topic."""
_OF_NO_PATH = {
    "create_topic",
    "create_schedule",
    "pause_schedule",
    "resume_schedule",
    "delete_schedule",
}
"""Routes whose topic is not in the path."""
_BY_NAME = {"CreateTopic", "create_topic", "create_schedule"}
"""Acts that name a topic, and tell nobody whether it is there."""


def _outcome(outcome: str, act: str, *, by_uid: bool) -> str:
    """The outcome in the trail: what may not be seen is not found."""
    if outcome != "hidden":
        return outcome
    if "schedule" in act.lower() and act not in ("create_schedule", "PutSchedule"):
        return "schedule_not_found"
    return "topic_not_found" if by_uid and act not in _BY_NAME else "forbidden"


def _acts(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """The lines of the audit trail, as they are written to a file."""
    written = [
        JsonLines().format(each) for each in caplog.records if each.name == audit.logger.name
    ]
    caplog.clear()
    return [json.loads(each) for each in written]


async def _ask(served: Served, name: str, request: Any, token: str) -> str:
    """The code of the answer of a call; empty for success."""
    return str((await _failure(served, name, request, token)).code)


async def _failure(served: Served, name: str, request: Any, token: str) -> pb.Failure:
    """The failure that a call is answered with; empty for success."""
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
            return pb.Failure.FromString(dict(error.trailing_metadata() or ())[FAILURE_KEY])
        return pb.Failure()


async def _stream_failure(served: Served, path: str, frames: list[Any], token: str) -> pb.Failure:
    """The first failure that a stream with these frames hears."""
    async with grpc.aio.insecure_channel(served.address) as channel:
        call: Any = channel.stream_stream(
            f"/chronoline.v1.Carrier/{path}",
            request_serializer=lambda frame: frame.SerializeToString(),
            response_deserializer=pb.ProducerReply.FromString,
        )(metadata=[("authorization", f"Bearer {token}")])
        for frame in frames:
            await call.write(frame)
        async with asyncio.timeout(60):
            while True:
                reply = await call.read()
                for each in (reply, *reply.more):
                    if each.seq == _ASKED and each.WhichOneof("what") == "failure":
                        return each.failure  # type: ignore[no-any-return]  # of the reply


def _reads(uid: int) -> Mapping[str, Any]:
    """A valid request for each call that reads a topic by its uid."""
    return {
        "Lookup": pb.LookupRequest(topic_uid=uid, ids=["a"]),
        "ReadBodies": pb.BodiesRequest(topic_uid=uid, ids=["a"], consumer="c"),
        "Count": pb.CountRequest(topic_uid=uid),
        "Forecast": pb.ForecastRequest(topic_uid=uid, end_ms=60_000, step_ms=60_000),
        "DeadLetters": pb.DeadLettersRequest(topic_uid=uid),
        "List": pb.ListRequest(topic_uid=uid),
        "States": pb.LookupRequest(topic_uid=uid, ids=["a"]),
    }


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
                is_unread = token in _UNREAD and name in _OF_NO_PATH
                expected = _outcome(outcome, name, by_uid=False)
                named = None if is_unread else "orders"
                assert (line.get("topic"), line["outcome"]) == (named, expected), answer.text
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
                expected = _outcome(outcome, name, by_uid=True)
                assert (line["who"], line["outcome"]) == (f"token {token}", expected)
                # A schedule that may not be seen is deleted already.
                is_gone = (name, expected) == ("DeleteSchedule", "schedule_not_found")
                assert code == ("" if expected == "done" or is_gone else expected)
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
            **_reads(topic.uid),
        }
        calls = {name for each in server.UNARY.values() for name in each}
        # Lists have what the token may see, and a schedule is not found by others.
        assert calls == {*requests, "ListTopics", "ListSchedules", "GetSchedule"}
        assert await _ask(served, "PutSchedule", requests["PutSchedule"], tokens["ops"]) == ""
        for name, request in requests.items():
            assert await _ask(served, name, request, token) == "forbidden", name

    _play(tmp_path, play, caplog)


def test_uid_of_a_hidden_topic_tells_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """By every call and both streams, of a token with all rights to another topic."""

    async def play(served: Served, _: dict[str, str]) -> None:
        assert served.node.parts is not None
        topics = served.node.parts.topics
        hidden = (await topics.create("orders", TopicSettings(), if_missing=False)).uid
        missing = hidden + 1_000
        rights = Rights.parse([f"{kind}:mails" for kind in ("produce", "consume", "administer")])
        token = Tokens(tmp_path / "tokens.json").create("mails", rights)
        asked, of_nothing = ({**_requests(uid), **_reads(uid)} for uid in (hidden, missing))
        by_uid = [name for name in asked if asked[name] != of_nothing[name]]
        assert len(by_uid) > 14
        for name in by_uid:
            told, expected = [
                await _failure(served, name, each[name], token) for each in (asked, of_nothing)
            ]
            assert (told.code, told.kind) == ("topic_not_found", "refused"), name
            assert told.message == expected.message.replace(str(missing), str(hidden)), name
        for path, frames in _streams(hidden).items():
            told = await _stream_failure(served, path, frames, token)
            expected = await _stream_failure(served, path, _streams(missing)[path], token)
            assert told.code == "topic_not_found", path
            assert told.message == expected.message.replace(str(missing), str(hidden))

    _play(tmp_path, play, caplog)


def _streams(uid: int) -> dict[str, list[Any]]:
    """By stream, its hello and a request."""
    messages = [pb.NewMessage(id="a")]
    create = pb.CreateBatch(topic_uid=uid, messages=messages)
    subscribe = pb.Subscribe(topic_uid=uid, credit=1)
    return {
        "Produce": [
            pb.ProducerFrame(seq=1, hello=pb.Hello(name="g")),
            pb.ProducerFrame(seq=_ASKED, create=create),
        ],
        "Consume": [
            pb.ConsumerFrame(seq=1, hello=pb.Hello(name="c")),
            pb.ConsumerFrame(seq=_ASKED, subscribe=subscribe),
        ],
    }
