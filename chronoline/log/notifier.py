"""The notifier: it starts readers on new events, debounced, and again when that fails.

This is for readers that do not wait, such as functions: a notified one reads a partition until it is up to
date, and stops. Of all processes that append, one notifies: it claims a *notice* in the index, notifies,
waits `max_latency_ms`, and looks again. If more was appended meanwhile it notifies again and waits again;
if not, the same write ends its wait. So an append either finds a waiting process that will see it, or
begins a notice of its own. The race of a plain timer (an append just after the last look, while its
producer still relies on the waiting process) does not exist.

A process that finds another waiting comes back when that wait should be over: if the other has died, it takes
over. Events that were not notified because every process died are found when the next one opens the log.

A reader that has to stop before the end marks the rest as not notified, in the index: it is then notified
like new events, at the latest by the next process that opens the log.
"""

from __future__ import annotations

import json
import logging
import threading
import urllib.request
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from urllib.parse import urlsplit

from chronoline.core.errors import InvalidInput, StoreError
from chronoline.log.contract import AppendNotice, Index, LogTopic
from chronoline.runtime.backoff import Backoff
from chronoline.runtime.clock import Clock

logger = logging.getLogger(__name__)

_TELLERS = 8
_POST_TIMEOUT_S = 10
_LONGEST_WAIT_MS = 30_000
_BACKOFF_MS = Backoff(200, _LONGEST_WAIT_MS)
_END_OF_TIME = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """A partition has events before this sequence that a reader should be started for."""

    topic: str
    partition: int
    sequence: int
    """One more than that of the newest event. A reader goes on from its group's progress."""


