"""Who has a consumer's name, when there are many."""

from __future__ import annotations

import pytest

import chronoline.broker.grpc.consumers as module
from chronoline.broker.grpc.consumers import Roll
from chronoline.core.errors import ConsumerReplaced


class Stream:
    def __init__(self) -> None:
        self.told: list[str] = []

    def leave(self) -> None:
        self.told.append("leave")

    def go_away(self, code: str, message: str) -> None:
        self.told.append(code)


def test_whoever_had_the_name_leaves_and_does_not_get_it_back() -> None:
    roll, first, second = Roll(), Stream(), Stream()
    roll.join("c", "1", first)
    roll.join("c", "2", second)
    assert first.told == ["leave", "replaced"]
    with pytest.raises(ConsumerReplaced, match="'c' has connected anew"):
        roll.join("c", "1", Stream())
    roll.join("d", "1", Stream())  # of another name it is free
    assert second.told == []


def test_one_without_an_instance_takes_the_name_each_time() -> None:
    roll, first, second = Roll(), Stream(), Stream()
    roll.join("c", "", first)
    roll.join("c", "", second)
    roll.join("c", "", Stream())
    assert (first.told, second.told) == (["leave", "replaced"],) * 2


def test_the_end_of_an_older_stream_frees_nothing() -> None:
    roll, first, second = Roll(), Stream(), Stream()
    roll.join("c", "1", first)
    roll.join("c", "1", second)
    roll.leave("c", first)
    roll.join("c", "1", Stream())
    assert second.told == ["leave", "replaced"]


def test_it_remembers_so_many_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_REMEMBERED", 2)
    roll = Roll()
    for instance in "1234":
        roll.join("c", instance, Stream())
    roll.join("c", "1", Stream())  # too long ago: the versions of its leases fence it
    for instance in "34":
        with pytest.raises(ConsumerReplaced):
            roll.join("c", instance, Stream())
