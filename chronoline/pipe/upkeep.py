"""The upkeep of a pipe, in a separate thread since it may take long.

It relays dead letters (in one of the live pipes), purges the store, commits positions to the input's own
tools, and measures the lag and the offset of the store's clock.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable

from chronoline.core.errors import ChronolineError
from chronoline.core.topic import Topic
from chronoline.pipe.clock_offset import ClockOffset
from chronoline.pipe.counters import Counters
from chronoline.pipe.dead_letters import Relay
from chronoline.pipe.inputs import Input
from chronoline.pipe.intake_progress import IntakeProgress
from chronoline.pipe.outputs.factory import open_output
from chronoline.pipe.settings import PipeSettings
from chronoline.runtime.clock import SystemClock
from chronoline.runtime.service import Service
from chronoline.stores.contract import Store
from chronoline.stores.members import pipe_members
from chronoline.stores.purge_pace import PurgePace

logger = logging.getLogger(__name__)

_PURGE_ROWS = 5_000
_EVERY_S = 1.0


class PipeUpkeep(Service):
    """The upkeep of one pipe, from `start` to `stop`."""

    def __init__(
        self,
        settings: PipeSettings,
        store: Store,
        topic: Topic,
        source: Input,
        counters: Counters,
        *,
        node: str,
    ) -> None:
        self._settings = settings
        self._store = store
        self._topic = topic
        self._input = source
        self._counters = counters
        self._node = node
        self._clock = SystemClock()
        self._pace = PurgePace(_EVERY_S)
        bound_ms = settings.clock_bound_ms
        self._store_offset = ClockOffset("the store", store.clock_ms, bound_ms=bound_ms)
        self._stop = threading.Event()
        self.intake = IntakeProgress(settings.intakes)
        self._committed: dict[int, int] = {}
        self._relay: Relay | None = None
        self._exits = contextlib.ExitStack()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        if self._thread is not None:
            return
        thread = threading.Thread(target=self._loop, name="chronoline-upkeep", daemon=True)
        thread.start()
        self._thread = thread  # after the start: a thread that did not start cannot be joined

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        self._exits.close()

    def _loop(self) -> None:
        while not self._stop.wait(_EVERY_S):
            for chore in (
                self._show_positions,
                self._purge,
                self._move_dead_letters,
                self._measure_clock,
            ):
                self._do(chore)
        self._do(
            self._show_positions
        )  # otherwise the input's tools would show a lag while the pipe is down

    def _do(self, chore: Callable[[], None]) -> None:
        try:
            chore()
        except ChronolineError as error:  # the next round tries again
            logger.warning("upkeep of pipe %r: %s", self._topic.name, error)
        except Exception:
            logger.exception("upkeep of pipe %r failed", self._topic.name)

    def _show_positions(self) -> None:
        accounts = [
            account
            for account in self._store.input_accounts(self._counters.source)
            if account.holder in (self._node, None)  # any pipe shows a partition without a holder
        ]
        mine = {account.partition: account.position for account in accounts}
        held = {each.partition: each.position for each in accounts if each.holder is not None}
        latest = self._input.latest()
        self.intake.look(held, latest, time.monotonic())
        self._counters.lag = sum(max(0, latest.get(each, 0) - mine[each]) for each in mine)
        moved = {each: mine[each] for each in mine if self._committed.get(each) != mine[each]}
        if moved:
            self._input.commit(moved)
            self._committed |= moved

    def _purge(self) -> None:
        if not self._pace.is_due:
            return
        removed, purged = 0, _PURGE_ROWS
        while purged == _PURGE_ROWS and not self._stop.is_set():
            purged = self._store.purge(limit=_PURGE_ROWS, now_ms=self._clock.now_ms())
            removed += purged
        self._pace.purged(removed)

    def _move_dead_letters(self) -> None:
        if self._settings.dead_letters is None:
            return
        if self._relay is None:
            output = self._exits.enter_context(
                open_output(
                    self._settings.dead_letters,
                    delivery_timeout_ms=self._settings.delivery_timeout_ms,
                )
            )
            self._relay = Relay(self._store, self._topic, output, self._clock.now_ms)
        now_ms = self._clock.now_ms()
        members = pipe_members(self._store, self._topic)
        live = [each.name for each in members if each.alive(now_ms)]
        if live and min(live) == self._node:
            self._counters.relayed += self._relay.run(self._stop.is_set)

    def _measure_clock(self) -> None:
        self._counters.clock_offset_ms = self._store_offset.measure()
