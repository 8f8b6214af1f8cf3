"""Catch-up: processes one partition until it is up to date, in a function that a notifier started."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from chronoline.log.contract import Index, LogTopic
from chronoline.log.events import Event
from chronoline.log.group_reader import GroupReader
from chronoline.log.partition_reader import heads_of
from chronoline.log.processor import Handler

_BATCH_EVENTS = 500
_MOST_LOSSES = 3
"""How often storing the progress may fail before another function takes over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaughtUp:
    """The result of `read_until_current`."""

    handled: int
    current: bool
    """Whether the partition was up to date at the end. If not, time was up, or another reader has it."""
    sequence: int | None
    """The next event to read; None if another reader has it."""
    held_until_ms: int | None = None
    """When that reader's hold ends at the latest: if it has died, a function started then can go on."""


class CatchUp:
    """One run over a partition, with a new reader whenever the hold is lost."""

    def __init__(
        self,
        index: Index,
        topic: LogTopic,
        group: str,
        partition: int,
        *,
        open_reader: Callable[[], GroupReader],
        handler: Handler,
        stopping: Callable[[], bool],
    ) -> None:
        self._index = index
        self._topic = topic
        self._group = group
        self._partition = partition
        self._open_reader = open_reader
        self._handler = handler
        self._stopping = stopping
        self._handled = 0
        self._losses = 0

    def run(self) -> CaughtUp:
        while True:
            losses = self._losses
            sequence = self._work_through()
            if sequence is None:
                return CaughtUp(
                    handled=self._handled,
                    current=False,
                    sequence=None,
                    held_until_ms=self._held_until_ms(),
                )
            # A function started while we held the partition has stopped: later events are ours.
            end = heads_of(self._index, self._topic)[self._partition].next_sequence
            current = sequence >= end and self._losses == losses
            if current or self._stopping() or self._losses == _MOST_LOSSES:
                return CaughtUp(handled=self._handled, current=current, sequence=sequence)

    def _work_through(self) -> int | None:
        """Where it stopped; None if another reader has the partition."""
        reader = self._open_reader()
        try:
            while batch := reader.next_batch(_BATCH_EVENTS):
                hold, events = batch
                done = events[0].sequence
                try:
                    for event in events:
                        if self._stopping() or not reader.still_holds(hold):
                            break
                        self._handle(event)
                        done = event.sequence + 1
                finally:
                    noted = reader.done(hold, done)
                if not noted:
                    self._losses += 1
                if not noted or done <= events[-1].sequence:
                    return done
            return reader.sequence_of(self._partition)
        finally:
            reader.close()

    def _handle(self, event: Event) -> None:
        self._handler(event)
        self._handled += 1

    def _held_until_ms(self) -> int | None:
        for state in self._index.groups(self._topic.uid):
            if (state.group, state.partition) == (self._group, self._partition) and state.holder:
                return state.until_ms
        return None
