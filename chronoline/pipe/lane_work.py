"""The work of a lane's task: a turn over a piece of the pipe's buckets. It does not use Spark.

The task reads the live pipes and tasks from the store, takes its share of the buckets, and runs a publishing
lane until another task relieves it (`pipe.windows`). It depends on no earlier task, so it may run in any
process, and again.

A thread beside the lane looks at the store every `look_ms`: it shows the task's life and counts, and reads
the stop flag and the other tasks. It shows life only while the lane's storing thread moves.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from chronoline.core.errors import ChronolineError, OutcomeUnknown, StoreUnavailable
from chronoline.core.message import Header, LeasedMessage, Message
from chronoline.core.placement import deal_buckets
from chronoline.core.ranges import BucketRange
from chronoline.core.topic import Topic
from chronoline.delivery.lane_settings import LaneSettings
from chronoline.delivery.publishing_lane import Confirm, PublishingLane
from chronoline.pipe.counters import Counters
from chronoline.pipe.lane_tasks import LaneTask
from chronoline.pipe.outputs.contract import OutRecord
from chronoline.pipe.places import Place
from chronoline.pipe.receipts import COLLECT_AFTER_S, RECEIPT_ERRORS, Fired, Receipts
from chronoline.pipe.windows import Term, first_window, term_of
from chronoline.pipe.worker_cache import warm_output, warm_store
from chronoline.runtime.clock import SystemClock
from chronoline.runtime.timestamps import show_moment
from chronoline.stores.contract import Store
from chronoline.stores.members import life_ms, pipe_members

logger = logging.getLogger(__name__)

_REST_S = 1.0
_STOPPED_S = 0.1
_LOOKS_AHEAD = 2
"""A task decides to go on this many looks before a reservation reaches beyond its end."""
_MOST_SUSPECTS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneWork:
    """The parameters of a lane's tasks, which are sent to them."""

    pipe: str
    node: str
    store: str
    topic_uid: int
    output: Place
    lane: int
    lanes: int
    ranges: int
    window_ms: int
    look_ms: int
    """The time between two heartbeats of a task, with which it also reads the stop flag and the others."""
    delivery_timeout_ms: int
    settings: LaneSettings
    kept_headers: tuple[str, str] | None = None
    """The names of the headers for id and deadline of a published record; None: it has neither."""
    receipts: str | None = None
    """The URL of the folder for receipts; None: messages are only counted."""

    def warm_up(self) -> None:
        """Opens the store and the output for the first task of this process, and reads from the store."""
        store = warm_store(self.store)
        topic = store.get_topic(self.topic_uid)
        store.next_ts(topic.uid, topic.all_buckets)
        warm_output(self.output, delivery_timeout_ms=self.delivery_timeout_ms)

    def serve(self, piece: int, attempt: int) -> None:
        """Serves from the lane's current or next window until another task takes over, or the pipe stops."""
        try:
            store = warm_store(self.store)
            turn = _LaneTurn(self, store, store.get_topic(self.topic_uid), piece, attempt)
            if turn.is_stopping:
                turn.close_receipts()  # those of earlier tasks
                time.sleep(_STOPPED_S)  # until the query is stopped
                return
            turn.run()
        except (StoreUnavailable, OutcomeUnknown) as error:
            logger.warning("a window is skipped: %s", error)
            # The return of a store has no event, and a new task costs more than this wait.
            time.sleep(_REST_S)

    def record_of(self, leased: LeasedMessage) -> OutRecord:
        """The record that a message becomes."""
        message = leased.message
        headers = message.headers
        if self.kept_headers is not None:
            headers = (*_kept(message, *self.kept_headers), *headers)
        return OutRecord(message.key, leased.body, headers)


