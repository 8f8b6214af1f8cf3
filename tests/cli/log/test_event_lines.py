"""Events as lines: they round-trip, and bad lines are refused with the reason."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronoline.cli.log.events import from_line, to_line
from chronoline.core.errors import InvalidInput
from chronoline.core.limits import MAX_TIME_MS
from chronoline.log import Event, NewEvent

some_bytes = st.none() | st.binary() | st.text().map(str.encode)
events = st.builds(
    Event,
    topic=st.just("t"),
    partition=st.integers(0, 4_095),
    sequence=st.integers(0),
    ts=st.integers(0, MAX_TIME_MS),
    key=some_bytes,
    value=some_bytes,
    headers=st.lists(st.tuples(st.text(), some_bytes), max_size=4).map(tuple),
)


@given(events)
def test_event_round_trips_on_one_line(event: Event) -> None:
    line = to_line(event)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert from_line(line) == NewEvent(
        value=event.value,
        key=event.key,
        headers=event.headers,
        partition=event.partition,
        ts=event.ts,
    )


def test_line_is_readable() -> None:
    event = Event(
        topic="orders",
        partition=3,
        sequence=17,
        ts=1_769_860_800_007,
        key=b"user-1",
        value="Grüße".encode(),
        headers=(("a", b"\xff"), ("b", None)),
    )
    assert to_line(event).decode() == (
        '{"topic":"orders","partition":3,"sequence":17,"ts":"2026-01-31T12:00:00.007Z",'
        '"key":"user-1","value":"Grüße","headers":[["a",{"base64":"/w=="}],["b",null]]}\n'
    )


def test_value_alone_is_an_event() -> None:
    assert from_line(b'{"value": "v"}') == NewEvent(value=b"v")
    assert from_line(b'{"value": null, "key": null, "headers": null, "ts": null}') == NewEvent(
        value=None
    )


def test_ts_may_be_a_number() -> None:
    assert from_line(b'{"value": "v", "ts": 7}').ts == 7


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "not JSON: .*; --format lines takes plain values"),
        ("hello", "not JSON: "),
        ("[" * 100_000, "not JSON: "),
        ('"hello"', "not a JSON object such as .*; --format lines takes plain values"),
        ("7", "not a JSON object"),
        ("{}", "value is missing; it may be null"),
        ('{"vlaue": "v"}', "field 'vlaue' is none of key, value, headers, partition, ts"),
        ('{"value": 7}', "value must be text, null, or "),
        ('{"value": {"base64": "AA==", "x": 1}}', "value must be text, null, or "),
        ('{"value": {"base64": "A"}}', "value is not base64: "),
        ('{"value": {"base64": "ä"}}', "value is not base64: "),
        ('{"value": "\\ud800"}', "value is not valid UTF-8"),
        ('{"value": "v", "key": ["k"]}', "key must be text, null, or "),
        ('{"value": "v", "headers": {"a": "1"}}', "headers must be pairs such as "),
        ('{"value": "v", "headers": [["a"]]}', "headers must be pairs such as "),
        ('{"value": "v", "headers": ["ab"]}', "headers must be pairs such as "),
        ('{"value": "v", "headers": [["a", 1]]}', "header 'a' must be text, null, or "),
        ('{"value": "v", "ts": "yesterday"}', "ts 'yesterday' is not a time"),
    ],
)
def test_bad_line_is_refused_with_the_reason(line: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=f"^{said}"):
        from_line(line.encode())


def test_line_outside_utf_8_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"^not JSON: .*can't decode byte 0xff"):
        from_line(b'{"value": "\xff"}')


def test_every_printed_field_is_accepted() -> None:
    event = Event(topic="t", partition=0, sequence=0, ts=0, key=None, value=b"", headers=())
    assert set(json.loads(to_line(event))) == {
        "topic",
        "partition",
        "sequence",
        "ts",
        "key",
        "value",
        "headers",
    }
    assert from_line(to_line(event)).value == b""
