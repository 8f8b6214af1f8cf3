"""Rounds: the compared measures take turns in every round, and the median counts."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from statistics import median
from typing import TypeVar

from chronoline_bench.session import Session

Figure = TypeVar("Figure")
Measure = Callable[[], float]
"""Does some work and returns a rate or a duration."""


def interleave(
    rounds: int,
    measures: Mapping[str, Callable[[], Figure]],
    *,
    warm_ups: int = 1,
    after_each: Callable[[], None] = lambda: None,
) -> dict[str, list[Figure]]:
    """Returns the figures of each measure, one for each round; those of the warm-ups are discarded.

    Each round starts with another measure, so none always follows the same one.
    """
    figures: dict[str, list[Figure]] = {name: [] for name in measures}
    names = list(measures)
    for number in range(-warm_ups, rounds):
        for name in _rotated(names, number):
            figure = measures[name]()
            if number >= 0:
                figures[name].append(figure)
            after_each()
    return figures


def in_turn(
    session: Session,
    title: str,
    rounds: int,
    measures: Mapping[str, Callable[[], Figure]],
    *,
    warm_ups: int = 1,
) -> dict[str, list[Figure]]:
    """`interleave` with a progress bar."""
    with session.show.work(title, (rounds + warm_ups) * len(measures)) as advance:
        return interleave(rounds, measures, warm_ups=warm_ups, after_each=lambda: advance(1))


def medians(figures: Mapping[str, Sequence[float]]) -> dict[str, float]:
    return {name: median(values) for name, values in figures.items()}


class Stopwatch:
    """Adds up the time that its blocks take."""

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
    """Returns the duration of one call, after a garbage collection."""
    gc.collect()
    started = time.perf_counter()
    action()
    return (time.perf_counter() - started) * 1000


@contextmanager
def set_apart() -> Iterator[None]:
    """Within the block the garbage collector ignores everything that existed before it."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def at_once(tasks: Sequence[Callable[[], object]]) -> float:
    """Runs each task in its own thread; returns the seconds from the first start to the last end.

    If a task fails, its error is raised when all have ended.
    """
    problems: list[BaseException] = []

    def run(task: Callable[[], object]) -> None:
        try:
            task()
        except BaseException as error:  # raised below
            problems.append(error)

    threads = [threading.Thread(target=run, args=(task,)) for task in tasks]
    with set_apart():
        started = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took_s = time.perf_counter() - started
    if problems:
        raise problems[0]
    return took_s


def _rotated(names: list[str], number: int) -> list[str]:
    place = number % len(names)
    return names[place:] + names[:place]
