"""Signals that end a process."""

from __future__ import annotations

import select
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")


@contextmanager
def exit_on_sigterm() -> Iterator[None]:
    """Within the block SIGTERM raises `SystemExit`, so that resources of the block are closed."""

    def end(number: int, _: object) -> NoReturn:
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def stop_on_signal(stop: Callable[[], object], *, second_ends: bool = True) -> Iterator[list[int]]:
    """Within the block the first SIGTERM or SIGINT calls `stop`; a second one ends the process as usual.

    With `second_ends=False` each of them calls `stop`. The result lists the signals that came. Only the main
    thread handles signals: in another one the block runs without.

    `stop` runs between any two steps of the main thread, also in the middle of `Event.wait`, for whose lock
    `Event.set` would then wait without an end. `SimpleQueue.put` and `call_soon_threadsafe` are safe.
    """
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    before: dict[int, Any] = {}

    def handle(number: int, _: object) -> None:
        received.append(number)
        if second_ends:
            for each, handler in before.items():
                signal.signal(each, _usual(handler))
        if second_ends and len(received) > 1:  # something, for example Spark, put this handler back
            signal.raise_signal(number)
        else:
            stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        before[number] = signal.signal(number, handle)
    try:
        yield received
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _usual(handler: Any) -> Any:
    """Python would turn a Ctrl-C into an exception, which all threads and Spark log at length."""
    return signal.SIG_DFL if handler is signal.default_int_handler else handler


def result_of(future: Future[T]) -> T:
    """Wait for a future, and let handlers of signals run meanwhile.

    The kernel may give a signal to another thread. Its handler waits for the main thread then, which
    `Future.result` would not wake.
    """
    if threading.current_thread() is not threading.main_thread():
        return future.result()
    reader, writer = socket.socketpair()
    with reader, writer:
        writer.setblocking(False)

        def wake(_: Future[T]) -> None:
            with suppress(OSError):
                writer.send(b"\0")

        before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        try:
            future.add_done_callback(wake)
            while not future.done():
                select.select([reader], [], [])
                reader.recv(4_096)
        finally:
            signal.set_wakeup_fd(before)
    return future.result()
