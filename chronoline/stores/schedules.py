"""Schedules in a store: their rows, and the writes that create occurrences.

A schedule is a row, found by its name. `uid` and `version` name its state: each write gives the state that
it has seen, and is refused if another write was faster. Occurrences are created in the transaction that moves
the row's `next_ms` behind them. So each is created once, whichever brokers work and wherever one dies; and a
schedule that is paused, changed or deleted takes back in the same transaction what was created ahead.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from chronoline.core.message import NewMessage
from chronoline.core.schedule import Schedule


class ScheduleStep(NamedTuple):
    """Occurrences of one schedule to create, and its first one after them."""

    schedule: Schedule
    """As it was read."""
    next_ms: int | None
    occurrences: Sequence[NewMessage]


class Stepped(NamedTuple):
    """The outcome of one step."""

    done: bool
    """False if the schedule has changed since it was read, or another process is changing it."""
    created: int = 0
    """Occurrences that became messages; the ids of the others are taken."""


class SchedulePlace(NamedTuple):
    """A place in the list of schedules by their next times."""

    next_ms: int
    name: str


class ScheduleStore(ABC):
    """The schedules of a store."""

    @abstractmethod
    def put_schedule(
        self,
        schedule: Schedule,
        *,
        instead_of: Schedule | None = None,
        cancel: Sequence[str] = (),
        now_ms: int,
    ) -> Schedule | None:
        """Creates a schedule, or puts it in the place of one of its name, and answers it as it is stored.

        Guard: the name is free, or `instead_of` is the state of the schedule; else it answers None. The name
        of a schedule whose topic was deleted is free. In the same transaction it cancels waiting messages of
        `instead_of`: by id, on its topic, of its producer group. Messages that are leased stay.
        Raises `TopicNotFound` if the topic of the new schedule was deleted.
        """

    @abstractmethod
    def delete_schedule(
        self, schedule: Schedule, *, cancel: Sequence[str] = (), now_ms: int
    ) -> bool:
        """Deletes a schedule in this state, and cancels messages as `put_schedule` does.

        False if the schedule has another state, or was deleted.
        """

    @abstractmethod
    def find_schedule(self, name: str) -> Schedule | None:
        """The schedule of this name, if there is one and its topic lives."""

    @abstractmethod
    def list_schedules(
        self, *, topic_uid: int | None = None, after: str = "", limit: int
    ) -> list[Schedule]:
        """Schedules by name, behind `after`, of one topic or of all that live; without their bodies."""

    @abstractmethod
    def due_schedules(
        self, before_ms: int, *, after: SchedulePlace | None = None, limit: int
    ) -> list[Schedule]:
        """Schedules that are not paused, whose next time is at most `before_ms`, by (next time, name).

        They begin behind `after`. Their topics may have been deleted.
        """

    @abstractmethod
    def next_schedule_ms(self, after_ms: int) -> int | None:
        """The earliest next time after a moment of the schedules that are not paused."""

    @abstractmethod
    def step_schedules(self, steps: Sequence[ScheduleStep], *, now_ms: int) -> list[Stepped]:
        """Creates occurrences and moves their schedules on, all in one transaction.

        A step is made if the schedule has the state that was read, is not paused and its topic lives. An
        occurrence replaces a message or a mark that has its id, under the guards of `create` with
        `if_exists="replace"`: no time is created twice of one life, so these are left from an earlier one,
        which cancelled them. Where the guards do not hold, it is passed over. Each schedule at most once, and
        at most 10,000 occurrences in all.
        """
