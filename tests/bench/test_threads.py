import threading

import pytest

from chronoline_bench.threads import at_once


def test_tasks_run_at_the_same_time() -> None:
    everybody = threading.Barrier(3)
    done: list[int] = []

    def task() -> None:
        everybody.wait(30)
        done.append(1)

    assert at_once([task] * 3) > 0
    assert len(done) == 3


def test_the_error_of_one_is_told_when_all_have_ended() -> None:
    done: list[int] = []

    def fail() -> None:
        raise LookupError("of one")

    with pytest.raises(LookupError, match="of one"):
        at_once([fail, lambda: done.append(1)])
    assert done == [1]
