"""The SQL function `chronoline.send`: a message from inside any transaction, without Python."""

import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from chronoline.core.permissions import System
from chronoline.stores.postgres import PostgresStore
from chronoline.stores.stripes import stripe_of
from tests.stores.line import LEASE_MS, NOW, OWNERS, Line, MakeLine, ids, new

IDS = [
    *(f"order-{number}" for number in range(300)),
    *(
        "é",
        "e\N{COMBINING ACUTE ACCENT}",
        "日本語",
        "🙂🙃",
        "\N{ZERO WIDTH JOINER}",
        "a b",
        "'",
        '"',
        "\\",
    ),
    *("%s", "x" * 512, "📅" * 128, "\t\n", "0"),
]


@pytest.fixture
def caller(postgres_url: str) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    with psycopg.connect(postgres_url) as connection:
        yield connection


class Sender:
    """Calls the function with what a test gives it, and what it needs besides."""

    def __init__(self, connection: psycopg.Connection[tuple[Any, ...]], topic: str) -> None:
        self.connection = connection
        self._given: dict[str, object] = {
            "topic_name": topic,
            "message_id": "a",
            "due_ms": NOW,
            "message_body": b"",
            "now_ms": NOW,
            "group_name": OWNERS,
        }

    def __call__(self, **named: object) -> int | None:
        values = self._given | named
        if "message_headers" in values:
            values["message_headers"] = json.dumps(values["message_headers"])
        arguments = ", ".join(f"{name} => %({name})s" for name in values)
        row = self.connection.execute(f"SELECT chronoline.send({arguments})".encode(), values)
        (version,) = row.fetchone() or ()
        return version  # type: ignore[no-any-return]  # a column of the driver's


@pytest.fixture
def send(caller: psycopg.Connection[tuple[Any, ...]], pg_line: Line) -> Sender:
    return Sender(caller, pg_line.topic.name)


def test_version_starts_above_the_floor_after_clock_rollback(send: Sender, pg_line: Line) -> None:
    pg_line.put("a")
    pg_line.cancel("a")
    pg_line.now += 3_600_000
    assert pg_line.purge() == 1
    version = send(now_ms=NOW - 3_600_000)
    assert version is not None
    assert version > NOW + 1


@pytest.mark.parametrize("buckets", [1, 7, 64, 65_536])
def test_send_chooses_the_same_buckets_as_python(
    pg: PostgresStore, caller: psycopg.Connection[tuple[Any, ...]], buckets: int
) -> None:
    line = MakeLine(pg)(buckets=buckets)
    send = Sender(caller, line.topic.name)
    assert {send(message_id=each) for each in IDS} == {NOW}
    caller.commit()
    assert line.create(*(new(each) for each in IDS)) == ["exists"] * len(IDS)
    assert pg.lookup(line.uid, IDS).keys() == set(IDS)
    rows = caller.execute(
        "SELECT bucket, stripe FROM chronoline.messages WHERE topic > 0"
    ).fetchall()
    assert [stripe for _, stripe in rows] == [stripe_of(bucket, buckets) for bucket, _ in rows]
    assert sorted(ids(line.reserve(limit=1_000).leased)) == sorted(IDS)


def test_send_keeps_every_field(send: Sender, pg_line: Line) -> None:
    version = send(
        due_ms=NOW + 5,
        message_body=b"\0body",
        message_key=b"\xff",
        message_headers=[["h", "é"], ["h", "2"], ["empty", ""], ["none", None], ["", "x"]],
        expires_ms=NOW + 500,
    )
    send.connection.commit()
    message = pg_line["a"]
    assert (version, message.version, message.ts, message.due) == (NOW, NOW, NOW + 5, NOW + 5)
    assert message.headers == (
        ("h", "é".encode()),
        ("h", b"2"),
        ("empty", b""),
        ("none", None),
        ("", b"x"),
    )
    assert (message.key, message.expires) == (b"\xff", NOW + 500)
    assert message.producer_group == OWNERS
    bodies = pg_line.store.bodies(pg_line.uid, ["a"], actor=System(), now_ms=NOW)
    assert bodies.found == {"a": b"\0body"}


def test_a_message_without_a_body_and_headers(send: Sender, pg_line: Line) -> None:
    send(message_body=None)
    send.connection.commit()
    assert pg_line["a"].headers == ()
    assert pg_line.reserve().leased[0].body is None


def test_taken_id_returns_null_and_changes_nothing(send: Sender, pg_line: Line) -> None:
    before = pg_line.put("a")
    assert send(due_ms=NOW + 5, message_body=b"other") is None
    send.connection.commit()
    assert pg_line["a"] == before
    pg_line.cancel("a")
    assert send() is None  # its id stays taken for the dedupe time


def test_deleted_id_is_free_after_the_dedupe_time(send: Sender, pg_line: Line) -> None:
    pg_line.put("a")
    held = pg_line.take()
    pg_line.ack(held)
    later = NOW + pg_line.topic.settings.dedupe_ms
    assert send(now_ms=later - 1) is None
    assert send(now_ms=later, due_ms=later) == later
    send.connection.commit()
    pg_line.now = later
    assert pg_line.take(lease_ms=LEASE_MS).version == later + 1
    assert pg_line.ack(held) == ["stale"]


def test_rollback_undoes_a_send(send: Sender, pg_line: Line) -> None:
    assert send() == NOW
    send.connection.rollback()
    assert "a" not in pg_line


@pytest.mark.parametrize(
    "named",
    [
        {"topic_name": "no such topic"},
        {"topic_name": None},
        {"message_id": ""},
        {"message_id": None},
        {"message_id": "é" * 257},
        {"message_id": "."},
        {"message_id": ".."},
        {"group_name": ""},
        {"group_name": None},
        {"group_name": "x" * 256},
        {"due_ms": -1},
        {"due_ms": None},
        {"due_ms": 253_402_300_800_000},
        {"now_ms": None},
        {"now_ms": -1},
        {"expires_ms": NOW},
        {"expires_ms": -1},
        {"message_body": bytes(1024 * 1024 + 1)},
        {"message_key": bytes(65_537)},
        {"message_headers": [["h", "v"]] * 257},
        {"message_headers": [["h", "v" * 65_537]]},
        {"message_headers": {"h": "v"}},
        {"message_headers": ["h", "v"]},
        {"message_headers": [[None, "v"]]},
        {"message_headers": [[]]},
        {"message_headers": [["h", "v", "more"]]},
        {"message_headers": [["x" * 256, "v"]]},
    ],
    ids=lambda named: str(named)[:50],
)
def test_invalid_argument_raises(send: Sender, pg_line: Line, named: dict[str, object]) -> None:
    with pytest.raises(psycopg.Error):
        send(**named)
    send.connection.rollback()
    assert "a" not in pg_line


def test_deleted_topic_refuses_a_send(send: Sender, pg_line: Line) -> None:
    pg_line.drop()
    with pytest.raises(psycopg.errors.RaiseException, match="no topic named"):
        send()


def test_dues_are_spread_as_the_store_spreads_them(
    pg: PostgresStore, caller: psycopg.Connection[tuple[Any, ...]]
) -> None:
    line = MakeLine(pg)(spread_ms=60_000)
    send = Sender(caller, line.topic.name)
    for each in IDS:
        send(message_id=each)
    send(message_id="expires", expires_ms=NOW + 7)
    caller.commit()
    assert [line[each].due for each in IDS] == [line.topic.spread(each, NOW) for each in IDS]
    assert line["expires"].due == line.topic.spread("expires", NOW, NOW + 7) < NOW + 7
