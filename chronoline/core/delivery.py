"""The delivery to one consumer: a state machine around its agenda, without I/O, clock or threads.

A shell passes in events and carries out the commands. Firing lanes and publishing lanes share a shell of
threads (`delivery.lane`); a broker's loader is a shell of coroutines. The agenda decides *when*; the delivery
decides *whether*, and which changes the store gets afterwards.

State of a message: held in the agenda, then outstanding (delivered, with an unknown result), then waiting for
its last change: ack, retry or unreserve.

Commands. `deliver(now)` returns the messages that leave now. `reserve(now)` and `next_chore(now)` return
requests to the store. A command is under way until the shell passes in the event that ends it:

    Reserve   reserved(...), then completed(...)     or failed(...), late(...)
    Look      found(...)                             or failed(...)
    Settle    settled(...)                           or failed(...)
    Extend    extended(...)                          or failed(...)

Overload. A message is outstanding until its result is known, and then waits for its last change. A shell that
`extends` keeps the leases of outstanding messages: one request extends all that end soon. The shell tells how
long its rounds take (`took`), and leases are as long as several of them: a lease that ends soon can still be
extended, and no message leaves whose ack would come too late. A message whose lease ends all the same usually
comes back to this delivery, because nobody else serves its range. It does not leave again: its result is
still to come, or is known already and is written now.

Backups. While the consumer is idle (it may hold more, and its own ranges have no more for now) it is served
from its backup ranges, too: `core.backup` decides when.

Unknown outcomes. A reservation without an answer may have leased messages without a holder. Its session
names the rows: the delivery asks which they are, at once and again when the server can no longer carry the
statement out, and gives them back. It never repeats the reservation. A settling or an extension without an
answer is repeated with `again`, by which the store recognizes it.

Giving back. A message that cannot be delivered in time is unreserved, which counts no attempt: held messages
when the delivery pauses, ends or closes, expired ones, and those that come too late. The delivery tries it
until the lease is over.

Time is an argument. A clock that is put back makes nothing early: a moment further ahead than any rest was
planned by the old time, and has come.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from chronoline.core.agenda import Agenda
from chronoline.core.backup import BackupRanges
from chronoline.core.change import Change
from chronoline.core.errors import ChronolineError, OutcomeUnknown
from chronoline.core.limits import WRITE_BOUND_MS
from chronoline.core.message import Lease, LeasedMessage, Message, content_bytes
from chronoline.core.output_gate import OutputGate
from chronoline.core.ranges import BucketRange
from chronoline.core.session import Session

RESERVE_ROWS = 500
"""The most rows of one reservation: some milliseconds of the store's time."""
_SETTLE_ROWS = 5_000
_MOST_REST_MS = 1_000
_UNBOUNDED = 1 << 62
_LEASE_ROUNDS = 6
"""A lease lasts at least this many rounds of the shell: it is extended at half of it, within two rounds."""
_MARGIN_ROUNDS = 2
"""The rest of a lease with which its message may leave: a round may have begun, and the next extends it."""
_MOST_LEASES = 12
"""Slow rounds make leases at most this many times longer: after a crash others wait for their ends."""
_SLOW_FADES = 32
"""Each round takes this part from the memory of a slow one."""
_MOST_UNWRITTEN = 10_000
_OWN_VERSIONS = 2
"""A lease that was taken from this consumer follows its last known one, or an extension without an answer."""

