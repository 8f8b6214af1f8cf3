"""Ids of new messages."""

from chronoline.core.ids import id_time
from chronoline.store import NewMessage, new_id, new_message
from chronoline.testing import ManualClock


def test_new_ids_differ_and_sort_by_time() -> None:
    clock = ManualClock()
    first = new_id(clock)
    clock.advance(ms=1)
    assert first < new_id(clock)
    assert id_time(first) == clock.now_ms() - 1
    assert len({new_id(clock) for _ in range(100)}) == 100


def test_only_a_message_without_an_id_gets_one() -> None:
    first, second = new_message(due=5, body=b"x"), new_message(due=5, body=b"x")
    assert first.id != second.id
    assert new_message(due=5, id="natural") == NewMessage(id="natural", due=5)
    everything = {"key": b"k", "headers": (("a", None),), "expires": 9, "producer_group": "g"}
    assert new_message(due=5, id="i", body=None, **everything) == NewMessage(  # type: ignore[arg-type]  # one dict for both
        id="i",
        due=5,
        body=None,
        **everything,  # type: ignore[arg-type]  # one dict for both
    )
