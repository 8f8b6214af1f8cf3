"""Membership: the brokers of a cluster and their consumers, as entries under each broker's session.

A broker writes four kinds of entries, and nobody else writes them:

- `names/NAME`: the process that has the name. Of two brokers with one name the later writes nothing.
- `brokers/NAME`: address, roles, rack, load.
- `clocks/NAME`: a stamp of its clock, apart from the rest because it is written often.
- `members/consumers/TOPIC UID/BROKER/CONSUMER`: a consumer that is subscribed at this broker. A name that
  moves between brokers is at two of them for a moment; the later subscription counts.

All of them hang on one session: they vanish together when the broker dies. So does `sessions/ID`, which
orders the commits of the session: each writes it, if it is as the one before left it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import zip_longest

from chronoline.coordination.contract import (
    DEFAULT_MARGIN_MS,
    SHORTEST_TTL_MS,
    Absent,
    BrokerSession,
    Condition,
    Coordination,
    Delete,
    Put,
    Unchanged,
    View,
    Write,
    key_of,
    prefix_of,
    split,
)
from chronoline.coordination.records import Record, record_of, records_of
from chronoline.core.errors import CommitUnknown, CoordinationError, NameTaken, SessionLost
from chronoline.runtime.backoff import Backoff, Waits
from chronoline.runtime.message_ids import new_id
from chronoline.runtime.service import AsyncService

logger = logging.getLogger(__name__)

BROKERS = prefix_of("brokers")
CLOCKS = prefix_of("clocks")
NAMES = prefix_of("names")
MEMBERS = prefix_of("members")
"""Consumers, and the generations that name them (`generations`)."""
CONSUMERS = prefix_of("members", "consumers")
_BACKOFF = Backoff(first=0.05, longest=1.0, spread=0.5)
_NAME_REST_S = 0.2
"""The wait for a name that another process has: that of a killed one is free when its session ends."""


@dataclass(frozen=True)
class NameRecord(Record):
    """The name of a broker, which is its own while its session lasts."""

    run: str
    """The process that has it, and takes it again under its next session."""
    ttl_ms: int = 0
    """Of its session."""


@dataclass(frozen=True)
class BrokerLoad(Record):
    """The load of a broker, in round figures: each change is written."""

    topics: int = 0
    consumers: int = 0
    messages_per_s: int = 0
    core_percent: int = 0
    """The part of one core that it uses: a broker serves its clients on one."""


@dataclass(frozen=True)
class BrokerRecord(Record):
    """A broker that is there."""

    name: str
    address: str
    """Host and port of its gRPC."""
    roles: tuple[str, ...] = ()
    rack: str = ""
    load: BrokerLoad = BrokerLoad()
    problems: tuple[str, ...] = ()
    """Why it is degraded, and what it has noticed of others; empty while it is healthy."""
    reasons: tuple[str, ...] = ()
    """The same in words, of the moment at which the problems changed."""
    version: str = ""
    """Of Chronoline; empty for a release that does not write it."""

    @property
    def key(self) -> str:
        return key_of("brokers", self.name)

    @property
    def told(self) -> tuple[tuple[str, str], ...]:
        """Its problems: the type of each, and the reason, or the type again if it gave none."""
        return tuple(zip_longest(self.problems, self.reasons or self.problems, fillvalue=""))


@dataclass(frozen=True)
class ClockSight(Record):
    """The clock of another broker, as the writer of a stamp knows it."""

    broker: str
    epoch: int
    ahead_ms: int
    """It is at least this much ahead of the writer's clock."""


@dataclass(frozen=True)
class ClockStamp(Record):
    """The time at which a broker wrote this, by its own clock."""

    broker: str
    wall_ms: int
    epoch: int = 0
    """Another one begins when its clock is moved."""
    seen: tuple[ClockSight, ...] = ()
    leaving: bool = False
    """The broker stops: it does not vanish."""

    @property
    def key(self) -> str:
        return key_of("clocks", self.broker)


@dataclass(frozen=True)
class ConsumerRecord(Record):
    """A consumer that is subscribed to a topic at a broker."""

    topic_uid: int
    name: str
    broker: str
    session: str
    """The session under which it subscribed, as the store has it (`core.session`)."""
    rack: str = ""
    busy: bool = False
    since_ms: int = 0
    """When it subscribed. Of two of one name the later one has the name, as in the store's notices."""

    @property
    def key(self) -> str:
        return key_of("members", "consumers", self.topic_uid, self.broker, self.name)


KeyedRecord = BrokerRecord | ClockStamp | ConsumerRecord


