"""The contract of a timeline store. These docstrings are the specification; engines add nothing to know.

Everywhere:

- Calls are synchronous, thread-safe, and take batches of at most 10,000 items. A batch is answered with one
  outcome for each item, in the order of the batch. An invalid item is refused as `invalid` and the
  others are done. The same id twice in a batch is handled as two batches, one after the other.
- `now_ms` is the caller's clock. No engine reads a clock of its own. The clocks of processes that share a
  store differ by at most `CLOCK_BOUND_MS`, and a create takes effect at most `WRITE_BOUND_MS` after its
  `now_ms`: a create that waits longer than a second for its turn is refused with `StoreBusy`. Within these
  bounds, no version of an id is ever used twice.
- Every change is one conditional write that checks its guard and adds 1 to the version. *Refused* means
  that nothing changed. The permissions by role, operation and state are in `core.permissions`.
- Errors concern the whole call: `TopicNotFound` if the uid names no live topic, `InvalidInput` for
  arguments that belong to no single item, `StoreUnavailable` (and its subclasses) if nothing was changed,
  `OutcomeUnknown` if the store did not answer a change. Then some of the batch may be done: call again, with
  `again=True`. If other transactions hold some of the messages, the error's `answered` has the outcome of
  each.
- `again` says that an earlier attempt of this very call was not answered. The items are tried, and the row
  decides about an item that is refused: done if the row names the same hand as its last (the lease's
  `session`, and the version after its own), refused if it names another, `unknown` if it does not tell or if
  the earlier attempt may still take effect.
- A change that was answered survives the death of the process and of the machine, on engines whose
  `capabilities.durable` says so. That holds as well for an answer that rests on what the store has already:
  done before, `exists`, deleted before. A read may show a change before it is durable (`await_durable`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, NamedTuple, TypeVar

from chronoline.core import limits
from chronoline.core.change import (
    Change,
    check_batch_size,
    lease_change,
    lease_changes,
    letter_changes,
    pair_changes,
)
from chronoline.core.message import (
    DeadLetter,
    Lease,
    LeaseTime,
    Message,
    NewMessage,
    SavedMessage,
)
from chronoline.core.outcome import Grant, Outcome
from chronoline.core.permissions import Actor, Operation
from chronoline.core.ranges import BucketRange
from chronoline.core.status import Life
from chronoline.core.topic import DEFAULT_SETTINGS, Topic, TopicSettings
from chronoline.runtime.partner_traffic import PartnerTraffic
from chronoline.runtime.service import Closable
from chronoline.stores.checks import check_name, check_time
from chronoline.stores.inputs import InputAccount, InputClaim, Intake, TakenIn
from chronoline.stores.members import Member
from chronoline.stores.schedules import ScheduleStore

Result = TypeVar("Result")
IfExists = Literal["refuse", "replace"]
MAX_BATCH = limits.MAX_BATCH
MAX_FORECAST_STEPS = 100_000
NOTICE_HORIZON_MS = 10_000
"""Watches hear of changes that fall due within this time. Look again at least this often."""


class Reach(StrEnum):
    """How far a probe of the store got."""

    NOTHING = "nothing"
    """The store did not answer."""
    READS = "reads"
    """It answers reads, and does not finish changes."""
    CHANGES = "changes"
    """It takes changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """The abilities of an engine. The conformance suite reads them."""

    durable: bool
    """Answered changes survive a crash."""
    shared: bool
    """Several processes may work on it at the same time."""
    concurrent_writers: bool
    """Writes run beside each other. If not, one thread writes for the whole store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Messages without their bodies, and whether there are more than the limit allowed."""

    messages: tuple[Message, ...]
    more: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Bodies:
    """Bodies by id, and a refusal for each id whose body was not given."""

    found: dict[str, bytes | None]
    refused: tuple[Outcome, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How many messages are in each status."""

    available: int = 0
    processing: int = 0
    waiting: int = 0

    @property
    def total(self) -> int:
        return self.available + self.processing + self.waiting


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastStep:
    """The messages of the timeline from `start` until the next step."""

    start: int
    counts: Counts


@dataclass(frozen=True, slots=True, order=True)
class Returned:
    """A consumer that resumed its leases. Of two sessions of one name the greater is the later."""

    at: int
    session: str
    consumer: str


class Recipient(NamedTuple):
    """A consumer for which messages are reserved, by the session that is granted their leases."""

    consumer: str
    session: str
    ranges: Sequence[BucketRange]
    limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """A change that concerns a sleeper. If a field is None, it is not known: look."""

    topic_uid: int | None = None
    due: int | None = None
    """The earliest due time of the messages that changed."""
    buckets: tuple[int, ...] | None = None
    """Their buckets, sorted, where they are few."""
    returned: Returned | None = None
    """Instead of a change: a consumer's name has a new session. Others of that name have lost it."""
    topic_changed: bool = False
    """Instead of a change of messages: the topic was paused or resumed, or its settings were changed."""
    schedules: bool = False
    """Instead of a change: a schedule was created or changed, and may be next."""


class StoredRow(NamedTuple):
    """The part of a row that the guards read."""

    life: Life
    ts: int
    producer_group: str
    lock_consumer: str | None
    version: int
    due: int
    expires: int | None = None
    lock_session: str | None = None
    """The session that was granted the last lease; it stays when that session gives the message back."""
    digest: bytes | None = None
    """Of the message, as its producer gave it; the mark keeps it."""
    early_cancel: str | None = None
    """Of a mark: the partition of the cancel that waits for its create until `ts`."""


class Watch(Closable):
    """A place to sleep until a message may have to be served earlier than was known."""

    @abstractmethod
    def wait(self, timeout_s: float) -> list[Notice]:
        """Sleeps until there is a notice, the time is over, or `wake` is called.

        There is a notice of every change that this or another process committed after the watch was made, if
        it falls due within `NOTICE_HORIZON_MS` of its own `now_ms`. Notices may be spurious.
        """

    @abstractmethod
    def wake(self) -> None:
        """Ends a `wait` from another thread, or the next one if nobody waits."""

    @abstractmethod
    def close(self) -> None:
        """Ends a `wait` and frees the watch's resources. May be called twice."""


class Store(ScheduleStore, Closable):
    """Durable messages with a due time. Obtained from `chronoline.store.open_store(url)`."""

    capabilities: Capabilities
    traffic: PartnerTraffic | None = None
    """That with the store's server; None for a store without one."""

    # Topics

    @abstractmethod
    def create_topic(
        self, name: str, settings: TopicSettings = DEFAULT_SETTINGS, *, now_ms: int
    ) -> Topic:
        """Creates a topic and its storage, with a new uid.

        Raises `TopicExists` while a topic of that name exists or is still being removed.
        """

    @abstractmethod
    def ensure_topic(
        self, name: str, settings: TopicSettings = DEFAULT_SETTINGS, *, now_ms: int
    ) -> Topic:
        """The live topic with this name, made with these settings if there is none.

        Raises `TopicExists` while a topic of that name is still being deleted.
        """

    @abstractmethod
    def get_topic(self, uid: int) -> Topic:
        """The live topic with this uid. Raises `TopicNotFound`."""

    @abstractmethod
    def find_topic(self, name: str) -> Topic | None:
        """The live topic with this name, if there is one."""

    @abstractmethod
    def list_topics(self) -> list[Topic]:
        """All live topics, by name."""

    @abstractmethod
    def deleted_topics(self) -> list[Topic]:
        """Deleted topics whose messages are still being removed, by name. Their names are taken."""

    @abstractmethod
    def delete_topic(self, uid: int, *, now_ms: int) -> bool:
        """Deletes a topic, for every process at once; false if it was deleted before.

        `purge` removes its messages. Its name stays taken until that is done.
        """

    @abstractmethod
    def changed_topics(self) -> list[Topic]:
        """The live topics that were changed since they were created (revision above 1), by name."""

    @abstractmethod
    def change_topic(
        self, uid: int, settings: TopicSettings, *, revision: int | None = None, now_ms: int
    ) -> Topic:
        """Changes the settings of a topic, and answers it as it is then.

        With a `revision` the topic must have it: raises `TopicChanged` if another changed it meanwhile.
        Raises `InvalidInput` for settings that cannot change, and if dead letters are there that would no
        longer be kept. Watches get a notice. Every process uses the new settings after two seconds at most,
        by the `now_ms` of its writes.
        """

    @abstractmethod
    def pause_topic(self, uid: int, *, by: str = "", reason: str = "", now_ms: int) -> Topic:
        """Pauses a topic, and answers it as it is then: nobody is granted a lease until it is resumed.

        Everything else goes on: messages are created, rescheduled and cancelled, and leases that are held are
        extended, settled and resumed. A message that expires meanwhile goes to the dead letters after the
        pause. A topic that is paused already stays so since then, with the new `by` and `reason`. Watches get
        a notice.
        """

    @abstractmethod
    def resume_topic(self, uid: int, *, now_ms: int) -> Topic:
        """Ends a pause, and answers the topic as it is then. Watches get a notice; sleepers look at once."""

    # Changes to messages

    @abstractmethod
    def apply(
        self, topic_uid: int, changes: Sequence[Change], *, again: bool = False, now_ms: int
    ) -> list[Outcome]:
        """Makes changes, all of one operation. The method with the operation's name says its rules.

        A change of another operation than the first is refused as `invalid`.
        """

    # Changes by producers

    @abstractmethod
    def create(
        self,
        topic_uid: int,
        messages: Sequence[NewMessage],
        *,
        if_exists: IfExists = "refuse",
        now_ms: int,
    ) -> list[Outcome]:
        """Puts messages on the timeline. Guard: the id is free.

        A message or a dead letter takes its id, and keeps it for the topic's `dedupe_ms` after an ack,
        a cancel or a discard; then the outcome is `exists`. The first version is `now_ms`, or one more
        than the mark of a deleted message if that is greater, so that no old lease fits it.

        A message may have a `digest`, which its mark and its dead letter keep. The outcome of a refused
        create has `repeated` if the row that takes the id has the same digest.

        With `if_exists="replace"` the owner cancels the message that has the id and creates the new one in
        one step. Guard: own producer group and no live lease; and no mark of a message with the same digest.
        """

    @abstractmethod
    def restore(
        self, topic_uid: int, messages: Sequence[SavedMessage], *, now_ms: int
    ) -> list[Outcome]:
        """Creates messages and dead letters as an export saved them, all in one transaction.

        Guard: the id is free, as for `create`. Attempts, the due, and reason and time of a death are those
        that were saved. A repeated call answers `exists` and changes nothing.
        """

    def reschedule(
        self,
        topic_uid: int,
        moves: Sequence[tuple[str, int]],
        *,
        producer_group: str,
        again: bool = False,
        now_ms: int,
    ) -> list[Outcome]:
        """Moves messages (id, new due) on the timeline, also into the past. Sets `due = ts`.

        Guard: own producer group and no live lease; and the message does not expire until the new due, nor
        has it expired: then it could never be delivered, and the outcome is `expired`. `apply` takes a
        `Change` with a new `expires` too. A lapsed lease counts as an attempt.
        """
        check_name("producer group", producer_group)

        def change(message_id: str, due: int) -> Change:
            return Change(Operation.RESCHEDULE, message_id, producer_group, to=due)

        changes = pair_changes(Operation.RESCHEDULE, moves, "(id, due)", change)
        return self.apply(topic_uid, changes, again=again, now_ms=now_ms)

    def cancel(
        self,
        topic_uid: int,
        ids: Sequence[str],
        *,
        producer_group: str,
        again: bool = False,
        now_ms: int,
    ) -> list[Outcome]:
        """Deletes messages for their owner. Guard: own producer group and no live lease.

        A repeated cancel is done and changes nothing, within the topic's `dedupe_ms`.
        """
        check_name("producer group", producer_group)
        check_batch_size(ids)
        changes = [Change(Operation.CANCEL, each, producer_group) for each in ids]
        return self.apply(topic_uid, changes, again=again, now_ms=now_ms)

    # Leases and changes by consumers

    @abstractmethod
    def reserve(
        self,
        topic_uid: int,
        ranges: Sequence[BucketRange],
        *,
        consumer: str,
        limit: int,
        lease_ms: int,
        reserve_ahead_ms: int = 0,
        session: str = "",
        since_ms: int = 0,
        now_ms: int,
    ) -> Grant:
        """Leases the oldest messages of these bucket ranges, bodies included.

        The rows name `session` as the one that was granted the leases (`core.session`). If the call is not
        answered, `select_held` with the same session shows which messages it leased.

        Guard: the topic is not paused, and `ts <= now`, or not locked and `ts <= now + reserve_ahead_ms` (at
        most 60 s). It skips rows that another transaction has locked, and takes those behind them. A lease
        ends at max(due, now) + `lease_ms`.

        The search starts at the beginning of time, so that it finds late commits. A caller that knows, from
        `Grant.clear_ms` of its last reservation in these ranges, that nothing was left before a moment can
        give that as `since_ms`, until it hears of a message: it spares the search the index entries of what
        is gone. An engine may ignore it.

        A message whose last lease lapsed has one attempt more. A message that has used up the topic's
        `max_attempts`, is past its `expires` (or will be at its due) or later than `max_lateness_ms` goes
        to the dead letters in the same write and is named in `refused`. The letter's reason is the first of
        `attempts`, `expired` and `max_lateness` that applies.
        """

    @abstractmethod
    def reserve_for(
        self,
        topic_uid: int,
        recipients: Sequence[Recipient],
        *,
        lease_ms: int,
        reserve_ahead_ms: int = 0,
        now_ms: int,
    ) -> list[Grant]:
        """Reserves for several consumers in one write: like `reserve` for each, in this order.

        Their ranges do not overlap. For many consumers with few messages each, it costs little more than one
        reservation.
        """

    @abstractmethod
    def lease(
        self,
        topic_uid: int,
        wanted: Sequence[tuple[str, int]],
        *,
        consumer: str,
        lease_ms: int,
        reserve_ahead_ms: int = 0,
        session: str = "",
        now_ms: int,
    ) -> Grant:
        """Leases messages by (id, version), after a read that showed them. Otherwise like `reserve`.

        Ids that were not leased are in `refused`, with the reason.
        """

    @abstractmethod
    def resume(
        self,
        topic_uid: int,
        consumer: str,
        *,
        after: str = "",
        limit: int,
        session: str = "",
        now_ms: int,
    ) -> Grant:
        """Gives a returning consumer its live leases back, by id behind `after`, under new versions.

        They come in the order of their ids: for the next page `after` is the last id of this one. The ends of
        the leases stay; the messages count as redelivered. The rows name `session` from now on, and
        `resumed_from` has the session that they named before. Old versions are refused. With a session,
        watches get a notice of it, in other processes too if the engine can send it.
        """

    def extend(
        self,
        topic_uid: int,
        leases: Sequence[tuple[Lease, LeaseTime]],
        *,
        again: bool = False,
        now_ms: int,
    ) -> list[Outcome]:
        """Moves the end of live leases to a new time, which is in the outcome; `due` stays.

        Guard: own live lease of this version, new end at least 10 ms after now and after the due. The
        outcome's version names the lease from now on: an extension of the version before is refused as
        `stale`, unless it is the same one `again`.
        """
        changes = _timed_changes(Operation.EXTEND, leases)
        return self.apply(topic_uid, changes, again=again, now_ms=now_ms)

    def release(
        self,
        topic_uid: int,
        leases: Sequence[tuple[Lease, LeaseTime]],
        *,
        again: bool = False,
        now_ms: int,
    ) -> list[Outcome]:
        """Gives messages back into the future, "not now". Sets `due = ts`; attempts stay.

        Guard: own live lease of this version, new time at least 10 ms ahead.
        """
        changes = _timed_changes(Operation.RELEASE, leases)
        return self.apply(topic_uid, changes, again=again, now_ms=now_ms)

    def retry(
        self,
        topic_uid: int,
        leases: Sequence[tuple[Lease, LeaseTime]],
        *,
        again: bool = False,
        now_ms: int,
    ) -> list[Outcome]:
        """Gives messages back into the future after a failed attempt. Sets `due = ts`.

        Guard: own live lease of this version, new time at least 10 ms ahead. Counts an attempt; at the
        topic's `max_attempts` the message goes to the dead letters in the same write, which is done too.
        """
        changes = _timed_changes(Operation.RETRY, leases)
        return self.apply(topic_uid, changes, again=again, now_ms=now_ms)

    def bury(
        self,
        topic_uid: int,
        leases: Sequence[tuple[Lease, str]],
        *,
        again: bool = False,
        now_ms: int,
    ) -> list[Outcome]:
        """Sends messages to the dead letters, with a reason that their consumer gives. Counts an attempt.

        Guard: own live lease of this version. The reason is text of at most 1,000 characters, without NUL,
        else the item is refused as `invalid`. A repeated bury by the same session is done.
        """

        def change(lease: Lease, reason: str) -> Change:
            return lease_change(Operation.BURY, lease, reason=reason)

        changes = pair_changes(Operation.BURY, leases, "(lease, reason)", change)
        return self.apply(topic_uid, changes, again=again, now_ms=now_ms)

    def unreserve(
        self, topic_uid: int, leases: Sequence[Lease], *, again: bool = False, now_ms: int
    ) -> list[Outcome]:
        """Gives messages back as they were: `ts = due`, not locked, attempts as they are.

        Guard: own live lease of this version.
        """
        changes = lease_changes(Operation.UNRESERVE, leases)
        return self.apply(topic_uid, changes, again=again, now_ms=now_ms)

    def ack(
        self, topic_uid: int, leases: Sequence[Lease], *, again: bool = False, now_ms: int
    ) -> list[Outcome]:
        """Deletes messages that their consumer has handled.

        Guard: own live lease of this version. A repeated ack of the same lease is done and changes
        nothing, within the topic's `dedupe_ms`.
        """
        changes = lease_changes(Operation.ACK, leases)
        return self.apply(topic_uid, changes, again=again, now_ms=now_ms)

    # Several changes at once

    @abstractmethod
    def together(self, works: Sequence[Callable[[], Result]]) -> list[Result | Exception]:
        """Runs functions that make changes by calls of this store, one after the other.

        Answers the result of each, or the error that it raised; an error does not stop the others. A durable
        engine whose writes exclude each other commits all of them together, which is much cheaper: then a
        function that raised has changed nothing, and if the commit fails, none is done and the error is
        raised. On other engines every call is a commit of its own, and stays if its function raises later.
        """

    # Reads

    @abstractmethod
    def select(
        self, topic_uid: int, ranges: Sequence[BucketRange], *, limit: int, max_ts: int
    ) -> Page:
        """The oldest messages of these ranges with `ts <= max_ts`, oldest first across the ranges."""

    @abstractmethod
    def lookup(self, topic_uid: int, ids: Sequence[str]) -> dict[str, Message]:
        """The messages with these ids; deleted, dead and unknown ones are missing."""

    @abstractmethod
    def bodies(self, topic_uid: int, ids: Sequence[str], *, actor: Actor, now_ms: int) -> Bodies:
        """The bodies of these messages, if the actor may read them."""

    @abstractmethod
    def select_held(
        self,
        topic_uid: int,
        consumer: str,
        *,
        session: str | None = None,
        after: str = "",
        first: str = "",
        limit: int,
    ) -> Page:
        """Messages that name this consumer, or one session of it, as their holder; lapsed leases included.

        By id from `first` on, beginning behind `after`: for the next page that is the last id of this one.
        """

    @abstractmethod
    def select_owned(
        self, topic_uid: int, producer_group: str, *, after: str = "", first: str = "", limit: int
    ) -> Page:
        """Messages of this producer group, by id, beginning behind `after` like `select_held`."""

    @abstractmethod
    def next_group(self, topic_uid: int, *, after: str = "") -> str | None:
        """The first producer group behind `after`, by name, that has messages; None at the end."""

    @abstractmethod
    def select_prefix(
        self, topic_uid: int, prefix: str, *, after: tuple[int, str] | None = None, limit: int
    ) -> Page:
        """Messages whose id begins with this, by (bucket, id), beginning behind that of `after`.

        No change moves a message in this order. With an empty prefix it reads the whole topic.
        """

    @abstractmethod
    def select_between(
        self,
        topic_uid: int,
        *,
        start: int = 0,
        end: int | None = None,
        after: tuple[int, str] | None = None,
        limit: int,
    ) -> Page:
        """Messages with `start <= ts < end` by (ts, id), beginning behind that of `after`.

        For many messages `scan` costs less: it does not sort across the buckets.
        """

    @abstractmethod
    def rows(self, topic_uid: int, ids: Sequence[str]) -> dict[str, StoredRow]:
        """The rows under these ids: messages, dead letters, and the marks of deleted messages."""

    @abstractmethod
    def count_owned(self, topic_uid: int, producer_group: str, *, most: int) -> int:
        """The number of messages of this producer group; `most` if there are as many or more.

        It costs as much as that number, whatever else the topic holds.
        """

    def next_ts(self, topic_uid: int, ranges: Sequence[BucketRange]) -> int | None:
        """The `ts` of the oldest message of these ranges: when something can next be leased."""
        return self.next_times(topic_uid, [ranges])[0]

    @abstractmethod
    def next_times(
        self, topic_uid: int, shares: Sequence[Sequence[BucketRange]]
    ) -> list[int | None]:
        """The `ts` of the oldest message of each share of the buckets; None while the topic is paused."""

    @abstractmethod
    def count(
        self, topic_uid: int, ranges: Sequence[BucketRange], *, start: int, end: int, now_ms: int
    ) -> Counts:
        """How many messages have `start <= ts < end`, by status."""

    @abstractmethod
    def forecast(
        self,
        topic_uid: int,
        ranges: Sequence[BucketRange],
        *,
        start: int,
        end: int,
        step_ms: int,
        now_ms: int,
    ) -> list[ForecastStep]:
        """`count` for each step of `step_ms` from `start` to `end`, empty ones included.

        At most 100,000 steps, else `InvalidInput`.
        """

    @abstractmethod
    def scan(
        self,
        topic_uid: int,
        ranges: Sequence[BucketRange],
        *,
        start: int = 0,
        end: int | None = None,
        after: Message | None = None,
        limit: int,
    ) -> Page:
        """All messages of these ranges with `start <= ts < end`, in pages and in an order of the engine's.

        Without an `end` the range is open. A page begins behind `after`: for the next page that is the last
        message of this one, even if it has been changed or deleted since. A message that keeps its place
        while the pages are read comes exactly once; one that moves meanwhile may come again, under another
        version, or not at all.
        """

    @abstractmethod
    def scan_held(self, topic_uid: int, *, after: Message | None = None, limit: int) -> Page:
        """All messages that name a holder, lapsed leases included, by holder and id.

        Only these have a `ts` behind their `due`. Pages are read like those of `scan`.
        """

    # Dead letters

    @abstractmethod
    def dead_letters(
        self, topic_uid: int, *, after: DeadLetter | None = None, limit: int
    ) -> list[DeadLetter]:
        """Dead letters, oldest first, and by id where they died at the same moment.

        They begin behind `after`: for the next page that is the last letter of this one, even if it has been
        put back or discarded since. A page with fewer than the limit is the last.
        """

    def redrive(
        self,
        topic_uid: int,
        ids: Sequence[str],
        *,
        due: int,
        now_ms: int,
        producer_group: str = "",
    ) -> list[Outcome]:
        """Puts dead letters back on the timeline with attempts at 0. Guard: the message is dead.

        With a producer group it must be theirs; without one it may be anybody's. An `expires` that would
        prevent its delivery, now or at the new `due`, is removed.
        """
        check_time("due", due)
        changes = letter_changes(Operation.REDRIVE, ids, due, producer_group=producer_group)
        return self.apply(topic_uid, changes, now_ms=now_ms)

    def discard(
        self, topic_uid: int, ids: Sequence[str], *, now_ms: int, producer_group: str = ""
    ) -> list[Outcome]:
        """Deletes dead letters. Guard: the message is dead, and of the producer group if one is given."""
        changes = letter_changes(Operation.DISCARD, ids, producer_group=producer_group)
        return self.apply(topic_uid, changes, now_ms=now_ms)

    # Inputs

    @abstractmethod
    def claim_inputs(
        self, source: str, starts: Mapping[int, int], holder: str, *, until_ms: int, now_ms: int
    ) -> list[InputClaim]:
        """Claims partitions that nobody holds, and one's own again under a new fence.

        `starts` has the first offset of each partition, for those that are new to the store.
        """

    @abstractmethod
    def renew_claims(
        self, claims: Sequence[InputClaim], *, until_ms: int, now_ms: int
    ) -> list[InputClaim]:
        """Moves the end of live claims, and answers them; claims that are over or lost are missing."""

    @abstractmethod
    def release_claims(self, claims: Sequence[InputClaim]) -> None:
        """Gives up claims, except those that others hold by now."""

    @abstractmethod
    def take_in(
        self, topic_uid: int, intakes: Sequence[Intake], *, producer_group: str, now_ms: int
    ) -> list[TakenIn]:
        """Writes the records and moves each position to `upto`, all in one transaction.

        Records below the position were taken in before and are skipped. The others are written in their
        order: messages are created, and the first of an id counts; cancels and reschedules are made for
        `producer_group`. A dead letter does not take its id here: it is kept under a new id, with its own
        in the header `chronosDeadLetterId`. A cancel that finds no message waits for its `wait_ms` (at most
        60 s) and keeps its id taken meanwhile: creates from other partitions are withdrawn, and one from its
        own partition, which came after it, is accepted and ends the wait. At most 10,000 records in all.
        Raises `ClaimLost` unless every claim lives, `InputGap` if a partition was read from behind its
        position, and `InvalidInput` if one of the records is not valid; then nothing was changed.
        """

    @abstractmethod
    def input_accounts(self, source: str) -> list[InputAccount]:
        """The accounts of a source, by partition."""

    @abstractmethod
    def forget_inputs(self, source: str, *, now_ms: int) -> int:
        """Deletes the accounts of a source that nobody claims, and answers how many.

        The next claim of such a partition begins anew, and its records are taken in again.
        """

    # Members

    @abstractmethod
    def beat(
        self, group: str, name: str, *, until_ms: int, details: str = "", now_ms: int
    ) -> list[Member]:
        """Notes that a member is alive until a moment, and answers all members as `members` does.

        A member that was asked to stop stays so. Members that have been dead for an hour are deleted, in all
        groups: in the group of a deleted topic nobody beats.
        """

    @abstractmethod
    def members(self, group: str) -> list[Member]:
        """All members of a group by name, also those that died less than an hour ago."""

    @abstractmethod
    def live_groups(self, *, now_ms: int) -> frozenset[str]:
        """The groups with a member that is alive."""

    @abstractmethod
    def ask_to_stop(self, group: str, name: str | None = None) -> int:
        """Asks one member, or all, to stop, and answers how many were asked."""

    @abstractmethod
    def leave(self, group: str, name: str) -> None:
        """Deletes a member, if it exists."""

    # Upkeep

    @abstractmethod
    def purge(self, *, limit: int = 1_000, now_ms: int) -> int:
        """Removes up to `limit` rows that nobody needs any more, and answers how many it removed.

        These are marks of deleted messages whose `dedupe_ms` is over, dead letters of topics that keep
        none, and messages of deleted topics. Marks and dead letters stay until their version lies more
        than `SETTLED_AFTER_MS` before now. Several processes may purge at once. Call it again at once while
        it removes as many as the limit.
        """

    @abstractmethod
    def watch(self) -> Watch:
        """A place to sleep until a message falls due earlier than was known."""

    @abstractmethod
    def probe(self, *, patience_s: float) -> Reach:
        """Asks whether the store takes changes, by one that leaves nothing and is as durable as any other.

        Answers after `patience_s` at the latest; connecting anew can take longer. Only one thread at a time
        may call it. A change that is not finished by then is awaited by the next call, which makes no second
        one. An engine in this process asks by a read. Raises `StoreUnavailable` if the store is not reached.
        """

    @abstractmethod
    def clock_ms(self) -> int | None:
        """The time of the store's server, for comparison with one's own clock; None if it has none.

        No rule depends on it.
        """

    @abstractmethod
    def await_durable(self) -> None:
        """Waits until everything that this store has shown is as durable as a change that was answered.

        A read may show a change that a synchronous standby does not have yet. Call this before you answer, or
        delete, anything because of what was read.
        """

    @abstractmethod
    def identity(self) -> str:
        """An id that was chosen when the store was made, and does not change. A copy has the same one."""

    @abstractmethod
    def close(self) -> None:
        """Closes connections and files. May be called twice; other calls then raise `StoreClosed`."""


def _timed_changes(operation: Operation, leases: Sequence[tuple[Lease, LeaseTime]]) -> list[Change]:
    def change(lease: Lease, to: LeaseTime) -> Change:
        return lease_change(operation, lease, to)

    return pair_changes(operation, leases, "(lease, time)", change)
