"""An alarm rings once for each time that it was set, and never early."""

from __future__ import annotations

import asyncio
import os
import sys

import pytest

from chronoline.runtime import alarm as alarms
from chronoline.runtime.alarm import PreciseAlarm
from tests.deadline import run_scene


@pytest.fixture(params=["by the kernel", "by the loop"])
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "by the loop":
        # A system without timer descriptors.
        monkeypatch.setattr(alarms, "_descriptor", lambda: None)
    elif not sys.platform.startswith("linux"):
        pytest.skip("only Linux says by a file descriptor that a time is over")


pytestmark = pytest.mark.usefixtures("_way")


class Rung:
    """When an alarm rang."""

    def __init__(self) -> None:
        self.at: list[float] = []
        self._next = asyncio.Event()

    def __call__(self) -> None:
        self.at.append(asyncio.get_running_loop().time())
        self._next.set()

    async def once(self) -> float:
        await self._next.wait()
        self._next.clear()
        return self.at[-1]


def test_alarm_rings_and_not_early() -> None:
    async def scene() -> None:
        rung = Rung()
        alarm = PreciseAlarm(rung)
        for seconds in (0.0, 0.0004, 0.003, 0.02, -1.0):
            set_at = asyncio.get_running_loop().time()
            alarm.set(seconds)
            # The loop's own timers may ring early by the resolution of its clock.
            assert await rung.once() >= set_at + seconds - 0.000_001
        alarm.close()
        assert len(rung.at) == 5

    run_scene(scene)


def test_second_set_moves_the_alarm() -> None:
    async def scene() -> None:
        rung = Rung()
        alarm = PreciseAlarm(rung)
        alarm.set(60)
        alarm.set(0.001)
        await rung.once()
        alarm.set(0)
        alarm.set(60)
        await asyncio.sleep(0.01)  # it would ring in this time
        assert len(rung.at) == 1
        alarm.close()

    run_scene(scene)


def test_cancelled_or_closed_alarm_does_not_ring() -> None:
    async def scene() -> None:
        rung = Rung()
        alarm = PreciseAlarm(rung)
        alarm.cancel()
        alarm.set(0.001)
        alarm.cancel()
        await asyncio.sleep(0.01)  # it would ring in this time
        alarm.set(0.001)
        alarm.close()
        alarm.close()
        await asyncio.sleep(0.01)  # it would ring in this time
        assert rung.at == []

    run_scene(scene)


def test_alarm_keeps_no_file_open() -> None:
    async def scene() -> None:
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(20):
            alarm = PreciseAlarm(lambda: None)
            alarm.set(60)
            alarm.close()
        assert len(os.listdir("/proc/self/fd")) == before

    if os.path.isdir("/proc/self/fd"):
        run_scene(scene)
    else:
        pytest.skip("there is no /proc in which open files could be counted")


def test_error_of_the_callback_is_not_swallowed() -> None:
    async def scene() -> None:
        told: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: told.set_result(context["exception"])
        )

        def ring() -> None:
            raise BlockingIOError("of its own")

        alarm = PreciseAlarm(ring)
        alarm.set(0)
        assert str(await told) == "of its own"
        alarm.close()

    run_scene(scene)


class _Refusing:
    """A kernel that makes timers and sets none."""

    def __init__(self) -> None:
        # A kernel that refuses.
        self._real = alarms._libc()
        self.made: list[int] = []

    def timerfd_create(self, *given: int) -> int:
        self.made.append(int(self._real.timerfd_create(*given)))
        return self.made[-1]

    def timerfd_settime(self, *given: object) -> int:
        return -1


def test_loop_timer_replaces_a_failed_kernel_timer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scene() -> None:
        rung = Rung()
        alarm = PreciseAlarm(rung)
        alarm.set(60)
        alarm.set(0.001)
        await rung.once()
        alarm.set(0.001)
        alarm.cancel()
        await asyncio.sleep(0.01)  # it would ring in this time
        assert len(rung.at) == 1
        for descriptor in refusing.made:
            with pytest.raises(OSError, match="Bad file descriptor"):
                os.fstat(descriptor)
        alarm.close()

    refusing = _Refusing()
    monkeypatch.setattr(alarms, "_libc", lambda: refusing)
    run_scene(scene)