def brokers_of(view: View) -> dict[str, BrokerRecord]:
    """The brokers of a view of `BROKERS`, by name."""
    return {record.name: record for _, record in records_of(BrokerRecord, view)}


def stamps_of(view: View) -> dict[str, ClockStamp]:
    """The stamps of a view of `CLOCKS`, by broker."""
    return {record.broker: record for _, record in records_of(ClockStamp, view)}


def consumers_of(view: View) -> dict[int, dict[str, ConsumerRecord]]:
    """The consumers of a view of `CONSUMERS` or `MEMBERS`, by topic uid and name.

    Of two of one name the later subscription counts; of two equal ones the entry that was written last.
    """
    found: dict[int, dict[str, ConsumerRecord]] = {}
    records = records_of(ConsumerRecord, view.under(CONSUMERS))
    for _, record in sorted(records, key=lambda each: (each[1].since_ms, each[0].version)):
        found.setdefault(record.topic_uid, {})[record.name] = record
    return {uid: dict(sorted(consumers.items())) for uid, consumers in sorted(found.items())}


class Registration(AsyncService):
    """Keeps the entries of one broker in the coordination service as they should be.

    `show` and `hide` say what should be there; a task writes the differences, in batches, and nothing while
    there is none. It opens the session, and another one when it is lost, under which it writes everything
    anew. After an unknown outcome it writes or deletes the entries of that commit again, whatever is wanted
    by then. A commit that hung in a server cannot undo a later one: `sessions/ID` has changed, or is gone.

    It opens no session until it is admitted, and while another process has the name of its broker. While it
    is not admitted any more, none of its entries but the name are there.
    """

    def __init__(
        self,
        coordination: Coordination,
        *,
        name: str = "",
        ttl_ms: int = SHORTEST_TTL_MS,
        margin_ms: int = DEFAULT_MARGIN_MS,
        on_session: Callable[[BrokerSession], None] = lambda _: None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`on_session` is called with each new session, when the name is taken under it, and nothing else.

        Without a name none is taken.
        """
        self._coordination = coordination
        self._name = name
        self._run_id = new_id()
        self._ttl_ms = ttl_ms
        self._margin_ms = margin_ms
        self._on_session = on_session
        self._monotonic = monotonic
        self._admission = asyncio.Event()
        self._admission.set()
        self._wanted: dict[str, bytes] = {}
        self._written: dict[str, bytes | None] = {}
        """The entries as they are; None for one whose last write was not answered."""
        self._order = 0
        """The version of the entry that orders the commits; 0 before the first one."""
        self._session: BrokerSession | None = None
        self._news = asyncio.Event()
        self._progress = asyncio.Condition()
        self._failing_since_s: float | None = None
        self.failure = ""
        """Why the last attempt failed; empty after a success."""
        self.name_taken: NameTaken | None = None
        """Set while another process has the name."""
        self._task: asyncio.Task[None] | None = None

    @property
    def session(self) -> BrokerSession | None:
        """The session of now; None before the first one, and while another one is opened."""
        return self._session

    @property
    def is_late(self) -> bool:
        """Whether entries could not be written for longer than the TTL."""
        since_s = self._failing_since_s
        return since_s is not None and self._monotonic() - since_s > self._ttl_ms / 1_000

    def admit(self, is_admitted: bool) -> None:
        """The entries should be there, or none of them."""
        if is_admitted:
            self._admission.set()
        else:
            self._admission.clear()
        self._news.set()

    def show(self, *records: KeyedRecord) -> None:
        """These records should be there."""
        self._want({record.key: record.encode() for record in records}, [])

    def hide(self, *keys: str) -> None:
        """These entries should not be there."""
        self._want({}, keys)

    async def wait_written(self) -> None:
        """Returns when everything that should be there is there."""
        async with self._progress:
            await self._progress.wait_for(
                lambda: self._session is not None and self._admitted == self._written
            )

    async def _start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="registration of the broker")

    async def _stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        if self._session is not None:
            await self._session.close()
            self._session = None
        self._written, self._order = {}, 0

    @property
    def _admitted(self) -> Mapping[str, bytes]:
        return self._wanted if self._admission.is_set() else {}

    def _want(self, puts: Mapping[str, bytes], deletes: Sequence[str]) -> None:
        self._wanted |= puts
        for key in deletes:
            self._wanted.pop(key, None)
        self._news.set()

    async def _run(self) -> None:
        waits = Waits(_BACKOFF)
        while True:
            try:
                await self._serve(waits)
            except SessionLost:
                await self._forget_session()
            except NameTaken as error:
                if self.name_taken is None:
                    logger.warning("%s", error, extra={"action": "name_taken"})
                self._failed(error)
                self.name_taken = error
                await asyncio.sleep(_NAME_REST_S)
                continue
            except CoordinationError as error:
                if str(error) != self.failure:
                    logger.warning("the registration waits for the coordination service: %s", error)
                self._failed(error)
            except Exception as error:
                logger.exception("the registration failed; it goes on")
                self._failed(error)
            await asyncio.sleep(waits.next())

    def _failed(self, error: Exception) -> None:
        self.failure, self.name_taken = str(error), None
        if self._failing_since_s is None:
            self._failing_since_s = self._monotonic()

    async def _serve(self, waits: Waits) -> None:
        """Writes under one session until it is lost, which raises."""
        if self._session is None:
            if self._name:
                await (
                    self._check_name()
                )  # and whether the service answers: admission may wait for it
            self.failure, self.name_taken = "", None
            await self._admission.wait()
            session = await self._open_session()
            self._session = session
            self._on_session(session)
        session = self._session
        loss = asyncio.create_task(self._await_loss(session), name="loss of the session")
        try:
            while not session.is_lost:
                self._news.clear()
                await self._write(session)
                self.failure, self._failing_since_s = "", None
                waits.reset()
                await self._news.wait()
            raise SessionLost
        finally:
            loss.cancel()

    async def _open_session(self) -> BrokerSession:
        """A session under which this process has its name. Raises `NameTaken`."""
        free = await self._check_name() if self._name else None
        session = await self._coordination.open_session(self._ttl_ms, self._margin_ms)
        if free is None:
            return session
        try:
            taken = NameRecord(self._run_id, session.ttl_ms)
            put = Put(key_of("names", self._name), taken.encode(), session)
            done = await self._coordination.commit([put], when=[free])
            if not done.is_made:
                await self._check_name()
                raise CommitUnknown  # an earlier commit of ours, or a broker that has left since
        except BaseException:
            await session.close()
            raise
        return session

    async def _check_name(self) -> Condition:
        """The condition under which the name is free, or ours. Raises `NameTaken`."""
        key = key_of("names", self._name)
        name = await self._coordination.get(key)
        broker = await self._coordination.get(key_of("brokers", self._name))
        holder = None if name is None else record_of(NameRecord, name)
        if name is not None and holder is not None and holder.run == self._run_id:
            return Unchanged(key, name.version)
        if name is None and broker is None:
            return Absent(key)
        # A broker of an earlier release has no entry of its name.
        ttl_ms = holder.ttl_ms if holder is not None else self._ttl_ms
        record = None if broker is None else record_of(BrokerRecord, broker)
        place = f", at {record.address}" if record is not None else ""
        raise NameTaken(
            f"another broker of the cluster is named {self._name!r}{place}: give each broker a name of its "
            "own (--name). If it was an earlier run of this one that was killed, its name is free "
            f"{ttl_ms / 1_000:g} s after its end",
            ttl_ms=ttl_ms,
        )

    async def _write(self, session: BrokerSession) -> None:
        for batch in split(self._differences(session), spare=1):
            self._written |= dict.fromkeys(write.key for write in batch)
            await self._commit(session, batch)
            for write in batch:
                if isinstance(write, Put):
                    self._written[write.key] = write.value
                else:
                    self._written.pop(write.key, None)
        async with self._progress:
            self._progress.notify_all()

    async def _commit(self, session: BrokerSession, batch: Sequence[Write]) -> None:
        key = key_of("sessions", session.id)
        writes = [*batch, Put(key, b"", session)]
        while True:
            before = Unchanged(key, self._order) if self._order else Absent(key)
            done = await self._coordination.commit(writes, when=[before])
            if done.is_made:
                self._order = done.revision
                return
            found = await self._coordination.get(key)  # a commit was made whose answer was lost
            self._order = found.version if found else 0

    def _differences(self, session: BrokerSession) -> list[Write]:
        gone = [Delete(key) for key in sorted(self._written.keys() - self._admitted.keys())]
        new = self._admitted.items() - self._written.items()
        return [*gone, *(Put(key, value, session) for key, value in sorted(new))]

    async def _await_loss(self, session: BrokerSession) -> None:
        await session.wait_lost()
        self._news.set()

    async def _forget_session(self) -> None:
        session, self._session, self._written, self._order = self._session, None, {}, 0
        if session is not None:
            await session.close()
