"""Events come out of a chunk byte for byte, and damage is noticed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronoline.log.events import NewEvent
from chronoline.log.format import DamagedObject, pack_chunk, unpack_chunk

NOW = 1_800_000_000_000
some_bytes = st.none() | st.binary(max_size=30)
headers = st.lists(st.tuples(st.text(max_size=5), some_bytes), max_size=4).map(tuple)
events = st.builds(
    NewEvent,
    value=some_bytes,
    key=some_bytes,
    headers=headers,
    ts=st.none() | st.integers(0, NOW),
)


def unpack(data: bytes) -> list[NewEvent]:
    return [
        NewEvent(value=event.value, key=event.key, headers=event.headers, ts=event.ts)
        for event in unpack_chunk(data, topic="t", partition=3, first_sequence=7, name="o")
    ]


@given(st.lists(events, max_size=5))
def test_events_round_trip(new: list[NewEvent]) -> None:
    expected = [
        NewEvent(
            value=event.value,
            key=event.key,
            headers=event.headers,
            ts=NOW if event.ts is None else event.ts,
        )
        for event in new
    ]
    assert unpack(pack_chunk(new, NOW)) == expected


def test_sequences_count_from_the_first() -> None:
    data = pack_chunk([NewEvent(value=b"a"), NewEvent(value=b"b")], NOW)
    found = unpack_chunk(data, topic="t", partition=3, first_sequence=7, name="o")
    assert [(event.partition, event.sequence) for event in found] == [(3, 7), (3, 8)]


@given(st.data())
def test_changed_or_missing_byte_is_damage(
    data: st.DataObject,
) -> None:
    chunk = pack_chunk([NewEvent(value=b"hello", key=b"k")], NOW)
    place = data.draw(st.integers(0, len(chunk) - 1))
    if data.draw(st.booleans()):
        broken = chunk[:place]
    else:
        broken = chunk[:place] + bytes([chunk[place] ^ 1]) + chunk[place + 1 :]
    with pytest.raises(DamagedObject, match="'the-object'"):
        unpack_chunk(broken, topic="t", partition=0, first_sequence=0, name="the-object")