Tell = Callable[[Notification], None]


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses redirects: a followed one becomes a GET, which notifies nobody."""

    def redirect_request(self, *_: object, **__: object) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirects)


def post_to(url: str) -> Tell:
    """Notifies by an HTTP POST of the notification as JSON. Any answer but a success is a failure."""
    if urlsplit(url).scheme not in {"http", "https"} or not urlsplit(url).hostname:
        raise InvalidInput(f"a notifier is a callable or an http(s) URL, not {url!r}")

    def tell(notification: Notification) -> None:
        request = urllib.request.Request(
            url,
            data=json.dumps(asdict(notification)).encode(),
            headers={"Content-Type": "application/json"},
            method="POST",
        )
        _OPENER.open(request, timeout=_POST_TIMEOUT_S).close()

    return tell


@dataclass(slots=True)
class _Duty:
    """The next step for a partition, and its time."""

    topic: LogTopic
    partition: int
    at_ms: int
    notice: AppendNotice | None = None
    """The notice that is ours, if any."""
    told: bool = False
    failures: int = 0
    again_from: int | None = None
    """Events from here on must be marked as not notified: the reader did not reach the end."""

    @property
    def key(self) -> tuple[int, int]:
        return self.topic.uid, self.partition


class Notices:
    """The duties of one process. `due` and `work` decide and do one step at a given time."""

    def __init__(self, index: Index, tell: Tell, *, max_latency_ms: int) -> None:
        self._index = index
        self._tell = tell
        self._max_latency_ms = max_latency_ms
        # Another's wait may have begun by a clock that is ahead of ours by as much again.
        self._longest_ms = max(_LONGEST_WAIT_MS, 2 * max_latency_ms)
        self._lock = threading.Lock()
        self._duties: dict[tuple[int, int], _Duty] = {}
        self._in_work: set[tuple[int, int]] = set()
        """One at a time for each partition, so that a slow one blocks no other."""

    def appended(self, places: Iterable[tuple[LogTopic, int]], now_ms: int) -> None:
        """Notes a commit. A duty that waits already will see it."""
        for topic, partition in places:
            self._put(_Duty(topic, partition, now_ms))

    def tell_again(self, topic: LogTopic, partition: int, sequence: int, now_ms: int) -> None:
        """Notes a reader that stops before the end: another should go on from a sequence.

        That is stored in the index when this returns, if it answers.
        """
        duty = _Duty(topic, partition, now_ms, again_from=sequence)
        try:
            self._untell(duty)
        except StoreError as error:
            logger.warning("notices of %r wait for the index: %s", topic.name, error)
            self.again(duty, now_ms)
        else:
            self._put(duty)

    def _untell(self, duty: _Duty) -> None:
        if duty.again_from is not None:
            self._index.untell(duty.topic.uid, duty.partition, sequence=duty.again_from)
            duty.again_from = None

    def due(self, now_ms: int) -> list[_Duty]:
        """Takes the duties whose time has come: an append that comes from now on makes a new one.

        A time further ahead than any wait was set by a clock that has been put back, and has come too.
        """
        with self._lock:
            ready = [
                key
                for key, duty in self._duties.items()
                if key not in self._in_work and not now_ms < duty.at_ms <= now_ms + self._longest_ms
            ]
            self._in_work.update(ready)
            return [self._duties.pop(key) for key in ready]

    def next_ms(self) -> int | None:
        """When the next duty is due; those that wait for one in work are not counted."""
        with self._lock:
            waiting = [duty.at_ms for key, duty in self._duties.items() if key not in self._in_work]
        return min(waiting, default=None)

    def work(self, duty: _Duty, now_ms: int) -> None:
        """One step of a taken duty: claim, notify, or look again. The rest is put back."""
        try:
            self._step(duty, now_ms)
        except StoreError as error:
            logger.warning("notices of %r wait for the index: %s", duty.topic.name, error)
            self.again(duty, now_ms)
        finally:
            with self._lock:
                self._in_work.discard(duty.key)

    def _step(self, duty: _Duty, now_ms: int) -> None:
        self._untell(duty)
        if duty.notice is not None and duty.told:
            duty.notice, duty.told = self._index.end_notice(duty.notice, now_ms=now_ms), False
        # No next notice: all is notified, or a faster process may have died. Claiming settles both.
        if duty.notice is None and not self._begin(duty, now_ms):
            return
        self._tell_now(duty, now_ms)

    def flush(self, duty: _Duty, now_ms: int) -> None:
        """Notifies now instead of after the wait, and ends our wait: this process ends."""
        self.work(duty, now_ms)
        if duty.told and duty.notice is not None:
            self._index.end_notice(duty.notice, now_ms=now_ms)

    def again(self, duty: _Duty, now_ms: int) -> None:
        """Puts a duty back after a failure, for a while that grows."""
        duty.failures += 1
        wait_ms = int(_BACKOFF_MS.wait(duty.failures))
        duty.at_ms = now_ms + max(wait_ms, self._max_latency_ms)
        self._put(duty)

    def _begin(self, duty: _Duty, now_ms: int) -> bool:
        begun = self._index.begin_notice(
            duty.topic.uid, duty.partition, max_latency_ms=self._max_latency_ms, now_ms=now_ms
        )
        if isinstance(begun, int):
            duty.at_ms = max(begun, now_ms + 1)
            self._put(duty)
        elif begun is not None:
            duty.notice = begun
        return duty.notice is not None

    def _tell_now(self, duty: _Duty, now_ms: int) -> None:
        notice = duty.notice
        assert notice is not None
        if not self._told(duty, notice.sequence):
            duty.notice = (
                None  # another process may claim it meanwhile, and notifies of the newest events
            )
            self.again(duty, now_ms)
            return
        duty.told, duty.failures = True, 0
        duty.at_ms = notice.since_ms + self._max_latency_ms
        self._put(duty)

    def _told(self, duty: _Duty, sequence: int) -> bool:
        """Whether the notifier succeeded. After any error the events are still not notified."""
        try:
            self._tell(
                Notification(topic=duty.topic.name, partition=duty.partition, sequence=sequence)
            )
        except Exception as error:
            logger.warning(
                "telling of partition %d of %r failed: %s", duty.partition, duty.topic.name, error
            )
            return False
        return True

    def _put(self, duty: _Duty) -> None:
        """A duty with a notice goes before one without; else the one that is there stays.

        The one that stays takes over what must be marked as not notified.
        """
        with self._lock:
            there = self._duties.get(duty.key, duty)
            stays, goes = (duty, there) if duty.notice is not None else (there, duty)
            if goes.again_from is not None and stays.again_from is not None:
                stays.again_from = min(stays.again_from, goes.again_from)
            elif goes.again_from is not None:
                stays.again_from = goes.again_from
            self._duties[duty.key] = stays


class Notifier:
    """The thread that carries out the duties, and a few that notify, so that a slow one delays no other."""

    def __init__(self, index: Index, tell: Tell, *, max_latency_ms: int, clock: Clock) -> None:
        self._notices = Notices(index, tell, max_latency_ms=max_latency_ms)
        self._clock = clock
        self._changed = threading.Condition()
        self._stopped = False
        self._tellers = ThreadPoolExecutor(_TELLERS, thread_name_prefix="chronoline-teller")
        self._thread = threading.Thread(target=self._run, name="chronoline-notifier", daemon=True)
        self._thread.start()

    def appended(self, places: Iterable[tuple[LogTopic, int]]) -> None:
        self._notices.appended(places, self._clock.now_ms())
        with self._changed:
            self._changed.notify()

    def again(self, topic: LogTopic, partition: int, sequence: int) -> None:
        self._notices.tell_again(topic, partition, sequence, self._clock.now_ms())
        with self._changed:
            self._changed.notify()

    def close(self) -> None:
        """Sends the pending notifications. Failed ones are sent by another process, or at the next start."""
        with self._changed:
            self._stopped = True
            self._changed.notify()
        self._thread.join()
        self._tellers.shutdown()
        self._flush()

    def _flush(self) -> None:
        with ThreadPoolExecutor(_TELLERS, thread_name_prefix="chronoline-teller") as tellers:
            left = [
                tellers.submit(self._notices.flush, duty, self._clock.now_ms())
                for duty in self._notices.due(_END_OF_TIME)
            ]
            for each in left:
                if error := each.exception():
                    logger.warning("a notice is left to others: %s", error)

    def _run(self) -> None:
        while True:
            for duty in self._notices.due(self._clock.now_ms()):
                self._tellers.submit(self._work, duty)
            with self._changed:
                if self._stopped:
                    return
                at_ms = self._notices.next_ms()
                wait_s = None if at_ms is None else self._clock.seconds_until(at_ms)
                if wait_s is None or wait_s > 0:
                    self._changed.wait(wait_s)

    def _work(self, duty: _Duty) -> None:
        try:
            self._notices.work(duty, self._clock.now_ms())
        except Exception:
            logger.exception("notices of %r failed", duty.topic.name)
            self._notices.again(duty, self._clock.now_ms())
        with self._changed:
            self._changed.notify()
