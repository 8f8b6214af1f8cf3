"""Key, headers and body come back byte for byte, wherever an engine keeps them."""

from typing import Any

import pytest

from chronoline.core.message import Header
from chronoline.core.permissions import System
from chronoline.core.topic import TopicSettings
from tests.stores.line import NOW, Line, MakeLine, new

ALL_BYTES = bytes(range(256))
HEADERS: dict[str, tuple[Header, ...]] = {
    "none": (),
    "repeated": (("a", b"1"), ("b", b"2"), ("a", b"3"), ("a", b"1")),
    "unsorted, empty and missing values": (("z", b""), ("y", None), ("x", b"\0")),
    "empty names": (("", None), ("", b""), ("", b"x")),
    "strange names": (("größe 📅", ALL_BYTES), ("quote\"'\\{}[],:\n", b"'")),
    "as many as allowed": tuple((f"h{number}", bytes([number])) for number in range(256)),
    "large": (("large", ALL_BYTES * 200),),
}
BODIES = [None, b"", b"\0", ALL_BYTES, b"x" * 5_000, ALL_BYTES * 20, ALL_BYTES * 1_200]


def assert_kept(line: Line, expected: dict[str, Any]) -> None:
    """Looks at a message in every way there is."""
    expected = {"key": None, "headers": (), "body": b"", **expected}
    (page,) = line.store.select(line.uid, line.topic.all_buckets, limit=9, max_ts=NOW).messages
    (leased,) = line.reserve().leased
    bodies = line.store.bodies(line.uid, ["a"], actor=System(), now_ms=NOW)
    for message in (page, leased.message, line["a"]):
        assert message.key == expected["key"]
        assert message.headers == expected["headers"]
    assert leased.body == expected["body"]
    assert bodies.found == {"a": expected["body"]}


@pytest.mark.parametrize("case", HEADERS)
def test_headers_keep_order_names_and_values(line: Line, case: str) -> None:
    line.put("a", headers=HEADERS[case])
    assert_kept(line, {"headers": HEADERS[case]})


@pytest.mark.parametrize("key", [None, b"", b"\0", ALL_BYTES], ids=repr)
def test_a_key_may_be_missing_or_empty(line: Line, key: bytes | None) -> None:
    line.put("a", key=key)
    assert_kept(line, {"key": key})


@pytest.mark.parametrize("body", BODIES, ids=lambda body: f"{body and len(body)} bytes")
def test_a_body_may_be_missing_empty_or_large(line: Line, body: bytes | None) -> None:
    line.put("a", body=body)
    assert_kept(line, {"body": body})


@pytest.mark.parametrize("body_bytes", [5_000, 300_000])
def test_a_large_body_goes_through_everything(make_line: MakeLine, body_bytes: int) -> None:
    line = make_line(max_attempts=2)
    body = bytes(number % 251 for number in range(body_bytes))
    line.put("a", body=body)
    line.reschedule(("a", NOW))
    line.unreserve(line.take())
    line.release(line.take(), NOW + 10)
    line.now = NOW + 10
    line.retry(line.take(), NOW + 20)
    line.now = NOW + 20
    lease = line.take()
    assert [each.body for each in line.resume().leased] == [body]
    line.now = lease.until
    assert line.reserve().refused[0].refusal == "dead"
    found = line.store.bodies(line.uid, ["a"], actor=System(), now_ms=line.now).found
    assert found == {"a": body}
    line.redrive("a", due=line.now)
    (leased,) = line.reserve().leased
    assert leased.body == body


@pytest.mark.parametrize(("first", "second"), [(300_000, 5), (5, 300_000), (300_000, 300_001)])
def test_a_body_that_was_replaced_is_forgotten(line: Line, first: int, second: int) -> None:
    line.put("a", body=b"1" * first)
    line.create(new("a", body=b"2" * second), if_exists="replace")
    assert_kept(line, {"body": b"2" * second})


@pytest.mark.parametrize(("first", "second"), [(300_000, 5), (5, 300_000), (300_000, None)])
def test_a_body_of_an_id_that_was_created_again(
    make_line: MakeLine, first: int, second: int | None
) -> None:
    line = make_line(dedupe_ms=0)
    line.put("a", body=b"1" * first)
    line.cancel("a")
    body = None if second is None else b"2" * second
    line.put("a", body=body)
    assert_kept(line, {"body": body})


def test_a_body_at_the_limit_of_the_topic(make_line: MakeLine) -> None:
    line = make_line(largest_body_bytes=1_000)
    assert line.create(new("a", body=b"x" * 1_000), new("b", body=b"x" * 1_001)) == [
        "done",
        "invalid",
    ]
    largest = TopicSettings().largest_body_bytes
    assert make_line().create(new("a", body=b"x" * largest)) == ["done"]


def test_the_bodies_of_a_batch_are_not_mixed_up(line: Line) -> None:
    bodies = {f"m{number}": bytes([number]) * (number * 700) for number in range(50)}
    line.create(*(new(each, body=body) for each, body in bodies.items()))
    assert {each.lease.id: each.body for each in line.reserve().leased} == bodies
    found = line.store.bodies(line.uid, list(bodies), actor=System(), now_ms=NOW).found
    assert found == bodies


@pytest.mark.parametrize("message_id", ["x" * 512, "📅" * 128, "é", " ", "'; --", "a\nb", "%_\\"])
def test_a_natural_id_is_kept_as_given(line: Line, message_id: str) -> None:
    line.put(message_id)
    consumer = message_id[:63]  # as long as four bytes for each character allow
    (leased,) = line.reserve(consumer=consumer).leased
    assert (leased.lease.id, leased.lease.consumer) == (message_id, consumer)
    assert line.ack(leased.lease) == ["done"]
