"""A primary of PostgreSQL and its standby, with producers and consumers of the library, under failovers.

Again and again the primary is lost, the standby is promoted, and gets a standby of its own. Producers and
consumers go on there: they ask again for answers that they did not get. The standby is synchronous. With
`lagging` it is behind for a while before each loss: then the answers of that time may be gone.

    python -m tests.torture failover [--seconds N] [--seed S]
    python -m tests.torture.failover [--seconds N] [--seed S]      with standbys that lag
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from chronoline.core.topic import TopicSettings
from chronoline.stores.postgres import PostgresStore
from chronoline.testing.postgres import PostgresServer
from chronoline_bench.servers.postgres_standby import (
    PostgresStandby,
    require_standby,
    waive_standby,
)
from tests.torture.brokers.doors import now_ms
from tests.torture.brokers.stage import record_rows
from tests.torture.failover.actors import TOPIC, Actor, Consumer, Producer, Site
from tests.torture.history import DONE, Recorder

_SETTINGS = TopicSettings(dedupe_ms=86_400_000, max_attempts=1_000)
_PRODUCERS, _CONSUMERS = 2, 4
_CALM_S, _BEHIND_S = 1.5, 0.5
"""How long all is well before each failover, and how long a standby is behind that lags."""
_LOOK_S = 0.1
_DRAIN_S = 60.0

Report = Callable[[str], None]


def run(folder: Path, *, seconds: float, seed: int, report: Report, lagging: bool = False) -> None:
    """Records a history of about `seconds`, with one failover at least, and of the rows that are left."""
    recorder = Recorder(folder, "director")
    try:
        with ExitStack() as servers:
            director = _Director(folder, recorder, servers, seed, lagging=lagging)
            try:
                director.begin()
                ends_s = time.monotonic() + seconds
                while True:
                    director.fail_over()
                    report("failover: the standby has taken over")
                    if time.monotonic() > ends_s:
                        break
                director.drain()
            finally:
                director.end()
            record_rows(recorder, director.site.url)
    finally:
        recorder.close()


class _Director:
    """The servers, and the threads that use them."""

    def __init__(
        self, folder: Path, recorder: Recorder, servers: ExitStack, seed: int, *, lagging: bool
    ) -> None:
        self._folder = folder
        self._recorder = recorder
        self._servers = servers
        self._chance = random.Random(seed)
        self._lagging = lagging
        self._count = 0
        self._primary: PostgresServer = servers.enter_context(PostgresServer(folder / "postgres0"))
        self._standby = self._new_standby()
        self.site = Site(self._primary.url(), self._create_topic())
        self._threads = ThreadPoolExecutor(_PRODUCERS + _CONSUMERS)
        kinds: list[type[Actor]] = [Producer] * _PRODUCERS + [Consumer] * _CONSUMERS
        self._actors = [
            kind(
                folder,
                f"{kind.__name__.lower()}{number}",
                self.site,
                self._chance.getrandbits(32),
            )
            for number, kind in enumerate(kinds)
        ]

    def begin(self) -> None:
        for actor in self._actors:
            if isinstance(actor, Consumer):
                who = actor.recorder.process
                self._recorder.record("life", who=who, state="running", consumers=[actor.name])
            actor.begin(self._threads)

    def end(self) -> None:
        self.site.is_over.set()
        self._threads.shutdown()
        for actor in self._actors:
            actor.close()

    def fail_over(self) -> None:
        """Loses the primary, and promotes its standby, which then gets a standby of its own."""
        self._rest(_CALM_S * self._chance.uniform(0.5, 1.5))
        if self._lagging:
            self._recorder.record("standby", state="behind")
            self._standby.kill()  # paused, it would find in its socket what it has missed
            waive_standby(self._primary)
            self._rest(_BEHIND_S)
        self._recorder.fault("lose the primary")
        self._recorder.record("standby", state="lost")
        self._primary.kill()
        if self._lagging:
            self._standby.start()
        self._standby.promote()
        self._primary = self._standby
        self._recorder.record("standby", state="promoted")
        self.site.url = self._primary.url()
        self._standby = self._new_standby()

    def drain(self) -> None:
        """Waits until consumers have acked all messages."""
        self.site.is_calm.set()
        left = 1
        with PostgresStore(self.site.url) as store:
            give_up = time.monotonic() + _DRAIN_S
            while left and time.monotonic() < give_up:
                self._rest(_LOOK_S)
                left = len(store.select_between(self.site.topic_uid, limit=100).messages)
        self._recorder.record("drained", stage=TOPIC.split("-")[0], left=left)

    def _create_topic(self) -> int:
        call = self._recorder.call("create_topic", topic=TOPIC)
        with PostgresStore(self._primary.url()) as store:
            topic = store.create_topic(TOPIC, _SETTINGS, now_ms=now_ms())
        self._recorder.outcome(call, DONE, uid=topic.uid)
        return topic.uid

    def _new_standby(self) -> PostgresStandby:
        self._count += 1
        standby = PostgresStandby(self._folder / f"postgres{self._count}", self._primary)
        self._servers.enter_context(standby)
        require_standby(self._primary)
        return standby

    def _rest(self, seconds: float) -> None:
        """Waits, and raises what ended the thread of an actor."""
        self.site.is_over.wait(seconds)
        for actor in self._actors:
            actor.check()
