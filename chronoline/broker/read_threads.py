"""A few threads that ask the store, and the bounded queue before them.

They end with the process, whatever they wait for: those of `concurrent.futures` would keep it until a store
that hangs has answered.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

from chronoline.core.closing import Closing
from chronoline.core.errors import StoreBusy, StoreClosed

Result = TypeVar("Result")


class Lookers(Closing):
    """Questions are answered by futures, in the order in which they were asked; one may be cancelled before
    its turn.
    """

    def __init__(self, name: str, *, threads: int, most_waiting: int) -> None:
        self._most_waiting = most_waiting
        self._waiting: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._closing = threading.Lock()
        self._closed = False
        self._threads = [
            threading.Thread(target=self._run, name=f"{name}-{number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, ask: Callable[[], Result]) -> Future[Result]:
        """Raises `StoreBusy` if too many wait already; who gave up waiting counts until its turn."""
        answer: Future[Result] = Future()
        with self._closing:
            if self._closed:
                raise StoreClosed
            if (waiting := self._waiting.qsize()) >= self._most_waiting:
                raise StoreBusy(f"{waiting} questions wait for the store already; try again")
            self._waiting.put((answer, ask))
        return answer

    def close(self) -> None:
        """Finishes what waits. May be called twice."""
        with self._closing:
            if not self._closed:
                self._closed = True
                for _ in self._threads:
                    self._waiting.put(None)
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        while self._answer_next():
            pass

    def _answer_next(self) -> bool:
        """False at the end. Nothing of a question is kept while the next one is waited for."""
        waiting = self._waiting.get()
        if waiting is None:
            return False
        answer, ask = waiting
        if answer.set_running_or_notify_cancel():
            try:
                result = ask()
            except BaseException as error:  # it is the caller's, and must not end the thread
                answer.set_exception(error)
            else:
                answer.set_result(result)
        return True
