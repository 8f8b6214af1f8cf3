"""The contract of a timeline store. These docstrings are the specification; engines add nothing to know.

Everywhere:

- Calls are synchronous, thread-safe, and take batches of at most 10,000 items. A batch is answered with one
  outcome for each item, in the order of the batch. An invalid item is refused as `invalid` and the
  others are done. The same id twice in a batch is handled as two batches, one after the other.
- `now_ms` is the caller's clock. No engine reads a clock of its own. The clocks of processes that share a
  store differ by at most `CLOCK_BOUND_MS`, and a create takes effect at most `WRITE_BOUND_MS` after its
  `now_ms`: one that waits for its turn for longer than a second is refused with `StoreBusy`. Within these
  bounds, no version of an id is ever given out twice.
- Every change is one conditional write that checks its guard and adds 1 to the version. *Refused* means
  that nothing changed. Who may do what in which state is `core.permissions`.
- Errors concern the whole call: `TopicNotFound` if the uid names no live topic, `InvalidInput` for
  arguments that no item can be blamed for, `StoreUnavailable` (and its kinds) if nothing was changed,
  `OutcomeUnknown` if the store did not answer a change. Then some of the batch may be done: ask again, with
  `again=True`. Where other transactions hold some of the messages, the error's `answered` says what became
  of each.
- `again` says that an earlier attempt of this very call was not answered. The items are tried, and one that
  is refused is judged by the row: done if the row names the same hand as its last (the lease's `session`, and
  the version after its own), refused if it names another, `unknown` if it cannot tell or if the earlier
  attempt may still take effect.
- A change that was answered survives the death of the process and of the machine, on engines whose
  `capabilities.durable` says so.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from chronoline.core.closing import Closing
from chronoline.core.message import DeadLetter, Lease, LeaseTime, Message, NewMessage
from chronoline.core.outcome import Grant, Outcome
from chronoline.core.permissions import Actor
from chronoline.core.ranges import BucketRange
from chronoline.core.topic import DEFAULT_SETTINGS, Topic, TopicSettings
from chronoline.stores.inputs import Inputs
from chronoline.stores.members import Members

Result = TypeVar("Result")
IfExists = Literal["refuse", "replace"]
MAX_BATCH = 10_000
MAX_FORECAST_STEPS = 100_000
NOTICE_HORIZON_MS = 10_000
"""Changes are noticed by watchers if they fall due within this time. Look again at least this often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What an engine can do; the conformance suite asks before it demands."""

    durable: bool
    """Answered changes survive a crash."""
    shared: bool
    """Several processes may work on it at the same time."""
    concurrent_writers: bool
    """Writes run beside each other; if not, one lane of writes serves the whole store."""
    caller_transactions: bool
    """A message can be created inside the caller's own database transaction."""


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
    """What lies on the timeline from `start` until the next step."""

    start: int
    counts: Counts


@dataclass(frozen=True, slots=True, order=True)
class Returned:
    """A consumer that resumed its leases. Of two sessions of one name the greater one is the later."""

    at: int
    session: str
    consumer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """A change that a sleeper should know of; a field that is None is not known: look."""

    topic_uid: int | None = None
    due: int | None = None
    returned: Returned | None = None
    """Instead of a change: a consumer's name has a new session. Others of that name have lost it."""


class Watch(Closing):
    """A place to sleep until a message may have to be served earlier than was known."""

    @abstractmethod
    def wait(self, timeout_s: float) -> list[Notice]:
        """Sleeps until something was noticed, the time is over, or `wake` was called.

        Whatever was committed after the watch was made, by this process or another, that falls due
        within `NOTICE_HORIZON_MS` of its own `now_ms`, is noticed. Notices may be spurious.
        """

    @abstractmethod
    def wake(self) -> None:
        """Ends a `wait` from another thread, or the next one if nobody waits."""

    @abstractmethod
    def close(self) -> None:
        """Ends a `wait` and gives back what the watch holds. May be called twice."""


