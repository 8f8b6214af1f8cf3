"""Alarms of an event loop: an interruptible sleep, and a wake-up to some hundredths of a millisecond."""

from __future__ import annotations

import asyncio
import ctypes
import os
import sys
from collections.abc import Callable

_MONOTONIC = 1
_NS = 1_000_000_000


class Alarm:
    """A sleep in the event loop that `ring` ends; a ring without a sleeper ends the next sleep at once."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()

    def ring(self) -> None:
        self._rung.set()

    async def sleep(self, seconds: float | None) -> None:
        """Sleeps this long, or with None until it rings."""
        if seconds is not None and seconds <= 0:
            await asyncio.sleep(0)  # other tasks have their turn
            self._rung.clear()
            return
        timer = None
        if seconds is not None:
            timer = asyncio.get_running_loop().call_later(seconds, self._rung.set)
        try:
            await self._rung.wait()
        finally:
            if timer is not None:
                timer.cancel()
            self._rung.clear()


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


class PreciseAlarm:
    """One alarm on the loop that runs when it is first set; setting it again moves it.

    The loop's own timers are rounded up to whole milliseconds, the resolution of `epoll`: measured, they ring
    0.7 ms late at the median. On Linux a file descriptor of the kernel becomes readable when the time is
    over, and the loop waits for it as for any other. Elsewhere the loop's timers are used.
    """

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._fd: int | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None

    def set(self, seconds: float) -> None:
        """Rings this long from now, not earlier."""
        if self._loop is None:
            self._open()
        assert self._loop is not None
        if self._arm(max(1, int(seconds * _NS) + 1)):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, self._ring)

    def cancel(self) -> None:
        """Stops it until it is set again."""
        self._arm(0)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def close(self) -> None:
        """May be called twice, and before it was ever set."""
        self.cancel()
        self._give_up_descriptor()
        self._loop = None

    def _open(self) -> None:
        self._loop = asyncio.get_running_loop()
        descriptor = _descriptor()
        if descriptor is None:
            return
        try:
            self._loop.add_reader(descriptor, self._over)
        except NotImplementedError:  # this loop cannot watch descriptors
            os.close(descriptor)
        else:
            self._fd = descriptor

    def _give_up_descriptor(self) -> None:
        if self._fd is None:
            return
        assert self._loop is not None
        if not self._loop.is_closed():
            self._loop.remove_reader(self._fd)
        os.close(self._fd)
        self._fd = None

    def _arm(self, nanoseconds: int) -> bool:
        """Sets the kernel's timer; false if the kernel refuses, which is not tried again. 0 stops it."""
        if self._fd is not None and not _arm(self._fd, nanoseconds):
            self._give_up_descriptor()
        return self._fd is not None

    def _over(self) -> None:
        assert self._fd is not None
        try:
            os.read(self._fd, 8)
        except BlockingIOError:
            return  # it was set anew meanwhile
        self._ring()


def _descriptor() -> int | None:
    """A timer of the kernel; None if the platform has none."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        descriptor = int(_libc().timerfd_create(_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC))
    except (OSError, AttributeError):
        return None
    return descriptor if descriptor >= 0 else None


def _arm(descriptor: int, nanoseconds: int) -> bool:
    """Whether the kernel accepted it."""
    value = _Itimerspec(_Timespec(0, 0), _Timespec(*divmod(nanoseconds, _NS)))
    return int(_libc().timerfd_settime(descriptor, 0, ctypes.byref(value), None)) == 0


_loaded: ctypes.CDLL | None = None


def _libc() -> ctypes.CDLL:
    global _loaded  # noqa: PLW0603 - one library for the process, loaded where it is first needed
    if _loaded is None:
        _loaded = ctypes.CDLL(None, use_errno=True)
    return _loaded
