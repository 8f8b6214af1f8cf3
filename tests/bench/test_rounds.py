import threading

import pytest

from chronoline_bench.rounds import Stopwatch, at_once, interleave, medians, timed_ms


def test_measures_take_turns_in_beginning_a_round() -> None:
    calls = []

    def measure(name: str, figure: float) -> float:
        calls.append(name)
        return figure

    figures = interleave(
        2, {"a": lambda: measure("a", 1), "b": lambda: measure("b", 2)}, warm_ups=1
    )
    assert figures == {"a": [1, 1], "b": [2, 2]}
    assert "".join(calls) == "ba" + "ab" + "ba"


def test_warm_ups_are_thrown_away() -> None:
    figures = iter([100.0, 1.0, 3.0, 2.0])
    assert interleave(3, {"x": lambda: next(figures)}) == {"x": [1.0, 3.0, 2.0]}


def test_after_each_is_called_for_every_measure() -> None:
    told = []
    interleave(2, {"a": lambda: 0, "b": lambda: 0}, after_each=lambda: told.append(1))
    assert len(told) == 6


def test_medians() -> None:
    assert medians({"a": [3, 1, 2], "b": [1, 2]}) == {"a": 2, "b": 1.5}


def test_stopwatch_counts_a_failed_block() -> None:
    watch = Stopwatch()
    with watch.running():
        pass
    first = watch.seconds
    try:
        with watch.running():
            raise LookupError
    except LookupError:
        pass
    assert watch.seconds > first > 0
    assert watch.ms == watch.seconds * 1000


def test_timed_ms_calls_once() -> None:
    calls: list[int] = []
    assert timed_ms(lambda: calls.append(1)) > 0
    assert calls == [1]


def test_tasks_run_at_the_same_time() -> None:
    everybody = threading.Barrier(3)
    done: list[int] = []

    def task() -> None:
        everybody.wait(60)
        done.append(1)

    assert at_once([task] * 3) > 0
    assert len(done) == 3


def test_error_of_a_task_is_raised_when_all_have_ended() -> None:
    done: list[int] = []

    def fail() -> None:
        raise LookupError("of one")

    with pytest.raises(LookupError, match="of one"):
        at_once([fail, lambda: done.append(1)])
    assert done == [1]
