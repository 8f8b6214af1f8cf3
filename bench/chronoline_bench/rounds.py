"""Interleaved measuring: what is compared takes its turn in every round, and the median speaks."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from statistics import median
from typing import TypeVar

from chronoline_bench.session import Session

Figure = TypeVar("Figure")
Measure = Callable[[], float]
"""Does some work and answers one figure: a rate, or how long it took."""


def interleave(
    rounds: int,
    measures: Mapping[str, Measure],
    *,
    warm_ups: int = 1,
    after_each: Callable[[], None] = lambda: None,
) -> dict[str, list[float]]:
    """The figures of each measure, one for each round; those of the warm-ups are thrown away.

    Each round begins with another measure, so that none always has the place after the same one.
    """
    figures: dict[str, list[float]] = {name: [] for name in measures}
    names = list(measures)
    for number in range(-warm_ups, rounds):
        for name in _rotated(names, number):
            figure = measures[name]()
            if number >= 0:
                figures[name].append(figure)
            after_each()
    return figures


def in_turn(
    session: Session, title: str, rounds: int, works: Mapping[str, Callable[[], Figure]]
) -> dict[str, list[Figure]]:
    """What each work found, one for each round. A full run begins with a round that does not count."""
    found: dict[str, list[Figure]] = {name: [] for name in works}
    warm_ups = 0 if session.quick else 1

    def noting(name: str, work: Callable[[], Figure]) -> Measure:
        def measure() -> float:
            found[name].append(work())
            return 0.0

        return measure

    measures = {name: noting(name, work) for name, work in works.items()}
    with session.show.work(title, (rounds + warm_ups) * len(works)) as advance:
        interleave(rounds, measures, warm_ups=warm_ups, after_each=lambda: advance(1))
    return {name: figures[warm_ups:] for name, figures in found.items()}


def medians(figures: Mapping[str, Sequence[float]]) -> dict[str, float]:
    return {name: median(values) for name, values in figures.items()}


class Stopwatch:
    """Adds up the time that is spent inside its blocks."""

    def __init__(self) -> None:
        self.seconds = 0.0

    @property
    def ms(self) -> float:
        return self.seconds * 1000

    @contextmanager
    def running(self) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds += time.perf_counter() - started


def timed_ms(action: Callable[[], object]) -> float:
    """How long one call takes. What others left for the garbage collector is collected before."""
    gc.collect()
    started = time.perf_counter()
    action()
    return (time.perf_counter() - started) * 1000


@contextmanager
def set_apart() -> Iterator[None]:
    """Within the block the garbage collector passes over what is there already, such as prepared work."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _rotated(names: list[str], number: int) -> list[str]:
    place = number % len(names)
    return names[place:] + names[:place]
