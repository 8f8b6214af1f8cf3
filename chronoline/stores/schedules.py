"""Schedules in a store: their rows, and the writes that create occurrences.

A schedule is a row, found by its name. `uid` and `version` name its state: each write gives the state that
it has seen, and is refused if another write was faster. Occurrences are created in the transaction that moves
the row's `next_ms` behind them. So each is created once, whichever brokers work and wherever one dies; and a
schedule that is paused, changed or deleted takes back in the same transaction what was created ahead.

The row of a deleted schedule stays for a minute, without a topic. Its `next_ms` is the moment up to which
occurrences may have been delivered; a new schedule of the name begins after it.
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
        cancel: Sequence[int] = (),
        now_ms: int,
    ) -> Schedule | None:
        """Creates a schedule, or puts it in the place of one of its name, and answers it as it is stored.

        Guard: the name is free and `next_ms` is later than `schedule_floor_ms`, or `instead_of` is the state
        of the schedule; else it answers None. The name of a schedule whose topic was deleted is free. In the
        same transaction it cancels the waiting occurrences of `instead_of` of the times `cancel`, on its
        topic, of its producer group. Messages that are leased stay.
        Raises `TopicNotFound` if the topic of the new schedule was deleted.
        """

    @abstractmethod
    def delete_schedule(
        self, schedule: Schedule, *, cancel: Sequence[int] = (), until_ms: int = 0, now_ms: int
    ) -> bool:
        """Deletes a schedule in this state, and cancels messages as `put_schedule` does.

        No later schedule of this name has an occurrence up to `until_ms`, nor up to the last of `cancel` that
        a consumer holds. False if the schedule has another state, or was deleted.
        """

    @abstractmethod
    def schedule_floor_ms(self, name: str) -> int:
        """The moment after which a new schedule of this name begins; 0 if none was deleted lately."""

    @abstractmethod
    def find_schedule(self, name: str) -> Schedule | None:
        """The schedule of this name, if there is one and its topic lives."""

    @abstractmethod
    def list_schedules(
        self, *, topic_uid: int | None = None, after: str = "", limit: int
    ) -> list[Schedule]:
        """Schedules by name, behind `after`, of one topic or of all that live; without their bodies."""

    @abstractmethod
    def count_schedules(self, topic_uid: int, *, most: int) -> int:
        """The number of schedules of a topic, counted up to `most`."""

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
        which cancelled them. Where the guards do not hold, or the mark is that of an ack, it is passed over.
        Each schedule at most once, and at most 10,000 occurrences in all.
        """