class Store(Inputs, Members, Closing):
    """Durable messages with a due time. Obtained from `chronoline.store.open_store(url)`."""

    capabilities: Capabilities

    # Topics

    @abstractmethod
    def create_topic(
        self, name: str, settings: TopicSettings = DEFAULT_SETTINGS, *, now_ms: int
    ) -> Topic:
        """Makes a topic and its storage, with a new uid.

        Raises `TopicExists` while a topic of that name is there or is still being dropped.
        """

    @abstractmethod
    def ensure_topic(
        self, name: str, settings: TopicSettings = DEFAULT_SETTINGS, *, now_ms: int
    ) -> Topic:
        """The live topic with this name, made with these settings if there is none.

        Raises `TopicExists` while a topic of that name is still being dropped.
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
    def delete_topic(self, uid: int, *, now_ms: int) -> bool:
        """From now on the topic is gone for everybody; false if it was already.

        Its messages are removed by `purge`, and its name is taken until that is done.
        """

    # What producers do

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

        An id is taken by a message, by a dead letter, and for the topic's `dedupe_ms` after an ack,
        a cancel or a discard; then the outcome is `exists`. The first version is `now_ms`, or one more
        than the mark that a deleted message left if that is greater, so that no old lease fits it.

        With `if_exists="replace"` the owner cancels whatever has the id and creates the message anew in
        one step. Guard: own producer group and no live lease.
        """

    @abstractmethod
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

        Guard: own producer group and no live lease. A lapsed lease is counted as an attempt. Whoever moves a
        message past its `expires` will find it among the dead letters.
        """

    @abstractmethod
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

    # What consumers do

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
        now_ms: int,
    ) -> Grant:
        """Leases the oldest messages of these bucket ranges, bodies included.

        The rows name `session` as the one that was granted the leases (`core.session`). If the call is not
        answered, `select_held` with the same session tells what it took.

        Guard: `ts <= now`, or not locked and `ts <= now + reserve_ahead_ms`. It looks from the
        beginning of time, so a late commit is never passed over; a row that another holds locked at
        this moment is left for the next time, and does not stand in the way of those behind it. At most
        60 s ahead. A lease ends at max(due, now) + `lease_ms`.

        A message whose last lease lapsed has one attempt more. One that has used up the topic's
        `max_attempts`, is past its `expires` (or would be at its due) or later than `max_lateness_ms` goes
        to the dead letters in the same write and is named in `refused`. The letter's reason is the first of
        `attempts`, `expired` and `max_lateness` that is the case.
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
        """Leases messages by (id, version), for those who looked first. Otherwise like `reserve`.

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
        `resumed_from` says which one they named before. Old versions are refused. With a session, watches
        are told of it, in other processes too where the engine can.
        """

    @abstractmethod
    def extend(
        self,
        topic_uid: int,
        leases: Sequence[tuple[Lease, LeaseTime]],
        *,
        again: bool = False,
        now_ms: int,
    ) -> list[Outcome]:
        """Moves the end of live leases to a new time, which the outcome answers; `due` stays.

        Guard: own live lease of this version, new end at least 10 ms after now and after the due. The
        outcome's version names the lease from now on.
        """

    @abstractmethod
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

    @abstractmethod
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

    @abstractmethod
    def bury(
        self,
        topic_uid: int,
        leases: Sequence[tuple[Lease, str]],
        *,
        again: bool = False,
        now_ms: int,
    ) -> list[Outcome]:
        """Sends messages to the dead letters, for a reason that their consumer gives. Counts an attempt.

        Guard: own live lease of this version. The reason is text of at most 1,000 characters, without NUL,
        else the item is refused as `invalid`. A repeated bury by the same session is done.
        """

    @abstractmethod
    def unreserve(
        self, topic_uid: int, leases: Sequence[Lease], *, again: bool = False, now_ms: int
    ) -> list[Outcome]:
        """Gives messages back as they were: `ts = due`, not locked, attempts as they are.

        Guard: own live lease of this version.
        """

    @abstractmethod
    def ack(
        self, topic_uid: int, leases: Sequence[Lease], *, again: bool = False, now_ms: int
    ) -> list[Outcome]:
        """Deletes messages for the consumer that has done with them.

        Guard: own live lease of this version. A repeated ack of the same lease is done and changes
        nothing, within the topic's `dedupe_ms`.
        """

    # Several changes at once

    @abstractmethod
    def together(self, works: Sequence[Callable[[], Result]]) -> list[Result | Exception]:
        """Does some works, each of which makes changes by calls of this store, one after the other.

        Each answers what it returned, or what it raised, and the others are done. A durable engine whose
        writes do not run beside each other commits them together, which is much cheaper: then a work that
        raised has changed nothing, and if the commit fails, none is done and the error is raised. Elsewhere
        every call is a commit of its own, and what a work did before it raised stays.
        """

    # Looking

    @abstractmethod
    def select(
        self, topic_uid: int, ranges: Sequence[BucketRange], *, limit: int, max_ts: int
    ) -> Page:
        """The oldest messages of these ranges with `ts <= max_ts`, oldest first across the ranges."""

    @abstractmethod
    def lookup(self, topic_uid: int, ids: Sequence[str]) -> dict[str, Message]:
        """The messages with these ids; those that are deleted, dead or not there are missing."""

    @abstractmethod
    def bodies(self, topic_uid: int, ids: Sequence[str], *, actor: Actor, now_ms: int) -> Bodies:
        """The bodies of these messages, for those who may read them."""

    @abstractmethod
    def select_held(
        self,
        topic_uid: int,
        consumer: str,
        *,
        session: str | None = None,
        after: str = "",
        limit: int,
    ) -> Page:
        """Messages that name this consumer as their holder, lapsed leases included; of one session if named.

        By id, beginning behind `after`: for the next page that is the last id of this one.
        """

    @abstractmethod
    def select_owned(
        self, topic_uid: int, producer_group: str, *, after: str = "", limit: int
    ) -> Page:
        """Messages of this producer group, by id, beginning behind `after` like `select_held`."""

    @abstractmethod
    def next_ts(self, topic_uid: int, ranges: Sequence[BucketRange]) -> int | None:
        """The `ts` of the oldest message of these ranges: when something can next be leased."""

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

        Without an `end` there is none. They begin behind `after`: for the next page that is the last message
        of this one, whatever became of it. What keeps its place while the pages are read comes exactly once;
        what is moved meanwhile may come again, under another version, or be passed over.
        """

    # Dead letters

    @abstractmethod
    def dead_letters(
        self, topic_uid: int, *, after: DeadLetter | None = None, limit: int
    ) -> list[DeadLetter]:
        """Dead letters, oldest first, and by id where they died at the same moment.

        They begin behind `after`: for the next page that is the last letter of this one, whatever became
        of it. Fewer than the limit are the last.
        """

    @abstractmethod
    def redrive(
        self, topic_uid: int, ids: Sequence[str], *, due: int, now_ms: int
    ) -> list[Outcome]:
        """Puts dead letters back on the timeline with attempts at 0. Guard: the message is dead.

        An `expires` that would keep it from being delivered, now or at the new `due`, is dropped.
        """

    @abstractmethod
    def discard(self, topic_uid: int, ids: Sequence[str], *, now_ms: int) -> list[Outcome]:
        """Deletes dead letters. Guard: the message is dead."""

    # Upkeep

    @abstractmethod
    def purge(self, *, limit: int = 1_000, now_ms: int) -> int:
        """Removes up to `limit` rows that nobody needs any more, and says how many it removed.

        These are marks of deleted messages whose `dedupe_ms` is over, dead letters of topics that keep
        none, and what is left of dropped topics. Marks and dead letters stay until their version lies more
        than `SETTLED_AFTER_MS` before now. Several processes may purge at once. It is worth calling again at
        once while it removes as many as the limit.
        """

    @abstractmethod
    def watch(self) -> Watch:
        """A place to sleep until something falls due earlier than was known."""

    @abstractmethod
    def clock_ms(self) -> int | None:
        """What the clock of the store's server says, to be compared with one's own; None if it has none.

        No rule depends on it.
        """

    @abstractmethod
    def close(self) -> None:
        """Gives back connections and files. May be called twice; other calls then raise `StoreClosed`."""
