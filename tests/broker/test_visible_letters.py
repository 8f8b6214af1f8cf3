"""Pages of what a principal may see, among much that it may not see."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from chronoline.broker.principals import Principal, visible_letters, visible_schedules
from chronoline.broker.schedules import ShownSchedule
from chronoline.core.message import DeadLetter
from chronoline.core.rights import Rights
from chronoline.core.schedule import Recurrence, Schedule
from chronoline.core.topic import Topic, TopicSettings

_TOPIC = Topic(uid=1, name="orders", settings=TopicSettings())


def _letter(number: int, group: str) -> DeadLetter:
    letter = DeadLetter.place(f"m{number:05}", number)
    return replace(letter, message=replace(letter.message, producer_group=group))


class Letters:
    """2,500 dead letters, every thousandth of them ours."""

    def __init__(self) -> None:
        self.calls = 0
        self._all = [_letter(each, "others" if each % 1_000 else "ours") for each in range(2_500)]

    async def dead_letters(
        self, uid: int, *, after: DeadLetter | None, limit: int
    ) -> list[DeadLetter]:
        assert uid == _TOPIC.uid
        self.calls += 1
        begin = 0 if after is None else after.died + 1
        return self._all[begin : begin + limit]


@pytest.mark.parametrize(("right", "calls"), [("produce:orders:ours", 1), ("observe", 1)])
def test_few_letters_among_many_cost_few_calls(right: str, calls: int) -> None:
    letters: Any = Letters()
    principal = Principal("shop", Rights.parse([right]))
    first = asyncio.run(visible_letters(letters, principal, _TOPIC, after=None, limit=1))
    assert [each.died for each in first] == [0]
    assert letters.calls == calls


def test_pages_leave_out_nothing() -> None:
    letters: Any = Letters()
    principal = Principal("shop", Rights.parse(["produce:orders:ours"]))
    found: list[int] = []
    after: DeadLetter | None = None
    while page := asyncio.run(visible_letters(letters, principal, _TOPIC, after=after, limit=1)):
        found += (each.died for each in page)
        after = page[-1]
    assert found == [0, 1_000, 2_000]
    assert letters.calls <= 10


class Schedules:
    """2,500 schedules of a topic, and their topic."""

    def __init__(self) -> None:
        self.calls = 0
        self._all = [
            Schedule(
                name=f"s{each:05}", topic_uid=_TOPIC.uid, recurrence=Recurrence(every_ms=1_000)
            )
            for each in range(2_500)
        ]

    async def page(self, *, topic_uid: int | None, after: str, limit: int) -> list[Schedule]:
        assert topic_uid is None
        self.calls += 1
        return [each for each in self._all if each.name > after][:limit]

    async def get(self, uid: int) -> Topic:
        assert uid == _TOPIC.uid
        return _TOPIC

    async def with_next(self, found: list[ShownSchedule]) -> list[ShownSchedule]:
        return found


@pytest.mark.parametrize(
    ("right", "found", "calls"),
    [("observe", 1, 1), ("observe:orders", 1, 1), ("observe:other", 0, 3), ("produce:other", 0, 3)],
)
def test_schedules_of_others_cost_few_calls(right: str, found: int, calls: int) -> None:
    schedules: Any = Schedules()
    principal = Principal("shop", Rights.parse([right]))
    page = asyncio.run(
        visible_schedules(schedules, schedules, principal, topic_uid=None, after="", limit=1)
    )
    assert len(page) == found
    assert schedules.calls == calls
