"""Two lanes that take turns over the same buckets, an output and a store that are slower than the load.

Nothing is killed and nothing fails. First the output acknowledges later than a lease lasts, then PostgreSQL
runs for a small part of the time, for longer than several leases. In the end all is quick again.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from chronoline.core.errors import ChronolineError
from chronoline.core.message import NewMessage
from chronoline.core.topic import Topic
from chronoline.runtime.child_process import LineProcess
from chronoline.runtime.message_ids import new_id
from chronoline.stores.contract import Store
from chronoline.stores.factory import open_store
from chronoline.testing.postgres import PostgresServer
from tests.torture.environment import child_environment
from tests.torture.history import Recorder
from tests.torture.overload.judge import END, TAKEN_IN
from tests.torture.overload.program import HOLD_MS, LANES

Report = Callable[[str], None]

_ROOT = Path(__file__).parents[3]
_SLOW_OUTPUT_MS = 3 * HOLD_MS // 2
_CALM_S = 1.0
_LEAST_S = 2.5 * HOLD_MS / 1000
"""Each overload lasts for longer than two leases."""
_RECOVERY_S = 4.0
_RUNS_S, _STANDS_S = 0.03, 0.3
"""The turns of the slow store."""
_DRAIN_S = 60.0
_TURN_S = 0.1
_PER_TURN = 10
_AHEAD_MS = (200, 1_500)
_HOUR_MS = 3_600_000


def run(folder: Path, *, seconds: float, seed: int, report: Report) -> None:
    """Records a history of about `seconds`, at least of the time that both overloads take."""
    play(folder, seconds=seconds, seed=seed, report=report)


def play(folder: Path, *, seconds: float, seed: int, report: Report, defect: str = "") -> None:
    """`defect` is planted into the lanes, to be found: then the output alone is slow."""
    recorder, server = Recorder(folder, "director"), PostgresServer(folder / "postgres")
    server.start()
    url = server.create_database("overload")
    try:
        with open_store(url) as store:
            topic = store.create_topic("overload", now_ms=_now_ms())
            lanes = [_lane(folder, url, topic, place, defect) for place in range(LANES)]
            try:
                for lane in lanes:
                    lane.start()
                load = _Load(store, topic, recorder, seed)
                each_s = max(_LEAST_S, seconds / 2 - _CALM_S)
                _slow_output(recorder, lanes, each_s, report)
                if not defect:
                    _slow_store(recorder, server, each_s, report)
                report("all is quick again")
                time.sleep(_RECOVERY_S)
                load.stop()
                _drain(store, topic)
            finally:
                for lane in lanes:
                    lane.stop()
            letters = store.dead_letters(topic.uid, limit=1_000)
            dead = [letter.message.id for letter in letters]
            recorder.record(END, waiting=_left(store, topic), dead=dead)
    finally:
        server.stop()
        recorder.close()


def _lane(folder: Path, url: str, topic: Topic, place: int, defect: str) -> LineProcess:
    given = {
        "folder": str(folder),
        "process": f"lane{place}",
        "store": url,
        "topic": topic.uid,
        "place": place,
        "defect": defect,
    }
    return LineProcess(
        [sys.executable, "-m", "tests.torture.overload.program", json.dumps(given)],
        log_path=folder / f"lane{place}.log",
        environment=child_environment(),
        cwd=_ROOT,
        reads_output=False,
    )


def _slow_output(
    recorder: Recorder, lanes: list[LineProcess], each_s: float, report: Report
) -> None:
    time.sleep(_CALM_S)
    report("the output is slow")
    recorder.fault("the output is slow")
    for lane in lanes:
        lane.write_line(str(_SLOW_OUTPUT_MS))
    time.sleep(each_s)
    for lane in lanes:
        lane.write_line("0")
    recorder.fault("the output is quick")
    time.sleep(_CALM_S)


def _slow_store(recorder: Recorder, server: PostgresServer, each_s: float, report: Report) -> None:
    report("the store is slow")
    recorder.fault("the store is slow")
    until = time.monotonic() + each_s
    while time.monotonic() < until:
        server.pause()
        time.sleep(_STANDS_S)
        server.resume()
        time.sleep(_RUNS_S)
    recorder.fault("the store is quick")


class _Load:
    """Messages that fall due soon, at a steady pace, until `stop`."""

    def __init__(self, store: Store, topic: Topic, recorder: Recorder, seed: int) -> None:
        self._store, self._topic, self._recorder = store, topic, recorder
        self._chance = random.Random(seed)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._send)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _send(self) -> None:
        while not self._over.wait(_TURN_S):
            now_ms = _now_ms()
            dues = [now_ms + self._chance.randint(*_AHEAD_MS) for _ in range(_PER_TURN)]
            messages = [NewMessage(id=new_id(), due=due) for due in dues]
            try:
                outcomes = self._store.create(self._topic.uid, messages, now_ms=now_ms)
            except ChronolineError:
                # Of unknown outcome: what was created all the same is an input.
                found = self._look(messages)
            else:
                found = [outcome.id for outcome in outcomes if outcome.done]
            self._recorder.record(TAKEN_IN, ids=found)

    def _look(self, messages: list[NewMessage]) -> list[str]:
        while True:
            try:
                return list(
                    self._store.lookup(self._topic.uid, [message.id for message in messages])
                )
            except ChronolineError:
                time.sleep(_TURN_S)  # the store is slow


def _drain(store: Store, topic: Topic) -> None:
    give_up = time.monotonic() + _DRAIN_S
    while _left(store, topic) and time.monotonic() < give_up:
        time.sleep(_TURN_S)  # acks send no signal


def _left(store: Store, topic: Topic) -> int:
    now_ms = _now_ms()
    counts = store.count(
        topic.uid, topic.all_buckets, start=0, end=now_ms + _HOUR_MS, now_ms=now_ms
    )
    return counts.total


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
