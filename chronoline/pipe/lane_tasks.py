"""The tasks of a pipe's lanes, known by their heartbeats in the store.

Each attempt of a task is a member of its own, in a group beside that of the pipes: it beats while it serves,
and shows its piece, its windows and its counts. So others notice a task that hangs, although its process, its
executor and its pipe look alive; and the counts survive the process. The last beat of a task says that it
has ended. Then its pipe adds the counts to its own and removes the member.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from chronoline.core.topic import Topic
from chronoline.pipe.counters import Counters, WindowCount
from chronoline.pipe.windows import Turn
from chronoline.stores.contract import Store
from chronoline.stores.members import FORGOTTEN_AFTER_MS, Member, lane_group

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneTask:
    """One attempt of a task of a lane, by its last heartbeat."""

    node: str
    lane: int
    piece: int
    attempt: int
    first: int
    """The number of its first window."""
    window: int
    """The window that it serves, or waits for, or served last."""
    ended: bool = False
    until_ms: int = 0
    counters: Counters = field(default_factory=Counters)
    process: str = ""
    """The machine and the number of its process, to find one that hangs."""
    suspects: dict[str, int] = field(default_factory=dict)
    """The holders from which it took over messages, and their number."""

    @property
    def name(self) -> str:
        """The name of the member, and of the consumer that holds its messages."""
        return f"{self.node}/{self.lane}.{self.piece}.{self.attempt}"

    @property
    def share(self) -> str:
        """The piece among those of all pipes, by which buckets are dealt."""
        return f"{self.node}/{self.piece}"

    @property
    def turn(self) -> Turn:
        return Turn(self.first, self.attempt)

    def serves(self, now_ms: int) -> bool:
        """Whether it serves, as far as its beats show."""
        return not self.ended and now_ms < self.until_ms

    def beat(self, store: Store, topic: Topic, now_ms: int) -> list[LaneTask]:
        """Shows this state in the store, and returns all tasks of the topic."""
        details = {
            "first": self.first,
            "window": self.window,
            "ended": self.ended,
            "process": self.process,
            "suspects": self.suspects,
            "counters": json.loads(self.counters.to_json()),
        }
        members = store.beat(
            lane_group(topic),
            self.name,
            until_ms=self.until_ms,
            details=json.dumps(details),
            now_ms=now_ms,
        )
        return list(_read(members))

    @classmethod
    def of(cls, member: Member) -> Self:
        """Raises ValueError or KeyError for a member of another form."""
        node, _, place = member.name.rpartition("/")
        lane, piece, attempt = map(int, place.split("."))
        details = json.loads(member.details)
        return cls(
            node=node,
            lane=lane,
            piece=piece,
            attempt=attempt,
            first=int(details["first"]),
            window=int(details["window"]),
            ended=bool(details["ended"]),
            until_ms=member.until_ms,
            counters=Counters.from_json(json.dumps(details["counters"])),
            process=str(details["process"]),
            suspects=dict(details["suspects"]),
        )


def lane_tasks(store: Store, topic: Topic) -> list[LaneTask]:
    """All tasks that fire a topic, also those that died less than an hour ago."""
    return list(_read(store.members(lane_group(topic))))


def _read(members: Iterable[Member]) -> Iterable[LaneTask]:
    for member in members:
        try:
            yield LaneTask.of(member)
        except (KeyError, TypeError, ValueError):
            continue  # of another version


# The accounts of a pipe


class TaskAccounts:
    """The counts of a pipe's tasks.

    The counts of ended tasks are added to the pipe's own, which name these tasks as included until their
    members are removed. So each message counts once, whatever is killed between two of these steps. A dead
    task that has not ended, since it was killed or hangs, is included before the store forgets it.
    """

    def __init__(self, node: str, pieces: int) -> None:
        self._node = node
        self._ended = Counters()
        self._included: set[str] = set()
        self._running: dict[str, Counters] = {}
        self._windows = WindowCount(pieces)
        self._suspects: dict[tuple[str, str], int] = {}

    def take(self, tasks: Sequence[LaneTask], now_ms: int) -> list[str]:
        """Takes in the tasks that the store knows; returns the members that can be removed after a beat."""
        mine = {task.name: task for task in tasks if task.node == self._node}
        removable = sorted(self._included & mine.keys())
        self._included &= mine.keys()
        for name, task in mine.items():
            if name in self._included:
                continue
            self._windows.note(task.piece, range(task.first, task.window + task.ended))
            self._log_suspects(task)
            self._running[name] = task.counters
            if task.ended or now_ms - task.until_ms > FORGOTTEN_AFTER_MS // 2:
                self._ended.add(self._running.pop(name))
                self._included.add(name)
                self._suspects = {
                    key: count for key, count in self._suspects.items() if key[0] != name
                }
        return removable

    def count_windows(self, before: int) -> None:
        self._windows.count(before, self._ended)

    def show(self, counters: Counters) -> str:
        """Sets the pipe's counters to those of all its tasks; returns the details of its next beat."""
        total = Counters()
        for each in (self._ended, *self._running.values()):
            total.add(each)
        counters.set_fired(total)  # at once: a scrape in between would see the counts drop
        told = replace(counters)
        told.set_fired(self._ended)
        details = json.loads(told.to_json())
        return json.dumps(details | {"included": sorted(self._included)})

    def _log_suspects(self, task: LaneTask) -> None:
        for suspect, count in task.suspects.items():
            more = count - self._suspects.get((task.name, suspect), 0)
            if more > 0:
                self._suspects[task.name, suspect] = count
                logger.warning(
                    "suspected failure of %s: %d of its messages were taken over by %s",
                    suspect,
                    more,
                    task.name,
                )


def node_counters(member: Member, tasks: Iterable[LaneTask]) -> Counters:
    """The counts of a pipe by its last beat, and by those of its tasks that it does not include."""
    counters = Counters.from_json(member.details)
    included = _included(member.details)
    for task in tasks:
        if task.node == member.name and task.name not in included:
            counters.add(task.counters)
    return counters


def _included(details: str) -> frozenset[str]:
    try:
        return frozenset(json.loads(details)["included"])
    except (KeyError, TypeError, ValueError):
        return frozenset()
