"""The first signal stops, a second one ends the process as usual."""

from __future__ import annotations

import queue
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future

import pytest

from chronoline.runtime.signals import result_of, stop_on_signal

PATIENCE_S = 60.0


@pytest.fixture
def usual() -> Iterator[list[int]]:
    """The signals that reach the earlier handler of SIGTERM."""
    reached: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: reached.append(number))
    yield reached
    signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_second_signal_gets_the_earlier_handler(usual: list[int], number: int) -> None:
    stops: list[None] = []
    with stop_on_signal(lambda: stops.append(None)) as received:
        signal.raise_signal(number)
        signal.raise_signal(signal.SIGTERM)
    assert received == [number]
    assert stops == [None]
    assert usual == [signal.SIGTERM]


def test_each_signal_stops_if_a_second_one_ends_nothing(usual: list[int]) -> None:
    stops: list[None] = []
    with stop_on_signal(lambda: stops.append(None), second_ends=False) as received:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
    assert received == [signal.SIGTERM, signal.SIGINT]
    assert stops == [None, None]
    assert usual == []


def test_second_ctrl_c_raises_no_exception() -> None:
    with stop_on_signal(lambda: None):
        signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) == signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) == signal.default_int_handler


def test_second_signal_counts_after_spark_restores_the_handler(usual: list[int]) -> None:
    stops: list[None] = []
    with stop_on_signal(lambda: stops.append(None)):
        ours = signal.getsignal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        signal.signal(signal.SIGTERM, ours)
        signal.raise_signal(signal.SIGTERM)
    assert stops == [None]
    assert usual == [signal.SIGTERM]


def test_signal_wakes_the_main_thread(usual: list[int]) -> None:
    stop: queue.SimpleQueue[None] = queue.SimpleQueue()
    main = threading.main_thread().ident
    assert main is not None
    sender = threading.Timer(0.2, lambda: signal.pthread_kill(main, signal.SIGTERM))
    with stop_on_signal(lambda: stop.put(None)):
        sender.start()
        stop.get(timeout=PATIENCE_S)
    sender.join()
    assert usual == []


def test_other_threads_change_no_handlers(usual: list[int]) -> None:
    def enter() -> None:
        with stop_on_signal(lambda: None):
            signal.raise_signal(signal.SIGTERM)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert usual == [signal.SIGTERM]


@pytest.mark.usefixtures("usual")
def test_signal_of_another_thread_wakes_who_waits() -> None:
    waits = threading.Event()

    class Stopped(Future[str]):
        def add_done_callback(self, fn: Callable[[Future[str]], object]) -> None:
            super().add_done_callback(fn)
            waits.set()

    def end() -> None:
        waits.wait(PATIENCE_S)
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

    stopped = Stopped()
    thread = threading.Thread(target=end, daemon=True)
    thread.start()
    with stop_on_signal(lambda: stopped.set_result("stopped")) as received:
        assert result_of(stopped) == "stopped"
    thread.join(PATIENCE_S)
    assert received == [signal.SIGTERM]
