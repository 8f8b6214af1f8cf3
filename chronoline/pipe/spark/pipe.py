"""A pipe: from an input topic to the timeline, and from there to an output topic at the millisecond.

State. A pipe is a member of its group in the store: the others see its heartbeats, and a flag there
asks it to stop. It claims its share of the input's partitions in the store. The tasks of its lanes are
members of another group, whose heartbeats say who serves which buckets. No state that matters is in this
process or in Spark's checkpoints.

Work. One streaming query takes records in; one query for each lane fires messages. One thread sends the
heartbeats, which do not depend on the queries, and adds up the counts of the tasks. One keeps the claims and
restarts queries that failed or hang. One does the upkeep, which may take long:
the relay of dead letters, purging, committing positions to the input's own tools, measuring clocks.

Stopping. The tasks see the flag in the store, fire the messages that are due, and give back the rest. Then
the queries are ended, which kills a task without any clean-up. Then the claims are released and the pipe
leaves its group.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import chronoline.spark  # noqa: F401 - it refuses a Spark that is too old
from chronoline.core.addresses import AllowedHosts
from chronoline.core.errors import (
    ChronolineError,
    InvalidInput,
    StoreError,
    StoreUnavailable,
    TopicNotFound,
)
from chronoline.core.topic import Topic
from chronoline.delivery.lane_settings import LaneSettings
from chronoline.pipe.claims import InputClaims, source_name
from chronoline.pipe.contract import Contract
from chronoline.pipe.counters import Counters
from chronoline.pipe.inputs import open_input
from chronoline.pipe.intake_work import IntakeWork
from chronoline.pipe.lane_tasks import TaskAccounts, lane_tasks
from chronoline.pipe.lane_work import LaneWork
from chronoline.pipe.metrics import PipeCollector
from chronoline.pipe.receipts import RECEIPT_ERRORS, Receipts, receipts_url
from chronoline.pipe.settings import PipeSettings, fixed_problem, topic_settings
from chronoline.pipe.spark.intake_query import start_intake
from chronoline.pipe.spark.lane_query import start_lane
from chronoline.pipe.spark.queries import SPARK_IS_GONE, SupervisedQuery
from chronoline.pipe.spark.session import (
    PipeSession,
    build_session,
    is_stopped,
    session_problems,
    slots_needed,
)
from chronoline.pipe.spark.workers import warm_up
from chronoline.pipe.status import read_status
from chronoline.pipe.upkeep import PipeUpkeep
from chronoline.runtime.clock import SystemClock
from chronoline.runtime.metrics import MetricsServer
from chronoline.runtime.process_folder import ProcessFolder
from chronoline.runtime.service import Closable
from chronoline.stores.factory import open_store
from chronoline.stores.members import Member, lane_group, life_ms, pipe_group, pipe_members

logger = logging.getLogger(__name__)

_LOOK_AT_PARTITIONS_S = 30.0
_LOOK_FOR_END_S = 0.05
_PATIENCE_S = 20.0
"""The least time after which a query without beating tasks hangs: the first micro-batches take seconds."""
_INTAKE_WINDOW_MS = 86_400_000
"""The time for which a task takes records in. Between two tasks records wait for some tenths of a second."""
_INTAKE_STILL_S = 5.0
"""The least time after which an intake hangs that takes in nothing of what waits; usually it is `hold_ms`."""


class Pipe(Closable):
    """A running pipe. The constructor starts all its parts, and `close` ends them."""

    def __init__(self, settings: PipeSettings, spark: SparkSession | None = None) -> None:
        self.settings = settings
        self.node = str(uuid.uuid4())
        self.counters = Counters()
        self.stopped = threading.Event()
        """Set when the pipe is asked to stop, here or in the store, and when it failed permanently."""
        self.failed: str | None = None
        """The reason of a permanent failure; then others serve its share, and it should be started again."""
        self._clock = SystemClock()
        self._starts = 0
        self._threads: list[threading.Thread] = []
        self._closing = threading.Lock()
        self._ended = False
        with contextlib.ExitStack() as opened:
            self._open(opened, spark)
            self._exits = opened.pop_all()
        try:
            self._start_threads()
        except BaseException:  # also an interrupt: lanes already run, and only `close` ends them
            self.close()
            raise

    def _open(self, opened: contextlib.ExitStack, spark: SparkSession | None) -> None:
        settings = self.settings
        self._folder = opened.enter_context(ProcessFolder("chronoline-pipe-"))
        session = build_session(settings) if spark is None else PipeSession(spark, is_own=False)
        self._spark, self._own_session = session
        if self._own_session:
            opened.callback(self._stop_spark)
        problems = session_problems(self._spark, settings)
        if problems:
            raise InvalidInput("Spark cannot serve this pipe: " + "; ".join(problems))
        self._store = opened.enter_context(open_store(settings.store))
        self.topic = self._store.ensure_topic(
            settings.name, topic_settings(settings), now_ms=self._clock.now_ms()
        )
        if problem := fixed_problem(settings, self.topic):
            raise InvalidInput(problem)
        self._input = opened.enter_context(open_input(settings.input, settings.name))
        self.counters.source = source_name(settings, self._input.identity())
        self._partitions = self._input.partitions()
        self._look_at_partitions_s = time.monotonic() + _LOOK_AT_PARTITIONS_S
        self._patience_s = 2 * settings.hold_ms / 1000 + _PATIENCE_S
        self._accounts = TaskAccounts(self.node, settings.ranges)
        self._input_claims = InputClaims(
            self._store,
            self.topic,
            self._input,
            name=self.counters.source,
            node=self.node,
            start=settings.start,
            claim_ms=2 * settings.hold_ms,
        )
        if settings.metrics:
            opened.enter_context(self._serve_metrics(settings.metrics))
        self._upkeep = PipeUpkeep(
            settings,
            self._store,
            self.topic,
            self._input,
            self.counters,
            node=self.node,
        )
        logger.info("pipe %r starts as node %s", settings.name, self.node)
        warm_up(self._spark, self._work(0), self._intake_work(), slots_needed(settings) + 1)
        self._members = self._beat()  # when it can serve: the others give up its share now
        opened.callback(self._leave)
        self._intake = SupervisedQuery(f"the input of pipe {settings.name!r}", self._start_intake)
        opened.callback(self._intake.stop)
        self._intake.start()  # it waits for claims, which the supervisor gets
        self._lanes = [
            SupervisedQuery(
                f"lane {lane} of pipe {settings.name!r}", partial(self._start_lane, lane)
            )
            for lane in range(settings.lanes)
        ]
        self._beaten_s = [time.monotonic()] * settings.lanes  # when a task of each lane last beat
        for lane in self._lanes:
            opened.callback(lane.stop)
            lane.start()

    def _start_threads(self) -> None:
        self._upkeep.start()
        for name, work in (
            ("chronoline-heartbeat", self._show_life),
            ("chronoline-supervisor", self._look_after),
        ):
            thread = threading.Thread(target=self._repeat, args=(work,), name=name, daemon=True)
            thread.start()
            self._threads.append(thread)  # after the start: `close` joins it

    def close(self) -> None:
        """Ends the pipe: held messages are fired or given back. May be called twice."""
        with self._closing:
            self.stopped.set()
            if self._ended:
                return
            self._ended = True
            logger.info("pipe %r stops as node %s", self.settings.name, self.node)
            with self._exits:
                self._exits.callback(self._upkeep.stop)
                for thread in self._threads:
                    thread.join()
                self._end_lanes()

    # Starting

    def _work(self, lane: int) -> LaneWork:
        settings = self.settings
        return LaneWork(
            pipe=settings.name,
            node=self.node,
            store=settings.store,
            topic_uid=self.topic.uid,
            output=settings.output,
            lane=lane,
            lanes=settings.lanes,
            ranges=settings.ranges,
            window_ms=settings.window_ms,
            look_ms=settings.failure_detection_interval_ms,
            delivery_timeout_ms=settings.delivery_timeout_ms,
            receipts=receipts_url(settings.receipts) if settings.receipts else None,
            kept_headers=(settings.id_header, settings.deadline_header)
            if settings.keep_headers
            else None,
            settings=LaneSettings(
                hold_ms=settings.hold_ms,
                reserve_ahead_ms=settings.reserve_ahead_ms,
                poll_ms=settings.poll_interval_ms,
                timing_advance_ms=settings.timing_advance_ms,
            ),
        )

    def _intake_work(self) -> IntakeWork:
        settings = self.settings
        return IntakeWork(
            pipe=settings.name,
            node=self.node,
            store=settings.store,
            topic_uid=self.topic.uid,
            input=settings.input,
            source=self.counters.source,
            contract=contract_of(settings, self.topic),
            intakes=settings.intakes,
            window_ms=_INTAKE_WINDOW_MS,
            look_ms=settings.failure_detection_interval_ms,
            linger_ms=settings.intake_linger_ms,
            batch_records=settings.intake_records,
        )

    def _serve_metrics(self, address: str) -> MetricsServer:
        host, _, port = address.rpartition(":")
        collector = PipeCollector(
            self.settings.name,
            self.node,
            self.counters,
            lambda: read_status(self.settings, self._store, self._clock.now_ms()),
        )
        hosts = AllowedHosts((host, *self.settings.allowed_hosts))
        return MetricsServer(host.strip("[]"), int(port), collector, hosts=hosts)

    def _start_lane(self, lane: int) -> StreamingQuery:
        self._beaten_s[lane] = time.monotonic()
        return start_lane(self._spark, self._work(lane), checkpoint=self._new_folder().as_uri())

    def _start_intake(self) -> StreamingQuery:
        self._input_claims.skip_lost(self._clock.now_ms())
        return start_intake(
            self._spark, self._intake_work(), checkpoint=self._new_folder().as_uri()
        )

    def _new_folder(self) -> Path:
        """A folder for a checkpoint, on which nothing depends."""
        self._starts += 1
        return self._folder.subfolder(str(self._starts))

    # Supervising

    def _repeat(self, work: Callable[[], None]) -> None:
        while not self.stopped.is_set():
            try:
                work()
            except StoreUnavailable as error:
                logger.warning("the store cannot be reached, trying again: %s", error)
            except SPARK_IS_GONE as error:
                self._fail(f"Spark has died: {error}")
            except ChronolineError as error:
                logger.error("pipe %r: %s", self.settings.name, error)
            except Exception:
                logger.exception("pipe %r: supervising failed, trying again", self.settings.name)
            self.stopped.wait(self.settings.failure_detection_interval_ms / 1000)

    def _fail(self, why: str) -> None:
        self.failed = why
        logger.error("pipe %r ends: %s", self.settings.name, why)
        self.stopped.set()

    def _show_life(self) -> None:
        """Sends a heartbeat, in its own thread: other requests may take longer than a heartbeat is valid."""
        try:
            self._members = self._beat()
        except StoreUnavailable:
            self._beaten_s = [time.monotonic()] * self.settings.lanes  # nobody can beat
            raise
        if any(member.name == self.node and member.stopping for member in self._members):
            self.stopped.set()

    def _look_after(self) -> None:
        if is_stopped(self._spark):  # by its cluster, or by the owner of the session
            self._fail("Spark was stopped")
            return
        try:
            self._store.get_topic(self.topic.uid)
        except TopicNotFound:
            self._fail(f"its timeline {self.topic.name!r} was deleted")
            return
        for lane, query in enumerate(self._lanes):
            if query.hangs(self._beaten_s[lane], patience_s=self._patience_s):
                query.restart(f"none of its tasks has beaten for {self._patience_s:.0f} seconds")
            query.keep()
        self.counters.restarts = sum(each.restarts for each in (*self._lanes, self._intake))
        self._keep_input()
        if time.monotonic() >= self._look_at_partitions_s:
            self._look_at_partitions_s = time.monotonic() + _LOOK_AT_PARTITIONS_S
            self._partitions = self._input.partitions()

    def _keep_input(self) -> None:
        now_ms = self._clock.now_ms()
        kept = self._input_claims.renew(now_ms)
        members = self._members
        live = [each.name for each in members if each.alive(now_ms) and not each.stopping]
        changed = self._input_claims.share(live, self._partitions, now_ms)
        if changed or not kept:  # the tasks read their claims from the store
            logger.info(
                "node %s takes in the partitions %s", self.node, sorted(self._input_claims.claims)
            )
        restarts, still_s = self._intake.restarts, self._upkeep.intake.still_s
        try:
            if still_s > max(_INTAKE_STILL_S, self.settings.hold_ms / 1000):
                why = f"for {still_s:.0f} seconds it took in nothing, and records wait"
                self._intake.restart(why)
            self._intake.keep()
        finally:
            if self._intake.restarts > restarts:
                self._upkeep.intake.begin()

    def _beat(self) -> list[Member]:
        """Takes in the heartbeats of the tasks, and sends one of the pipe with the counts of all."""
        now_ms = self._clock.now_ms()
        settings = self.settings
        removable = self._take_counts(now_ms)
        # A window is counted when its tasks have had time for their last beats.
        lives_ms = life_ms(settings.failure_detection_interval_ms)
        settled_ms = now_ms - max(settings.window_ms, lives_ms)
        self._accounts.count_windows(settled_ms // settings.window_ms)
        self._store.beat(
            pipe_group(self.topic),
            self.node,
            until_ms=now_ms + lives_ms,
            details=self._accounts.show(self.counters),
            now_ms=now_ms,
        )
        for name in removable:
            self._store.leave(lane_group(self.topic), name)
        return pipe_members(self._store, self.topic)

    def _take_counts(self, now_ms: int) -> list[str]:
        tasks = lane_tasks(self._store, self.topic)
        for task in tasks:
            if task.node == self.node and task.serves(now_ms):
                self._beaten_s[task.lane] = time.monotonic()
        return self._accounts.take(tasks, now_ms)

    # Ending

    def _end_lanes(self) -> None:
        """Asks the tasks to stop through the store, waits for the running ones, and ends the queries."""
        stopped_ms = self._clock.now_ms()
        try:
            self._store.ask_to_stop(pipe_group(self.topic), self.node)
            self._input_claims.release()
        except StoreError as error:
            logger.warning("held messages are left to lapse: %s", error)
        if self.failed:
            self._intake.stop()
            return
        try:
            if not is_stopped(self._spark):
                self._await_lanes()
        except SPARK_IS_GONE as error:
            logger.warning("Spark ended first; held messages are left to lapse: %s", error)
        self._intake.stop()  # its tasks have ended: they see the flag, and have no claims
        self._count_last(stopped_ms)
        if self.settings.receipts:
            self._collect_receipts(self.settings.receipts)

    def _collect_receipts(self, folder: str) -> None:
        """Collects the last receipts of the tasks, which have ended."""
        try:
            Receipts(receipts_url(folder)).collect(0)
        except RECEIPT_ERRORS as error:
            logger.warning("some receipts remain in journals, for the next pipe: %s", error)

    def _count_last(self, stopped_ms: int) -> None:
        """Adds the last counts of the tasks, and the windows that were over when the pipe was stopped."""
        try:
            self._take_counts(self._clock.now_ms())
        except StoreError as error:
            logger.warning("the last counts are missing: %s", error)
            return
        self._accounts.count_windows(stopped_ms // self.settings.window_ms)
        self._accounts.show(self.counters)

    def _await_lanes(self) -> None:
        done = {lane: lane.done for lane in self._lanes}
        give_up_s = time.monotonic() + self._patience_s
        # The last known micro-batch may not be the last that ended. When two more are known, the one that
        # ran when the flag was set is over. Later ones do nothing.
        while any(lane.active and lane.done <= done[lane] + 1 for lane in self._lanes):
            if time.monotonic() >= give_up_s:
                logger.warning("some lanes did not end in time; their messages are left to lapse")
                break
            time.sleep(_LOOK_FOR_END_S)  # Spark reports progress only on request
        if self._own_session:
            # Spark would log every task that it interrupts.
            self._spark.sparkContext.setLogLevel("OFF")
        for lane in self._lanes:
            lane.stop()

    def _stop_spark(self) -> None:
        with contextlib.suppress(*SPARK_IS_GONE):  # it is already dead
            self._spark.stop()

    def _leave(self) -> None:
        try:
            for task in lane_tasks(self._store, self.topic):
                if task.node == self.node:
                    self._store.leave(lane_group(self.topic), task.name)
            self._store.leave(pipe_group(self.topic), self.node)
        except StoreError as error:
            logger.warning("the pipe stays a member until its heartbeat is over: %s", error)


def contract_of(settings: PipeSettings, topic: Topic) -> Contract:
    """The contract by which the records of the input are read."""
    return Contract(
        topic=settings.input.topic,
        producer_group=settings.name,
        id_header=settings.id_header,
        deadline_header=settings.deadline_header,
        action_header=settings.action_header,
        delay_ms=settings.delay_ms,
        early_cancel_ms=settings.early_cancel_ms,
        largest_value_bytes=topic.settings.largest_body_bytes,
    )
