"""Records of an input in phases: few statements, and the order of the records of one id."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as some

from chronoline.stores.inputs import Cancel, Entry, Rejected, Reschedule
from chronoline.stores.intake import phases_of
from tests.stores.line import NOW, new

_entries = some.lists(
    some.builds(
        lambda kind, name: kind(name),
        some.sampled_from(
            [new, Cancel, lambda name: Reschedule(name, NOW), lambda name: Rejected(new(name))]
        ),
        some.sampled_from("abcd"),
    ),
    max_size=30,
)


def _id(entry: Entry) -> str:
    return entry.message.id if isinstance(entry, Rejected) else entry.id


def test_alternating_kinds_are_two_phases() -> None:
    entries: list[Entry] = [
        each for number in range(1_000) for each in (new(f"m{number}"), Cancel(f"m{number}"))
    ]
    creates, cancels = entries[::2], entries[1::2]
    assert list(phases_of(entries).values()) == [creates, cancels]


def test_id_that_is_used_again_is_in_later_phases() -> None:
    once, again = new("x"), new("x")
    found = phases_of([once, Cancel("x"), again, Cancel("x"), new("y"), Cancel("y")])
    assert [[type(each) for each in found[phase]] for phase in sorted(found)] == [
        [type(once)] * 2,
        [Cancel] * 2,
        [type(again)],
        [Cancel],
    ]


@given(_entries)
def test_records_of_one_id_keep_their_order(entries: list[Entry]) -> None:
    found = phases_of(entries)
    written = [each for phase in sorted(found) for each in found[phase]]
    for name in "abcd":
        assert [each for each in written if _id(each) == name] == [
            each for each in entries if _id(each) == name
        ]
    assert len(written) == len(entries)


@given(_entries)
def test_phase_has_one_kind(entries: list[Entry]) -> None:
    found = phases_of(entries)
    assert all(len({type(each) for each in some}) == 1 for some in found.values())
