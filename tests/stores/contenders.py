"""Contenders: threads that start the same work on the same messages at the same moment.

On an engine that several processes may share they are the threads of several processes, each process with
a store of its own; on the others they are threads on one store.
"""

import multiprocessing
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from contextlib import contextmanager
from multiprocessing.synchronize import Barrier
from typing import Protocol, TypeVar

from chronoline.stores.contract import Store
from chronoline.stores.factory import open_store

CONTENDERS = 16
PROCESSES = 4
PATIENCE_S = 60

Result_co = TypeVar("Result_co", covariant=True)
Result = TypeVar("Result")


class Task(Protocol[Result_co]):
    """The work of a contender; `who` is its number. A task can be pickled."""

    def __call__(self, store: Store, who: int) -> Result_co: ...


class Contest:
    """Runs a task in all contenders at once."""

    def __init__(self, pool: ProcessPoolExecutor, start: Barrier) -> None:
        self._pool, self._start = pool, start

    def run(self, store: Store, url: str, task: Task[Result]) -> list[Result]:
        """Returns the result of each contender, in the order of their numbers."""
        if not store.capabilities.shared:
            return _in_threads(store, task, range(CONTENDERS))
        share = CONTENDERS // PROCESSES
        answers: list[Future[list[Result]]] = [
            self._pool.submit(_in_process, url, task, range(first, first + share))
            for first in range(0, CONTENDERS, share)
        ]
        wait(answers, 2 * PATIENCE_S)
        self._start.reset()  # a contender that failed has broken it for the next contest
        return [each for answer in answers for each in answer.result(0)]


@contextmanager
def open_contest() -> Iterator[Contest]:
    """The processes start with the first contest that needs them, and serve all that follow."""
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(PROCESSES)
    with ProcessPoolExecutor(PROCESSES, context, initializer=_set_start, initargs=(start,)) as pool:
        yield Contest(pool, start)


_start: Barrier | None = None


def _set_start(start: Barrier) -> None:
    global _start  # noqa: PLW0603 - a process of the pool gets it once, before its first task
    _start = start


def _in_process(url: str, task: Task[Result], numbers: Sequence[int]) -> list[Result]:
    assert _start is not None
    try:
        with open_store(url) as store:
            _start.wait(PATIENCE_S)
            return _in_threads(store, task, numbers)
    except BaseException:
        _start.abort()  # the others need not wait
        raise


def _in_threads(store: Store, task: Task[Result], numbers: Sequence[int]) -> list[Result]:
    start = threading.Barrier(len(numbers))

    def contend(who: int) -> Result:
        start.wait(PATIENCE_S)
        return task(store, who)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # so that threads interleave often
    try:
        with ThreadPoolExecutor(len(numbers)) as threads:
            return list(threads.map(contend, numbers))
    finally:
        sys.setswitchinterval(before)
