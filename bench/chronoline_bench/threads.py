"""Work from many threads at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from chronoline_bench.rounds import set_apart


def at_once(tasks: Sequence[Callable[[], object]]) -> float:
    """Does each task in a thread of its own; the seconds from the first start to the last end.

    If one fails, so does the whole.
    """
    problems: list[BaseException] = []

    def run(task: Callable[[], object]) -> None:
        try:
            task()
        except BaseException as error:  # it is told where the threads are waited for
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
