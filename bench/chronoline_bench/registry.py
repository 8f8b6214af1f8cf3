"""The benches by name. Their modules are loaded when they run, since some load Spark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from chronoline.core.errors import InvalidInput, MissingExtra
from chronoline_bench.session import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """A bench by name; its module has a function `measure(session)`."""

    name: str
    summary: str
    module: str
    cases: tuple[str, ...] = ()
    """The names of its cases, if they can be chosen."""
    draws: bool = False
    """Whether it has cases that last for a chosen time, and plots of them."""

    def load(self) -> Callable[[Session], None]:
        """Import its module. Raises `MissingExtra` if a dependency is missing."""
        try:
            measure: Callable[[Session], None] = import_module(self.module).measure
        except ModuleNotFoundError as error:
            if error.name is None or error.name.startswith("chronoline"):
                raise
            raise MissingExtra(
                f"bench {self.name} needs {error.name}, which is not installed:"
                " pip install chronoline-bench"
            ) from error
        return measure

    def choose(self, cases: Sequence[str]) -> tuple[str, ...]:
        """Raises `InvalidInput` for a case that this bench does not have."""
        for case in cases:
            if case not in self.cases:
                known = (
                    f"there are: {', '.join(self.cases)}" if self.cases else "it runs as a whole"
                )
                raise InvalidInput(f"bench {self.name} has no case {case!r} to choose; {known}")
        return tuple(cases)

    def check_options(self, *, seconds: float | None, plots: Path | None) -> None:
        """Raises `InvalidInput` for options that do not apply to this bench."""
        if not self.draws and (seconds is not None or plots is not None):
            raise InvalidInput(f"--seconds and --plots do not apply to bench {self.name}")


BENCHES = {
    bench.name: bench
    for bench in (
        Bench(
            name="store",
            summary="the timeline in SQLite and PostgreSQL, beside the raw engines",
            module="chronoline_bench.store.bench",
        ),
        Bench(
            name="bodies",
            summary="the body size from which storing bodies apart from their rows is faster",
            module="chronoline_bench.store.bodies",
        ),
        Bench(
            name="log",
            summary="the log in a folder, beside one object and one index transaction for each event",
            module="chronoline_bench.log.bench",
        ),
        Bench(
            name="pipe",
            summary="the pipe between two Kafka topics, beside a queue that polls a table",
            module="chronoline_bench.pipe.bench",
            cases=(
                *("outside", "outside_rates", "embedded", "partitions", "faults"),
                *("rates", "highest", "bursts", "waiting", "several", "bulk", "forecast"),
            ),
            draws=True,
        ),
        Bench(
            name="broker",
            summary="the broker, beside beanstalkd and a hand-written queue on PostgreSQL",
            module="chronoline_bench.broker.bench",
            cases=(
                "lateness",
                "over_time",
                "creates",
                "leases",
                "instant",
                "waiting",
                "schedules",
                "limits",
            ),
            draws=True,
        ),
        Bench(
            name="timers",
            summary="a cluster of timer nodes, beside bare aiohttp and raw SQLite",
            module="chronoline_bench.timers.bench",
            cases=("pops", "kill", "waiting", "scaling"),
        ),
        Bench(
            name="cluster",
            summary="three brokers with etcd and PostgreSQL, beside one; a broker that is killed",
            module="chronoline_bench.cluster.bench",
            cases=("kill", "lateness", "overlap", "connected", "deletion"),
        ),
    )
}


def find_bench(name: str) -> Bench:
    """Raises `InvalidInput` with the known names if there is no such bench."""
    if name not in BENCHES:
        raise InvalidInput(f"there is no bench named {name!r}; there are: {', '.join(BENCHES)}")
    return BENCHES[name]