How = Literal["ack", "retry", "unreserve"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserve:
    """Reserve up to `limit` messages in these ranges, `reach_ms` ahead; the rows name the session."""

    session: str
    ranges: tuple[BucketRange, ...]
    limit: int
    reach_ms: int
    lease_ms: int
    asked_ms: int
    since_ms: int = 0
    """Nothing is left before this moment, as far as is known."""
    is_backup: bool = False
    """These are ranges of other consumers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Find the rows that name this session, whose reservation was not answered."""

    session: str
    is_last: bool
    """No statement of that reservation can take effect any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settle:
    """Settle leases in the store; with `again` an earlier attempt was not answered."""

    how: How
    leases: tuple[Lease, ...]
    again: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Extend:
    """Extend the leases of slow deliveries by `lease_ms`."""

    leases: tuple[Lease, ...]
    lease_ms: int
    again: bool = False


Chore = Look | Settle | Extend
Command = Reserve | Chore


@dataclass(slots=True)
class _Unanswered:
    """A reservation of unknown outcome."""

    session: str
    told_ms: int
    """No statement of it takes effect `WRITE_BOUND_MS` after this moment."""
    over_ms: int
    """All leases that it may have taken are over."""
    look_at: int
    looked: bool = False
    under_way: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryOptions:
    """The options of a shell."""

    rows: int = RESERVE_ROWS
    """The most rows of one reservation."""
    most_overdue: int | None = None
    """With this many messages held and due, nothing more is reserved: others should serve the rest."""
    bounds_outstanding: bool = False
    """Outstanding messages take room in the agenda."""
    extends: bool = False
    """The leases of outstanding messages are extended."""
    most_extensions: int = _UNBOUNDED
    """A message that is outstanding for longer than this many extensions may lapse."""
    gather_ms: int = 0
    """How long acks and retries wait for others, to share a call."""


class Delivery:
    """The messages of one consumer, from their reservation to their settlement.

    `credit` is the number of further messages that may be delivered. `gate` is the state of the output that
    takes them.
    """

    def __init__(
        self,
        agenda: Agenda,
        session: Session,
        *,
        consumer: str,
        lease_ms: int,
        ranges: Sequence[BucketRange] = (),
        credit: int = _UNBOUNDED,
        gate: OutputGate | None = None,
        options: DeliveryOptions | None = None,
    ) -> None:
        self.agenda = agenda
        self.session = session
        self.consumer = consumer
        self.ranges = tuple(ranges)
        self.backups = BackupRanges()
        self.lease_ms = lease_ms
        """The duration of its leases while the shell is quick."""
        self.credit = credit
        self.gate = gate
        self.outstanding: dict[str, Lease] = {}
        self.paused = ""
        """Why nothing is reserved or delivered; empty while the consumer is served."""
        self.ending = False
        """Nothing more is reserved."""
        self.closed = False
        """Nothing more is reserved or delivered, for good."""
        self.handing_since: int | None = None
        """The start of the current hand-over, of a shell whose deliveries can block."""
        self.heard: int | None = None
        """The earliest notice since the last reservation began, which may have missed its message."""
        self.given_back = 0
        """The number of messages that were ever unreserved."""
        self._options = options or DeliveryOptions()
        self._weights: dict[str, int] = {}
        self._lapsed: list[Lease] = []
        self._reserving: Reserve | None = None
        self._is_idle = False  # the last reservation in the own ranges left nothing there
        self._has_found = False  # the last reservation found messages
        self._is_granted = False  # the reservation that is under way was answered
        self._late: set[str] = set()
        self._unanswered: list[_Unanswered] = []
        self._waiting: dict[How, list[Lease]] = {"ack": [], "retry": [], "unreserve": []}
        self._settle_at: int | None = None
        self._repeats: list[tuple[int, Settle]] = []
        self._settling = 0
        self._unanswered_extension: Extend | None = None
        self._repeat_extension_at = 0
        self._slow_ms = 0
        self._margin_ms = agenda.margin_ms
        self._first_end_ms: int | None = None  # no outstanding lease to extend ends before it
        self._over: set[str] = set()  # outstanding, but their leases were lost
        # Messages with a good result whose acks were refused because they came too late, by version.
        self._unwritten: dict[str, int] = {}

    # The pace of the shell

    def took(self, round_ms: int) -> None:
        """A round of the shell, in which it can extend leases once, took this long."""
        self._slow_ms = max(round_ms, self._slow_ms - self._slow_ms // _SLOW_FADES - 1, 0)
        most_ms = self.lease_span_ms * _MARGIN_ROUNDS // _LEASE_ROUNDS
        self.agenda.margin_ms = max(self._margin_ms, min(_MARGIN_ROUNDS * self._slow_ms, most_ms))

    @property
    def lease_span_ms(self) -> int:
        """The duration of a lease that is taken or extended now."""
        longest_ms = _MOST_LEASES * self.lease_ms
        return max(self.lease_ms, min(_LEASE_ROUNDS * self._slow_ms, longest_ms))

    # Reserving

    @property
    def can_reserve(self) -> bool:
        has_ranges = bool(self.ranges or self.backups.ranges)
        return has_ranges and not (self.ending or self.closed or self.paused)

    @property
    def wanted(self) -> int:
        """The number of messages to reserve next."""
        room = min(self.agenda.room(), self.credit - len(self.agenda), self._options.rows)
        return min(room, 1) if self.gate is not None and not self.gate.is_open else room

    def reserve_at(self, now_ms: int) -> int | None:
        """When to reserve next; None means not before something changes."""
        if self._reserving is not None or not self.can_reserve or self.wanted <= 0:
            return None
        if self._is_stuck(now_ms) or self._is_behind(now_ms):
            return None
        reserve_at = self._earliest(now_ms)
        if reserve_at is None or self.gate is None or self.gate.is_open:
            return reserve_at
        opens_at = self.gate.opens_at(now_ms)  # one at a time while the output fails
        return None if opens_at is None or self.agenda else max(reserve_at, opens_at)

    def _earliest(self, now_ms: int) -> int | None:
        own_at = self.agenda.reserve_at(now_ms) if self.ranges else None
        backup_at = self.backups.look_at(now_ms) if self._is_free else None
        return min((each for each in (own_at, backup_at) if each is not None), default=None)

    @property
    def is_idle(self) -> bool:
        """Whether its own ranges had no more messages when they were asked last."""
        return self._is_idle

    @property
    def _is_free(self) -> bool:
        """Whether it can be served from its backup ranges."""
        return self._is_idle or not self.ranges

    def _is_stuck(self, now_ms: int) -> bool:
        """Whether a hand-over takes too long, so that others should serve the rest."""
        return self.handing_since is not None and now_ms - self.handing_since >= self.lease_ms // 4

    def _is_behind(self, now_ms: int) -> bool:
        next_due = self.agenda.deliver_at()
        return (
            self._options.most_overdue is not None
            and next_due is not None
            and next_due <= now_ms
            and len(self.agenda) >= self._options.most_overdue
        )

    def reserve(self, now_ms: int, most: int | None = None) -> Reserve | None:
        """The reservation to make now, of at most this number, under a session of its own."""
        reserve_at = self.reserve_at(now_ms)
        if reserve_at is None or reserve_at > now_ms:
            return None
        own_at = self.agenda.reserve_at(now_ms) if self.ranges else None
        is_backup = own_at is None or own_at > now_ms  # the own ranges come first
        self._is_granted = False
        if not is_backup:
            self.heard = None
        self._reserving = Reserve(
            session=self.session.new_grant(),
            ranges=(self.backups.next_range,) if is_backup else self.ranges,
            limit=self.wanted if most is None else min(self.wanted, most),
            reach_ms=0 if is_backup else self.agenda.reach_ms(now_ms),
            lease_ms=self.lease_span_ms,
            asked_ms=now_ms,
            since_ms=0 if is_backup else self.agenda.since_ms(now_ms),
            is_backup=is_backup,
        )
        return self._reserving

    def reserved(self, command: Reserve, leased: Sequence[LeasedMessage]) -> bool:
        """Takes in a granted reservation; False if its messages go back, since the consumer has left.

        Call it before `completed`: a message that is due already must not wait for the query of the next one.
        """
        self._late.discard(command.session)
        is_current = self._reserving is command
        self._is_granted |= is_current
        if self._options.extends:
            returned = self._returned(
                [each.lease for each in leased if each.taken_from == self.consumer],
                most_versions=_OWN_VERSIONS,
            )
            if returned:
                leased = [each for each in leased if each.lease.id not in returned]
        if not is_current or self.closed or self.paused:
            self.give_back([each.lease for each in leased])
            return False
        if leased or not command.is_backup:
            self.agenda.reserved(leased, next_ts=None, more=True, now_ms=command.asked_ms)
        self._has_found = bool(leased)
        return True

    def _returned(self, leases: Sequence[Lease], *, most_versions: int) -> set[str]:
        """Takes in leases on messages that have left before, whose earlier leases lapsed; returns their ids.

        A message that is still outstanding goes on under its new lease, and one with a result is acked.
        """
        if not leases:
            return set()
        acks = [*self._waiting["ack"]]
        acks += [
            lease for _, settle in self._repeats if settle.how == "ack" for lease in settle.leases
        ]
        unacked = {lease.id: lease for lease in acks}
        renewed: dict[str, Lease] = {}
        returned = set()
        for lease in leases:
            before = self.outstanding.get(lease.id)
            if before is not None and 0 < lease.version - before.version <= most_versions:
                self.outstanding[lease.id] = replace(lease, since=before.since)
                self._over.discard(lease.id)
                self._note_end(lease)
                returned.add(lease.id)
            elif (
                ack := unacked.get(lease.id)
            ) and 0 < lease.version - ack.version <= most_versions:
                renewed[lease.id] = lease
            elif 0 < lease.version - self._unwritten.get(lease.id, lease.version) <= most_versions:
                del self._unwritten[lease.id]
                self._waiting["ack"].append(lease)
                self._settle_at = 0
                returned.add(lease.id)
        self._rename(unacked, renewed)
        return returned | renewed.keys()

    def completed(
        self, command: Reserve, *, next_ts: int | None, more: bool, clear_ms: int = 0
    ) -> None:
        """The reservation is over; the next message is due at `next_ts`, or `more` are due already.

        It left nothing before `clear_ms`, if that is known.
        """
        if self._reserving is command:
            self._reserving = None
        if command.is_backup:
            self.backups.looked(found=self._has_found, next_ts=next_ts, now_ms=command.asked_ms)
            return
        self._is_idle = not more
        self.agenda.reserved((), next_ts=next_ts, more=more, now_ms=command.asked_ms)
        self.agenda.cleared(clear_ms, since_ms=command.since_ms, now_ms=command.asked_ms)
        if self.heard is not None:
            self.agenda.noticed(self.heard)

    def late(self, command: Reserve, *, rest_ms: int, now_ms: int) -> None:
        """Gives up waiting for the answer; if it still comes, its messages go back."""
        self._late.add(command.session)
        self._release(command, now_ms + rest_ms, now_ms)

    def _release(self, command: Reserve, until_ms: int, now_ms: int) -> None:
        """Another reservation may be made, after a rest."""
        if self._reserving is command:
            self._reserving = None
            self.agenda.postponed(until_ms, now_ms=now_ms)
            self.backups.postponed(until_ms)

    def noticed(self, due: int | None) -> bool:
        """A message was put at `due`; None if its time is unknown, so that the store must be asked.

        Returns whether the next reservation is earlier by that.
        """
        at_ms = -1 if due is None else due
        self.heard = at_ms if self.heard is None else min(self.heard, at_ms)
        is_earlier = self.backups.noticed(due) and self._is_free
        return self.agenda.noticed(due) or is_earlier

    def covers(self, buckets: Sequence[int] | None) -> bool:
        """Whether it serves one of these buckets, which are sorted; None means that they are not known."""
        if buckets is None:
            return True
        return any(each.has_any(buckets) for each in (*self.ranges, *self.backups.ranges))

    def cover(self, ranges: Sequence[BucketRange], backups: Sequence[BucketRange] = ()) -> None:
        """Reserves in these ranges from now on; held messages of other ranges are still delivered."""
        self.backups.cover(backups)
        if tuple(ranges) != self.ranges:
            self.ranges = tuple(ranges)
            self._is_idle = False
            self.agenda.noticed(None)

    # Delivering

    @property
    def can_deliver(self) -> bool:
        return self.credit > 0 and not (self.closed or self.paused)

    def deliver(
        self, now_ms: int, limit: int | None = None, *, ahead_ms: int = 0
    ) -> list[LeasedMessage]:
        """Removes and returns the messages that leave now, in order of `due`; they are outstanding then."""
        if not self.can_deliver:
            return []
        allowed = None if self.gate is None else self.gate.allows(now_ms)
        limit = min(
            self.credit, *(each for each in (limit, allowed) if each is not None), _UNBOUNDED
        )
        ready = self.agenda.deliver(now_ms, limit, ahead_ms=ahead_ms)
        self.give_back(self.agenda.expired())
        self.too_late(self.agenda.lapsed(), now_ms)
        if not ready:
            return ready
        if self.gate is not None:
            self.gate.passed()
        self.credit -= len(ready)
        for each in ready:
            self._hand_out(each)
        return ready

    def _hand_out(self, leased: LeasedMessage) -> None:
        self.outstanding[leased.lease.id] = leased.lease
        self._over.discard(leased.lease.id)
        self._note_end(leased.lease)
        if self._options.bounds_outstanding:
            message = leased.message
            weight = content_bytes(leased.body, message.key, message.headers)
            # A message whose lease lapsed can be granted again before its first delivery is forgotten.
            self.agenda.away_bytes += weight - self._weights.get(leased.lease.id, 0)
            self._weights[leased.lease.id] = weight
            self.agenda.away = len(self._weights)

    def deliver_at(self, now_ms: int) -> int | None:
        """When the next message leaves; None means not before another event."""
        if not self.can_deliver:
            return None
        next_due = self.agenda.deliver_at()
        if next_due is None or self.gate is None:
            return next_due
        opens_at = self.gate.opens_at(now_ms)
        return None if opens_at is None else max(next_due, opens_at)

    def too_late(self, leases: Iterable[Lease], now_ms: int) -> None:
        """Gives back leases that end before their messages can leave, if they still live."""
        for lease in leases:
            self.forget(lease)
            self._lapsed.append(lease)
            if lease.until > now_ms:
                self.give_back([lease])

    def take_lapsed(self) -> list[Lease]:
        """Removes and returns the leases whose messages came too late to leave."""
        lapsed, self._lapsed = self._lapsed, []
        return lapsed

    def resumed(self, leased: LeasedMessage, *, in_hand: bool, now_ms: int) -> None:
        """Takes in a resumed lease; a message that the consumer does not have is delivered again."""
        if in_hand:
            self._hand_out(leased)
        elif self.agenda.has_room_for(leased):
            self.agenda.reserved([leased], next_ts=None, more=True, now_ms=now_ms)
        else:
            self.give_back([leased.lease])

    # Results of deliveries

    def settle(self, how: How, leases: Sequence[Lease], *, now_ms: int) -> None:
        """Takes in the results of deliveries, which must be settled in the store."""
        for lease in leases:
            self.forget(lease)
        if how == "unreserve":
            self.give_back(leases)
        elif leases:
            self._waiting[how] += leases
            if self._settle_at is None:
                self._settle_at = now_ms + self._options.gather_ms

    def forget(self, lease: Lease | Change) -> None:
        """Ends an outstanding delivery. A later lease of the same message is not affected."""
        known = self.outstanding.get(lease.id)
        if known is None or known.version != lease.version:
            return
        del self.outstanding[lease.id]
        self._over.discard(lease.id)
        if self._options.bounds_outstanding:
            self.agenda.away_bytes -= self._weights.pop(lease.id)
            self.agenda.away = len(self._weights)

    def moved(self, message_id: str, version: int, until_ms: int) -> None:
        """The lease of an outstanding message was extended."""
        lease = self.outstanding.get(message_id)
        if lease is not None:
            self.outstanding[message_id] = lease.extended(version, until_ms)

    def with_session(self, change: Change) -> Change:
        """The change with the session of its lease, if that or a later version of it is outstanding."""
        known = self.outstanding.get(change.id)
        if known is None or change.version < known.since:
            return change
        return change._replace(session=known.session)

    def current(self, lease: Lease) -> Lease | None:
        """The lease of an outstanding message as it is now, by the one under which it left."""
        known = self.outstanding.get(lease.id)
        return known if known is not None and known.since == lease.since else None

    def ending_by(self, until_ms: int) -> list[Lease]:
        """The outstanding leases that end by a moment."""
        return [each for each in self.outstanding.values() if each.until <= until_ms]

    def keeps_any(self, now_ms: int) -> bool:
        """Whether a live lease of an outstanding message is still extended."""
        return any(
            each.until > now_ms and self._may_extend(each) for each in self.outstanding.values()
        )

    def unanswered_by(self, until_ms: int) -> list[Lease]:
        """The outstanding leases that end by a moment, and are not extended any more."""
        return [each for each in self.ending_by(until_ms) if not self._may_extend(each)]

    # Giving back

    def give_back(self, leases: Sequence[Lease]) -> None:
        if leases:
            self._waiting["unreserve"] += leases
            self.given_back += len(leases)
            self._settle_at = 0

    def give_back_waiting(self, now_ms: int) -> None:
        """Gives back held messages whose lease is half over: the hand-over before them is stuck."""
        self.give_back(self.agenda.ending(now_ms + self.lease_ms // 2))

    def pause(self, reason: str) -> None:
        """Pauses while there is a reason: nothing is reserved or delivered, and held messages go back."""
        self.paused = reason
        if reason:
            self.give_back(self.agenda.give_back())

    def begin(self) -> None:
        self.ending = False

    def end(self, keep_until_ms: int | None = None) -> None:
        """Ends reservations, and gives back messages that fall due after a moment; without one, all."""
        self.ending = True
        agenda = self.agenda
        self.give_back(
            agenda.give_back() if keep_until_ms is None else agenda.beyond(keep_until_ms)
        )

    def close(self) -> None:
        """The consumer has left for good."""
        self.closed = True
        self.give_back(self.agenda.give_back())

    def abandon(self) -> int:
        """Abandons held and outstanding messages, whose leases lapse; returns their number."""
        left = len(self.agenda.give_back()) + len(self.outstanding)
        for lease in list(self.outstanding.values()):
            self.forget(lease)
        return left

    # Requests to the store

    def next_chore(self, now_ms: int, *, at_once: bool = False) -> Chore | None:
        """The next request to the store; with `at_once` acks and retries do not wait for others."""
        unanswered = self._unanswered_extension
        if unanswered is not None:  # no other request before the current version is known
            return unanswered if self._is_due(self._repeat_extension_at, now_ms) else None
        chore = self._look(now_ms) or self._settle(now_ms, at_once=at_once)
        return chore or (self._extend(now_ms) if self._options.extends else None)

    def chore_at(self, now_ms: int) -> int | None:
        """When `next_chore` has the next request, as far as is known."""
        if self._unanswered_extension is not None:
            return self._repeat_extension_at
        moments = [each.look_at for each in self._unanswered if not each.under_way]
        moments += [at_ms for at_ms, _ in self._repeats]
        if self._settle_at is not None:
            moments.append(self._settle_at)
        if self._first_end_ms is not None:
            moments.append(self._first_end_ms - self.lease_span_ms // 2)
        return min(moments, default=None)

    def _is_due(self, at_ms: int, now_ms: int) -> bool:
        """A moment that lies further ahead than any rest is from before the clock was put back."""
        longest_ms = max(_MOST_REST_MS, WRITE_BOUND_MS, self._options.gather_ms)
        return not now_ms < at_ms <= now_ms + longest_ms

    def _extend(self, now_ms: int) -> Extend | None:
        span_ms = self.lease_span_ms
        by_ms = now_ms + span_ms // 2
        if self._first_end_ms is None or self._first_end_ms > by_ms:
            return None
        leases = [each for each in self.outstanding.values() if self._may_extend(each)]
        ending = sorted(
            (lease for lease in leases if lease.until <= by_ms), key=lambda each: each.until
        )
        if ending:
            return Extend(leases=tuple(ending[:_SETTLE_ROWS]), lease_ms=span_ms)
        self._first_end_ms = min((lease.until for lease in leases), default=None)
        return None

    def _may_extend(self, lease: Lease) -> bool:
        is_tried = lease.version - lease.since >= self._options.most_extensions
        return not is_tried and lease.id not in self._over

    def _note_end(self, lease: Lease) -> None:
        """An outstanding lease must be extended before it ends."""
        if self._options.extends and (
            self._first_end_ms is None or lease.until < self._first_end_ms
        ):
            self._first_end_ms = lease.until

    def _look(self, now_ms: int) -> Look | None:
        for each in self._unanswered:
            if not each.under_way and self._is_due(each.look_at, now_ms):
                each.under_way = True
                # A first look is never the last: after a clock was put back, too little time may have passed.
                is_over = not each.told_ms <= now_ms < each.told_ms + WRITE_BOUND_MS
                is_last = each.looked and is_over
                return Look(session=each.session, is_last=is_last)
        return None

    def _settle(self, now_ms: int, *, at_once: bool) -> Settle | None:
        for place, (at_ms, settle) in enumerate(self._repeats):
            if at_once or self._is_due(at_ms, now_ms):
                del self._repeats[place]
                self._settling += 1
                return settle
        if self._settle_at is None or not (at_once or self._is_due(self._settle_at, now_ms)):
            return None
        for how, waiting in self._waiting.items():
            if waiting:
                self._settling += 1
                leases, self._waiting[how] = waiting[:_SETTLE_ROWS], waiting[_SETTLE_ROWS:]
                if not any(self._waiting.values()):
                    self._settle_at = None
                return Settle(how=how, leases=tuple(leases))
        return None

    def found(self, command: Look, messages: Iterable[Message]) -> None:
        """Takes in the rows of an unanswered reservation; they go back, to be reserved again.

        Messages that have left under an earlier lease stay.
        """
        leases = [
            Lease(
                id=each.id,
                consumer=self.consumer,
                version=each.version,
                until=each.ts,
                session=command.session,
                since=each.version,
            )
            for each in messages
        ]
        waiting = set(self._waiting["unreserve"])  # since the first look
        # Only the reservation itself can have made the next version of a lease.
        returned = self._returned(leases, most_versions=1) if self._options.extends else set()
        self.give_back(
            [lease for lease in leases if lease not in waiting and lease.id not in returned]
        )
        for entry in self._of(command):
            entry.looked, entry.under_way = True, False
            entry.look_at = entry.told_ms + WRITE_BOUND_MS
            if command.is_last:
                self._unanswered.remove(entry)

    def settled(self, command: Settle, refused: Container[str] = ()) -> None:
        """Ends a settling; the changes of some ids were refused.

        A message that was given back may lie before the horizon of a reservation.
        """
        self._settling -= 1
        if command.how == "unreserve":
            self.noticed(None)
        elif command.how == "ack" and self._options.extends:
            for lease in command.leases:
                if lease.id in refused:
                    self._unwritten[lease.id] = lease.version
            while len(self._unwritten) > _MOST_UNWRITTEN:
                del self._unwritten[next(iter(self._unwritten))]

    def extended(self, command: Extend, kept: Iterable[Lease]) -> list[Lease]:
        """Notes the new versions of the leases that were extended, for all later changes of their messages.

        The others are over. Returns those whose deliveries are still under way.
        """
        self._unanswered_extension = None
        old = {lease.id: lease for lease in command.leases}
        new = {lease.id: lease for lease in kept}

        lost = []
        for lease in command.leases:
            if self.outstanding.get(lease.id) != lease:
                continue
            if lease.id in new:
                self.outstanding[lease.id] = new[lease.id]
                self._note_end(new[lease.id])
            else:
                self._over.add(lease.id)
                lost.append(lease)
        self._rename(old, new)
        return lost

    def _rename(self, old: Mapping[str, Lease], new: Mapping[str, Lease]) -> None:
        """Leases have new versions: changes that wait for their turn name these."""
        if not new:
            return

        def renamed(leases: Iterable[Lease]) -> list[Lease]:
            return [
                new[lease.id] if lease.id in new and old[lease.id] == lease else lease
                for lease in leases
            ]

        self._waiting = {how: renamed(leases) for how, leases in self._waiting.items()}
        self._repeats = [
            (at_ms, replace(each, leases=tuple(renamed(each.leases))))
            for at_ms, each in self._repeats
        ]

    def failed(self, command: Command, *, unknown: bool, rest_ms: int, now_ms: int) -> list[Lease]:
        """The store could not be asked, or with `unknown` did not answer.

        The command is repeated after a rest, and the rows of a reservation of unknown outcome are looked up.
        Returns the leases that can no longer be given back: they lapse.
        """
        rest_ms = min(rest_ms, _MOST_REST_MS)
        if isinstance(command, Reserve):
            self._reserve_failed(command, unknown, now_ms + rest_ms, now_ms)
        elif isinstance(command, Look):
            self._look_failed(command, now_ms + rest_ms, now_ms)
        elif isinstance(command, Settle):
            return self._settle_failed(command, unknown, now_ms + rest_ms)
        elif unknown or command.again:
            self._unanswered_extension = replace(command, again=True)
            self._repeat_extension_at = now_ms + rest_ms
        return []

    def _reserve_failed(self, command: Reserve, unknown: bool, until_ms: int, now_ms: int) -> None:
        self._late.discard(command.session)
        # After the grant only the query of the next due time can have failed.
        is_granted = self._reserving is command and self._is_granted
        if unknown and not is_granted:
            over_ms = now_ms + WRITE_BOUND_MS + command.reach_ms + command.lease_ms
            self._unanswered.append(_Unanswered(command.session, now_ms, over_ms, look_at=now_ms))
        self._release(command, until_ms, now_ms)

    def _look_failed(self, command: Look, until_ms: int, now_ms: int) -> None:
        for entry in self._of(command):
            entry.under_way, entry.look_at = False, until_ms
            if now_ms >= entry.over_ms:
                self._unanswered.remove(entry)

    def _settle_failed(self, command: Settle, unknown: bool, until_ms: int) -> list[Lease]:
        self._settling -= 1
        # An ack or a retry is sent all the same: the store gives the reason of a refusal.
        is_given_back = command.how == "unreserve"
        left = tuple(each for each in command.leases if not is_given_back or each.until > until_ms)
        lapsing = [each for each in command.leases if is_given_back and each.until <= until_ms]
        if left:
            repeat = replace(command, leases=left, again=command.again or unknown)
            self._repeats.append((until_ms, repeat))
        return lapsing

    def _of(self, command: Look) -> list[_Unanswered]:
        return [each for each in self._unanswered if each.session == command.session]

    @property
    def is_settled(self) -> bool:
        """Whether no request is pending, and every unanswered reservation was looked up."""
        says = any(self._waiting.values()) or self._repeats or self._settling
        return not says and all(each.looked for each in self._unanswered)

    @property
    def is_finished(self) -> bool:
        """Whether nothing is left to do for a consumer that has left."""
        asks = self._reserving is not None or self._late or self._unanswered
        return self.closed and self.is_settled and not asks


def is_unknown(error: BaseException) -> bool:
    """Whether a change that raised this may have happened: the error is unexpected, or says so."""
    return not isinstance(error, ChronolineError) or isinstance(error, OutcomeUnknown)