class _LaneTurn:
    """One task of a lane, from its first heartbeat to its last."""

    def __init__(
        self, work: LaneWork, store: Store, topic: Topic, piece: int, attempt: int
    ) -> None:
        self._work = work
        self._store = store
        self._topic = topic
        self._clock = SystemClock()
        self._life_ms = life_ms(work.look_ms)
        first = first_window(
            work.lane, work.lanes, window_ms=work.window_ms, now_ms=self._clock.now_ms()
        )
        self._task = LaneTask(
            node=work.node,
            lane=work.lane,
            piece=piece,
            attempt=attempt,
            first=first,
            window=first,
            process=f"{socket.gethostname()}:{os.getpid()}",
        )
        self._counters = Counters()
        self._counting = threading.Lock()
        self._receipts = None if work.receipts is None else Receipts(work.receipts)
        self._lane: PublishingLane | None = None
        self._over = threading.Event()
        self._moved_s = time.monotonic()  # when the lane last asked whether to stop
        self.is_stopping = False
        self._looking_lock = threading.Lock()
        self._term = Term(0, 0)
        self._ranges: list[BucketRange] = []
        self._look()

    def run(self) -> None:
        work = self._work
        warm = warm_output(work.output, delivery_timeout_ms=work.delivery_timeout_ms)
        send = warm.output.publish

        def publish(leased: LeasedMessage, confirm: Confirm) -> None:
            send(work.record_of(leased), confirm)

        with PublishingLane(
            self._store,
            self._topic,
            publish,
            consumer=self._task.name,
            ranges=self._ranges,
            settings=work.settings,
            gate=warm.gate,
            on_fired=self._note_fired,
        ) as lane:
            self._lane = lane
            try:
                with self._looking():
                    self._run_until_relieved(lane)
            finally:
                self._end()
                self.close_receipts()

    def _run_until_relieved(self, lane: PublishingLane) -> None:
        """Runs the lane, and again if a look that came late let a window end without a successor."""
        while not self.is_stopping:
            if self._is_over():
                self._look()
                if self._is_over():
                    return
            start_ms, end_ms = self._term
            lane.run(start_ms=min(start_ms, end_ms - 1), end_ms=end_ms, stopping=self._asked)

    def _is_over(self) -> bool:
        return self._term.end_ms <= self._clock.now_ms()

    def _note_fired(self, fired: Sequence[tuple[LeasedMessage, int]]) -> None:
        with self._counting:
            for leased, fired_ms in fired:
                late_ms = fired_ms - leased.message.due
                self._counters.add_fired(late_ms, redelivered=leased.redelivered)
        if self._receipts is not None:
            rows = [_receipt(*each) for each in fired]
            self._receipts.write(rows, self._task.node)

    def close_receipts(self) -> None:
        """Collects at once if the pipe stops, since a container's own journals end with it."""
        if self._receipts is None:
            return
        try:
            self._receipts.close(0 if self.is_stopping else COLLECT_AFTER_S)
        except RECEIPT_ERRORS as error:
            logger.warning("receipts of %s are not written yet: %s", self._task.name, error)

    def _asked(self) -> bool:
        self._moved_s = time.monotonic()
        return self.is_stopping

    # Looking at the store

    @contextmanager
    def _looking(self) -> Iterator[None]:
        thread = threading.Thread(target=self._look_on, name="chronoline-beat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def _look_on(self) -> None:
        while not self._over.wait(self._work.look_ms / 1000):
            if (time.monotonic() - self._moved_s) * 1000 > self._life_ms:
                continue  # the lane hangs: others should serve its share
            try:
                self._look()
            except ChronolineError:
                continue  # the lane notices by itself
            except Exception:
                logger.exception("the heartbeat of %s failed", self._task.name)

    def _look(self) -> None:
        """Shows life, and reads the stop flag, the term and the buckets of this task."""
        with self._looking_lock:
            now_ms = self._clock.now_ms()
            members = pipe_members(self._store, self._topic)
            leaving = {each.name for each in members if each.stopping}
            # A node that is no longer a member has left, or has been dead for an hour.
            self.is_stopping = self._task.node in leaving or all(
                each.name != self._task.node for each in members
            )
            if self.is_stopping:
                return
            tasks = self._state(now_ms).beat(self._store, self._topic, now_ms)
            live = [each for each in tasks if each.serves(now_ms) and each.node not in leaving]
            self._follow(live, now_ms)

    def _follow(self, live: Sequence[LaneTask], now_ms: int) -> None:
        work, mine, before = self._work, self._task, self._term
        settings = work.settings
        reach_ms = settings.reserve_ahead_ms + settings.timing_advance_ms
        others = [each.turn for each in live if each.share == mine.share and each.name != mine.name]
        self._term = term_of(
            mine.turn,
            others,
            window_ms=work.window_ms,
            lead_ms=reach_ms + _LOOKS_AHEAD * work.look_ms,
            now_ms=now_ms,
        )
        buckets = self._topic.settings.buckets
        self._ranges = [deal_buckets({each.share for each in live}, mine.share, buckets)]
        if self._lane is None:
            return
        self._lane.cover(self._ranges)
        if self._term != before:
            self._lane.move_window(*self._term)

    def _state(self, now_ms: int) -> LaneTask:
        served_ms = min(now_ms, self._term.end_ms - 1)
        with self._counting:
            counters = replace(self._counters, lateness=self._counters.lateness.copy())
        suspects = [] if self._lane is None else list(self._lane.suspects.items())
        return replace(
            self._task,
            window=max(self._task.first, served_ms // self._work.window_ms),
            until_ms=now_ms + self._life_ms,
            counters=counters,
            suspects=dict(suspects[:_MOST_SUSPECTS]),
        )

    def _end(self) -> None:
        """Shows the last counts. Without the store, those of the last heartbeat remain."""
        now_ms = self._clock.now_ms()
        try:
            state = replace(self._state(now_ms), ended=True, until_ms=now_ms)
            state.beat(self._store, self._topic, now_ms)
        except ChronolineError as error:
            logger.warning("the last counts of %s are not stored: %s", self._task.name, error)


def _kept(message: Message, of_id: str, of_deadline: str) -> tuple[Header, Header]:
    deadline = show_moment(message.due).encode()
    return (of_id, message.id.encode()), (of_deadline, deadline)


def _receipt(leased: LeasedMessage, fired_ms: int) -> Fired:
    return Fired(
        id=leased.message.id,
        version=leased.lease.version,
        due_ms=leased.message.due,
        fired_ms=fired_ms,
        redelivered=leased.redelivered,
    )
