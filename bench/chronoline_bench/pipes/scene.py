"""Two topics, what stands between them, and who watches: from a load to what became of it.

A scene counts over its whole life: what was lost or came twice is settled when it is closed, since a message
may come late, and once more after its load is over.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Generic, TypeVar

from chronoline.core.closing import Closing
from chronoline.core.errors import ChronolineError
from chronoline.runtime.control import Control
from chronoline_bench.arrivals import Arrivals
from chronoline_bench.pipes import loader, watcher
from chronoline_bench.pipes.child import Child
from chronoline_bench.pipes.loader import Load, Loaded
from chronoline_bench.pipes.passage import Passage, count_up
from chronoline_bench.pipes.records import count_pairs, read_pairs
from chronoline_bench.pipes.sides import Side, Topics
from chronoline_bench.servers.kafka import KafkaServer
from chronoline_bench.tally import Tally

PARTITIONS = 4
QUIET_S = 20.0
"""What has not come when nothing has come for so long is lost: a dead holder's time, and that of a retry."""
_LOOK_EVERY_S = 0.2
_START_S = 180.0
_LOAD_S = 600.0
_SETTLE_S = 1.0
_LAST_WORDS = 2_000

AnySide = TypeVar("AnySide", bound=Side)


class Scene(Closing, Generic[AnySide]):
    """The topics of one side, with a watcher at the output from the beginning."""

    def __init__(
        self, kafka: KafkaServer, side: AnySide, folder: Path, name: str, tally: Tally
    ) -> None:
        self.side = side
        self.name = name
        self._tally = tally
        self._folder = folder / name
        self._folder.mkdir()
        self._topics = Topics(bootstrap=kafka.bootstrap, input=f"{name}.in", output=f"{name}.out")
        for topic in (self._topics.input, self._topics.output):
            kafka.create_topic(topic, PARTITIONS)
        self._seen_path = self._folder / "seen"
        self._log_path = self._folder / "said"
        self._watcher = Child(
            watcher.__name__,
            *(self._topics.bootstrap, self._topics.output, str(self._seen_path)),
            log_path=self._log_path,
        )
        self._watcher.await_line(watcher.READY, _START_S)
        self._arrivals = Arrivals()
        self._read = 0
        self._due_ms: dict[int, int] = {}
        self._next = 0
        self._loads = 0
        self._closed = False

    @property
    def last_words(self) -> str:
        """What its processes said at last, for whoever looks for a fault."""
        return self._log_path.read_text(errors="replace")[-_LAST_WORDS:]

    # What a case does

    @contextmanager
    def serving(self, nodes: int = 1) -> Iterator[None]:
        """Within the block so many nodes run; a few messages have gone through them."""
        with ExitStack() as stack:
            started = []
            for _ in range(nodes):
                started.append(stack.enter_context(self.side.start(self._topics, self._log_path)))
            for node in started:
                node.await_line("ready", _START_S)
            self.run(count=200, rate=200, shortest_ms=200, longest_ms=1_500)
            yield

    def run(
        self,
        *,
        count: int,
        rate: float = 0,
        shortest_ms: int = 3_000,
        longest_ms: int = 10_000,
        due_ms: int | None = None,
    ) -> Passage:
        """One load, and the wait until it has come out, or nothing comes any more."""
        return self.begin(
            count=count, rate=rate, shortest_ms=shortest_ms, longest_ms=longest_ms, due_ms=due_ms
        ).finish()

    def begin(
        self,
        *,
        count: int,
        rate: float = 0,
        shortest_ms: int = 3_000,
        longest_ms: int = 10_000,
        due_ms: int | None = None,
    ) -> Flight:
        """A load that is published from now on, by its own process, while the caller does something else."""
        self._loads += 1
        load = Load(
            bootstrap=self._topics.bootstrap,
            topic=self._topics.input,
            path=str(self._folder / f"load-{self._loads}"),
            first=self.reserve(count),
            count=count,
            rate=rate,
            shortest_ms=shortest_ms,
            longest_ms=longest_ms,
            due_ms=due_ms,
            scene=self.name,
        )
        return Flight(self, load, self._log_path)

    def reserve(self, count: int) -> int:
        """The first of so many numbers that nobody else has."""
        self._next += count
        return self._next - count

    # What a flight asks

    def expect(self, due_ms: dict[int, int]) -> None:
        """These are to come out."""
        self._due_ms |= due_ms

    def await_arrival(self, numbers: dict[int, int]) -> Arrivals:
        """Waits until all have come, or nothing more comes. Looks at sizes only, while something may come."""
        quiet_until = time.monotonic() + QUIET_S + _longest_wait_s(numbers)
        size = count_pairs(self._seen_path)
        missing = len(numbers)
        while True:
            if size - self._read >= missing:
                self._look()
                missing = sum(number not in self._arrivals.first_us for number in numbers)
                if not missing:
                    return self._arrivals
            time.sleep(_LOOK_EVERY_S)  # the file of another process says nothing when it grows
            if not self._watcher.lives:
                raise ChronolineError(f"the watcher of {self.name} ended")
            now = count_pairs(self._seen_path)
            if now != size:
                size, quiet_until = now, max(quiet_until, time.monotonic() + QUIET_S)
            elif time.monotonic() > quiet_until:
                self._look()
                return self._arrivals

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        time.sleep(_SETTLE_S)  # for what comes once more
        self._watcher.stop()
        self._look()
        count_up(self._tally, self._due_ms, self._arrivals)
        self.side.close()

    def _look(self) -> None:
        """Reads what the watcher has written since the last look."""
        self._read += self._arrivals.add(read_pairs(self._seen_path, self._read))


class Flight:
    """A load on its way. A process beside it only sleeps and wakes."""

    def __init__(self, scene: Scene[AnySide], load: Load, log_path: Path) -> None:
        self._scene = scene
        self._load = load
        self._control = Control()
        self._control.start()
        self._child = Child(loader.__name__, load.to_json(), log_path=log_path)

    def published(self) -> Loaded:
        """Waits until everything is published and acknowledged."""
        try:
            return Loaded.parse(self._child.await_line("{", _LOAD_S))
        finally:
            self._child.stop()

    def finish(self) -> Passage:
        """Waits until it has come out."""
        try:
            loaded = self.published()
            due_ms = dict(read_pairs(Path(self._load.path)))
            self._scene.expect(due_ms)
            arrivals = self._scene.await_arrival(due_ms)
        finally:
            self._control.stop()
        return self._passage(loaded, due_ms, arrivals)

    def leave(self) -> Loaded:
        """Waits until everything is published, and expects none of it to come out: it is due far ahead."""
        try:
            return self.published()
        finally:
            self._control.stop()

    def _passage(self, loaded: Loaded, due_ms: dict[int, int], arrivals: Arrivals) -> Passage:
        came_us = {
            number: arrivals.first_us[number] for number in due_ms if number in arrivals.first_us
        }
        tally = Tally()
        count_up(tally, due_ms, arrivals.of(due_ms))
        return Passage(
            loaded=loaded,
            shortest_ms=self._load.shortest_ms,
            longest_ms=self._load.longest_ms,
            due_ms=due_ms,
            came_us=came_us,
            control=self._control.lateness,
            tally=tally,
        )


def _longest_wait_s(due_ms: dict[int, int]) -> float:
    """How long it is until the last of them falls due."""
    return max(0.0, max(due_ms.values(), default=0) / 1000 - time.time())
