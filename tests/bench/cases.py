"""Checks for every bench with named cases: they can be chosen, and a failed case leaves the others."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from chronoline.core.errors import ChronolineError
from chronoline.runtime.service import Closable
from chronoline_bench.registry import BENCHES
from chronoline_bench.session import Session
from chronoline_bench.tally import Tally


class FakeStage(Closable):
    """A stage without servers and processes."""

    def __init__(self, session: Session, *_: object) -> None:
        self.session = session
        self.peers = Tally()
        self.ended = 0

    def end_agents(self) -> None:
        self.ended += 1

    def close(self) -> None:
        self.session.notes.append(f"agents ended {self.ended} times")


def fake_stage(bench: ModuleType, patch: pytest.MonkeyPatch) -> None:
    (name,) = (name for name in vars(bench) if name.endswith("Stage"))
    patch.setattr(bench, name, FakeStage)


def choose_each(bench: ModuleType, folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Chooses each case by its name, then all of them."""
    measured: list[str] = []

    def note(case: str) -> Callable[..., None]:
        return lambda *_: measured.append(case)

    name = bench.__name__.split(".")[1]
    known = BENCHES[name].choose(BENCHES[name].cases)
    for case in known:
        patch.setattr(bench, f"measure_{case}", note(case))
    fake_stage(bench, patch)
    for case in known:
        bench.measure_sizes(Session(folder=folder, cases=(case,)), bench.FULL)
    assert measured == list(known)
    measured.clear()
    bench.measure_sizes(Session(folder=folder), bench.QUICK)
    assert measured == list(known)


def fail_one(
    bench: ModuleType, cases: tuple[str, str], folder: Path, patch: pytest.MonkeyPatch
) -> Session:
    """Runs two cases, of which the first fails; returns the report."""
    measured: list[str] = []
    first, second = cases

    def fail(*_: object) -> None:
        raise ChronolineError("no luck")

    fake_stage(bench, patch)
    patch.setattr(bench, f"measure_{first}", fail)
    patch.setattr(bench, f"measure_{second}", lambda *_: measured.append(second))
    session = Session(folder=folder, cases=cases)
    bench.measure_sizes(session, bench.QUICK)
    assert session.failures == [f"case {first} failed: no luck"]
    assert measured == [second]
    return session
