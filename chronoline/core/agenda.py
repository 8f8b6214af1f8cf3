"""The one place that decides *when*: what to deliver, when to reserve, when to wake.

An agenda holds reserved messages, at most `capacity` of them and `most_bytes`, and answers for a given
`now`. It does no I/O and reads no clock; a shell (a firing lane, a broker's loader) acts on its answers:

    reserve when `reserve_at(now) <= now`, `reach_ms(now)` ahead and up to `room()`; tell `reserved(...)`
    deliver what `deliver(now)` returns
    unreserve what `expired()` returns, and give up what `lapsed()` returns
    sleep until `wake_at(now)`, or until a notice comes: `noticed(due)`

Reserving. A reservation at `now` covers everything with `ts <= now + reserve_ahead_ms`. The store then
says when the next message falls due, and the agenda reserves again when that one comes within reach, but
in dense traffic not more often than every half of `reserve_ahead_ms` (or `poll_ms`, if that is less): what
lies beyond the last horizon cannot be due before the next tick. A notice of a message inside the covered
stretch cannot wait for the tick and is reserved at once. Without any word it looks again after
`max_sleep_ms`, which bounds what a lost notice can cost. If the clock was put back since, nothing of that
holds, and it reserves at once.

Where a search begins. Index entries of messages that are gone lie before those that are due, and a search
from the beginning of time passes all of them. So after a reservation that left nothing before a moment, the
next one begins there. It begins at the beginning again after a notice of a message that is due by then, after
anything that makes the past uncertain (a failure, other ranges, another window, a clock that was put back),
and every `FROM_START_MS`, for a lost notice.

A window. An agenda that serves one begins to reserve `reserve_ahead_ms` before its start, covers nothing that
falls due at its end or later, and does not reserve after the end.

Bytes. The size of a message is unknown before its reservation. So there is room for as many as would fit if
each had the largest size that the topic allows (`largest_bytes`); a held message counts with its real size.
An empty agenda takes one of any size. A delivered message counts too while its shell says that it is `away`.

Delivering. Nothing leaves before its `due` (less `timing_advance_ms`) or after it expired, and only while
its lease lives with `margin_ms` to spare.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable

from chronoline.core.message import Lease, LeasedMessage, content_bytes

DEFAULT_MOST_BYTES = 512 * 1024 * 1024
"""Room for some hundred messages of a megabyte, so that small ones are reserved by the hundred too."""
DEFAULT_RESERVE_AHEAD_MS = 100
DEFAULT_MAX_SLEEP_MS = 9_000
"""A little less than how far ahead stores give notice (10 s): what was put further away is seen in time."""
FROM_START_MS = 2_000
MOST_GATHER_MS = 10
_DENSE_PER_MS = 6


def gather_ms(delivered: int, since_ms: int) -> int:
    """How long messages gather after some were delivered, `since_ms` after those before.

    A request to the output for each millisecond costs more than its messages. So the denser the traffic, the
    longer they gather; below six messages a millisecond each leaves when it is due.
    """
    per_ms = delivered // max(1, since_ms)
    return 0 if per_ms < _DENSE_PER_MS else min(per_ms, MOST_GATHER_MS)


class Agenda:
    """A bounded heap of reserved messages, by due time."""

    def __init__(
        self,
        *,
        capacity: int = 10_000,
        reserve_ahead_ms: int = DEFAULT_RESERVE_AHEAD_MS,
        max_sleep_ms: int = DEFAULT_MAX_SLEEP_MS,
        margin_ms: int = 0,
        most_bytes: int = DEFAULT_MOST_BYTES,
        timing_advance_ms: int = 0,
        poll_ms: int | None = None,
        jitter: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """`jitter` answers a number from 0 to 1: how much of a quarter the next tick comes earlier."""
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1, not {capacity}")
        self.reserve_ahead_ms = reserve_ahead_ms
        # The largest size of a message, given by the shell; 0 means that bytes do not count.
        self.largest_bytes = 0
        self._capacity = capacity
        self._most_bytes = most_bytes
        self._held_bytes = 0
        # Delivered and not settled: they take room as if they were held. The shell keeps the count.
        self.away = 0
        self.away_bytes = 0
        self._timing_advance_ms = timing_advance_ms
        half_ms = reserve_ahead_ms // 2
        self._tick_ms = max(1, half_ms if poll_ms is None else min(half_ms, poll_ms))
        self._jitter = jitter
        self._max_sleep_ms = max_sleep_ms
        self.margin_ms = margin_ms
        # When it may leave, in which order it came, and what it weighs.
        self._heap: list[tuple[int, int, LeasedMessage, int]] = []
        self._order = 0
        self._lapsed: list[Lease] = []
        self._expired: list[Lease] = []
        # The moment of the last reservation; an earlier `now` means that the clock was put back.
        self._known_at = 0
        # Everything with ts <= this has been asked for; a notice below it cannot wait for the tick.
        self._horizon = -1
        # Messages beyond the horizon need no reservation before this moment.
        self._tick_at = 0
        # The next reservation, as far as is known; None means at once.
        self._reserve_at: int | None = None
        # Nothing is left before the first of these moments, which is trusted until the second.
        self._clear_ms = 0
        self._from_start_at = 0
        # The window; None is no bound.
        self._start_ms: int | None = None
        self._end_ms: int | None = None

    def __len__(self) -> int:
        return len(self._heap)

    def room(self) -> int:
        """How many more messages may be held, however large they turn out to be."""
        room = self._capacity - len(self._heap) - self.away
        if self.largest_bytes:
            left_bytes = self._most_bytes - self._held_bytes - self.away_bytes
            room = min(room, left_bytes // self.largest_bytes)
        return max(room, 0 if self._heap or self.away else 1)

    def has_room_for(self, leased: LeasedMessage) -> bool:
        """Whether one more may be held, whose size is known."""
        if not self._heap and not self.away:
            return True
        held_bytes = self._held_bytes + self.away_bytes + _bytes_of(leased)
        return len(self._heap) + self.away < self._capacity and held_bytes <= self._most_bytes

    @property
    def held_bytes(self) -> int:
        """Bodies, keys and headers of what is held."""
        return self._held_bytes

    def leases(self) -> list[Lease]:
        """The leases of all held messages, in no order."""
        return [entry[2].lease for entry in self._heap]

    def serve(self, start_ms: int, end_ms: int) -> None:
        """Serve this window from now on: its first reservation is due at its start."""
        self._start_ms, self._end_ms = start_ms, end_ms
        self._clear_ms = 0
        self._horizon = -1
        self._reserve_at = None

    def reach_ms(self, now_ms: int) -> int:
        """How far ahead a reservation looks; less than 0 when the window is over."""
        reach_ms = self.reserve_ahead_ms + self._timing_advance_ms
        return reach_ms if self._end_ms is None else min(reach_ms, self._end_ms - 1 - now_ms)

    def reserved(
        self, leased: Iterable[LeasedMessage], *, next_ts: int | None, more: bool, now_ms: int
    ) -> None:
        """Takes in what a reservation at `now_ms` was granted, and when the next message falls due.

        `more` says that the reservation met its limit, so that its horizon was not reached.
        """
        for message in leased:
            weight = _bytes_of(message)
            leaves_ms = message.message.due - self._timing_advance_ms
            heapq.heappush(self._heap, (leaves_ms, self._order, message, weight))
            self._order += 1
            self._held_bytes += weight
        self._known_at = now_ms
        if more:
            self._reserve_at = None
            return
        self._horizon = now_ms + self.reach_ms(now_ms)
        self._tick_at = now_ms + self._tick_ms - int(self._tick_ms * self._jitter() / 4)
        latest = now_ms + self._max_sleep_ms
        if next_ts is None or self._is_of_another_window(next_ts):
            self._reserve_at = latest
        else:
            self._reserve_at = min(latest, max(self._in_reach_at(next_ts), self._tick_at))

    def cleared(self, until_ms: int, *, since_ms: int, now_ms: int) -> None:
        """A reservation at `now_ms`, whose search began at `since_ms`, left nothing before `until_ms`."""
        self._clear_ms = until_ms
        if not since_ms:
            self._from_start_at = now_ms + FROM_START_MS

    def since_ms(self, now_ms: int) -> int:
        """Where the search of the next reservation begins."""
        return self._clear_ms if self._known_at <= now_ms < self._from_start_at else 0

    def noticed(self, due: int | None) -> bool:
        """A message was put at `due`; None if its time is unknown, so that the store must be asked.

        Returns whether the next reservation is earlier by that.
        """
        if due is None or due <= max(self._horizon, self._clear_ms):
            self._clear_ms = 0
        if self._reserve_at is None:
            return False
        if due is None or due <= self._horizon:
            self._reserve_at = None
            return True
        at = max(self._in_reach_at(due), self._tick_at)
        if at >= self._reserve_at or self._is_of_another_window(due):
            return False
        self._reserve_at = at
        return True

    def _in_reach_at(self, due: int) -> int:
        return due - self.reserve_ahead_ms - self._timing_advance_ms

    def _is_of_another_window(self, due: int) -> bool:
        return self._end_ms is not None and due >= self._end_ms

    def postponed(self, until_ms: int, *, now_ms: int) -> None:
        """The store could not be asked: reserve again at this moment, or when a notice says more."""
        self._known_at = now_ms
        self._reserve_at = until_ms
        self._clear_ms = 0

    def reserve_at(self, now_ms: int) -> int | None:
        """When to reserve next; `now_ms` or earlier means now.

        None means not before there is room, and not at all once the window is over.
        """
        if not self.room() or self.reach_ms(now_ms) < 0:
            return None
        at = self._reserve_at
        if at is None or now_ms < self._known_at:
            at = now_ms
        return at if self._start_ms is None else max(at, self._in_reach_at(self._start_ms))

    def deliver(
        self, now_ms: int, limit: int | None = None, *, ahead_ms: int = 0
    ) -> list[LeasedMessage]:
        """Removes and returns the due messages, in order of `due`; the rest stays for `lapsed` and `expired`.

        Messages that fall due up to `ahead_ms` later are returned too, for a shell that keeps them until then
        and checks at that moment that the lease lives and the message has not expired.
        """
        ready: list[LeasedMessage] = []
        while self._heap and self._heap[0][0] <= now_ms + ahead_ms and len(ready) != limit:
            leaves_ms, _, message, weight = heapq.heappop(self._heap)
            self._held_bytes -= weight
            expires = message.message.expires
            leaves_ms = max(leaves_ms, now_ms)
            if message.lease.until - self.margin_ms <= leaves_ms:
                self._lapsed.append(message.lease)
            elif expires is not None and expires <= leaves_ms:
                self._expired.append(message.lease)
            else:
                ready.append(message)
        return ready

    def lapsed(self) -> list[Lease]:
        """Takes out the leases that were over, or nearly, before their messages could be delivered."""
        lapsed, self._lapsed = self._lapsed, []
        return lapsed

    def expired(self) -> list[Lease]:
        """Takes out the leases of what expired; they live, and are to be unreserved.

        The next reservation sends it to the dead letters for what it is, and counts no attempt.
        """
        expired, self._expired = self._expired, []
        return expired

    def ending(self, until_ms: int) -> list[Lease]:
        """Takes out what is held under a lease that ends by a moment; the leases are to be unreserved.

        Only a stuck shell holds messages for that long; other consumers should get them.
        """
        return self._take_out(lambda message: message.lease.until <= until_ms)

    def beyond(self, due_ms: int) -> list[Lease]:
        """Takes out what falls due after a moment; the leases are to be unreserved."""
        return self._take_out(lambda message: message.message.due > due_ms)

    def give_back(self) -> list[Lease]:
        """Takes out everything; the leases are to be unreserved."""
        return self._take_out(lambda _: True)

    def _take_out(self, unwanted: Callable[[LeasedMessage], bool]) -> list[Lease]:
        out = [entry for entry in self._heap if unwanted(entry[2])]
        if out:
            self._heap = [entry for entry in self._heap if not unwanted(entry[2])]
            heapq.heapify(self._heap)
            self._held_bytes -= sum(entry[3] for entry in out)
        return [entry[2].lease for entry in sorted(out)]

    def deliver_at(self) -> int | None:
        """When the next held message is due."""
        return self._heap[0][0] if self._heap else None

    def wake_at(self, now_ms: int) -> int | None:
        """When there is next something to do; None means that only a notice brings something."""
        moments = [m for m in (self.deliver_at(), self.reserve_at(now_ms)) if m is not None]
        return min(moments) if moments else None


def _bytes_of(leased: LeasedMessage) -> int:
    return content_bytes(leased.body, leased.message.key, leased.message.headers)
