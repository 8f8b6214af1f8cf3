"""One unit of a lane's work: a window of time over a piece of the pipe's buckets. It does not use Spark.

The unit reads the live pipes from the store, takes its piece of this pipe's share, and runs a publishing lane
for the window. It depends on no earlier unit, so it may run in any process, and again.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

import pyarrow as pa

from chronoline.core.errors import StoreUnavailable
from chronoline.core.message import Header, LeasedMessage, Message
from chronoline.core.placement import deal_buckets, split_range
from chronoline.core.ranges import BucketRange
from chronoline.core.topic import Topic
from chronoline.delivery.lane_settings import LaneSettings
from chronoline.delivery.publishing_lane import Confirm, PublishingLane
from chronoline.pipe.outputs.contract import OutRecord
from chronoline.pipe.places import Place
from chronoline.pipe.receipts import Fired, as_batch
from chronoline.pipe.windows import SERVED, SKIPPED, STOPPED, Window, window_of
from chronoline.pipe.worker_cache import warm_output, warm_store
from chronoline.runtime.clock import SystemClock
from chronoline.runtime.timestamps import show_moment
from chronoline.stores.contract import Store
from chronoline.stores.members import Member, pipe_members

logger = logging.getLogger(__name__)

_REST_MS = 1_000
_STOPPED_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneWork:
    """The parameters of a lane's units, which are sent to the tasks."""

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
    """The time between two reads of the stop flag."""
    delivery_timeout_ms: int
    settings: LaneSettings
    kept_headers: tuple[str, str] | None = None
    """The names of the headers for id and deadline of a published record; None: it has neither."""

    def warm_up(self) -> None:
        """Opens the store and the output for the first unit of this process, and reads from the store."""
        store = warm_store(self.store)
        topic = store.get_topic(self.topic_uid)
        store.next_ts(topic.uid, topic.all_buckets)
        warm_output(self.output, delivery_timeout_ms=self.delivery_timeout_ms)

    def serve(self, piece: int, attempt: str) -> pa.RecordBatch:
        """Serves the lane's current or next window, and returns the receipts.

        If the store is unreachable, the window is skipped.
        """
        clock = SystemClock()
        window = window_of(self.lane, self.lanes, window_ms=self.window_ms, now_ms=clock.now_ms())
        fired: list[Fired] = []
        try:
            outcome = self._serve(window, piece, attempt, fired)
        except StoreUnavailable as error:
            logger.warning("a window is skipped: %s", error)
            # The return of a store has no event, and a new task costs more than this wait.
            time.sleep(clock.seconds_until(min(window.end_ms, clock.now_ms() + _REST_MS)))
            outcome = SKIPPED
        return as_batch(fired, outcome=outcome, window=window.number, node=self.node)

    def _serve(self, window: Window, piece: int, attempt: str, fired: list[Fired]) -> str:
        store = warm_store(self.store)
        warm = warm_output(self.output, delivery_timeout_ms=self.delivery_timeout_ms)
        topic = store.get_topic(self.topic_uid)
        stop = _StopFlag(self, store, topic)

        def publish(leased: LeasedMessage, confirm: Confirm) -> None:
            message = leased.message
            headers = (*self._kept(message), *message.headers)
            warm.output.publish(OutRecord(message.key, leased.body, headers), confirm)

        def on_fired(leased: LeasedMessage, fired_ms: int) -> None:
            fired.append(
                Fired(leased.message.id, leased.message.due, fired_ms * 1000, leased.redelivered)
            )

        if stop():
            time.sleep(_STOPPED_S)  # until the query is stopped
            return STOPPED

        def look() -> bool:
            stopping = stop()
            lane.cover(self._ranges(topic, stop.members, piece))
            return stopping

        with PublishingLane(
            store,
            topic,
            publish,
            consumer=f"{self.node}/{self.lane}.{piece}.{attempt}",
            ranges=self._ranges(topic, stop.members, piece),
            settings=self.settings,
            gate=warm.gate,
            on_fired=on_fired,
        ) as lane:
            report = lane.run(start_ms=window.start_ms, end_ms=window.end_ms, stopping=look)
        return SKIPPED if report.skipped else SERVED

    def _kept(self, message: Message) -> tuple[Header, ...]:
        if self.kept_headers is None:
            return ()
        of_id, of_deadline = self.kept_headers
        deadline = show_moment(message.due).encode()
        return ((of_id, message.id.encode()), (of_deadline, deadline))

    def _ranges(self, topic: Topic, members: list[Member], piece: int) -> list[BucketRange]:
        now_ms = SystemClock().now_ms()
        live = [each.name for each in members if each.alive(now_ms) and not each.stopping]
        share = deal_buckets(live, self.node, topic.settings.buckets)
        return [split_range(share, self.ranges)[piece]]


class _StopFlag:
    """Whether this pipe should stop, and its members; both are read from the store every `look_ms`."""

    def __init__(self, work: LaneWork, store: Store, topic: Topic) -> None:
        self._work = work
        self._store = store
        self._topic = topic
        self._look_at_s = 0.0
        self._stopping = False
        self.members: list[Member] = []

    def __call__(self) -> bool:
        if not self._stopping and time.monotonic() >= self._look_at_s:
            self._look_at_s = time.monotonic() + self._work.look_ms / 1000
            try:
                self.members = pipe_members(self._store, self._topic)
            except StoreUnavailable:
                return False  # the lane notices by itself
            me = next((each for each in self.members if each.name == self._work.node), None)
            # A node that is no longer a member has left, or has been dead for an hour.
            self._stopping = me is None or me.stopping
        return self._stopping
