"""This broker as a member of its cluster: connection, session, entries, and its view of the others.

A single node is a cluster of one, on the embedded engine: the same code, without a server.

The broker grants leases only while its session is *trusted* (`coordination.contract`): after that others may
take its consumers for lost. A broker that has its session and does not see its peers goes on. When the
session is lost, the registration opens another one and writes everything anew.

All brokers of a cluster use one store. One that was given another store, or the prefix of another cluster,
takes no part: it has no entries and no claims, and grants no leases (`coordination.cluster_store`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace

from chronoline.coordination.cluster_store import STORE, is_named, is_store, name_store
from chronoline.coordination.contract import (
    DEFAULT_MARGIN_MS,
    SHORTEST_TTL_MS,
    BrokerSession,
    Coordination,
    KeyWatch,
)
from chronoline.coordination.membership import (
    BROKERS,
    BrokerLoad,
    BrokerRecord,
    Registration,
    brokers_of,
)
from chronoline.core.errors import ChronolineError, WrongBroker
from chronoline.core.version import VERSION
from chronoline.runtime.backoff import Backoff, Waits
from chronoline.runtime.service import AsyncService

logger = logging.getLogger(__name__)

_FIRST_SESSION_S = 2.0
"""The longest wait of a start for the first session. Without one the broker serves, and grants no leases."""
_LAPSE_S = 3.0
"""The time after its TTL by which a session has ended: etcd looks twice a second."""
_NO_SESSION = (
    "this broker has no session with the coordination service and may count as gone for the others: it "
    "grants no leases until it has one"
)
_NAME_TAKEN = (
    "another broker of the cluster has the name of this one: it takes no part, and grants no leases, until "
    "the other one has left. Give each broker a name of its own"
)
_UNWRITTEN = (
    "the coordination service takes no entries of this broker, so that the others do not see it"
)
_NOT_COMPARED = (
    "this broker has not compared its store with that of its cluster yet: it grants no leases"
)
_OTHER_STORE = (
    "the brokers of this cluster use another store: this broker takes no part, and grants no leases. Give it "
    "the store of the others, or a prefix of its own in the URL of the etcd. If the store was replaced by "
    "another one, stop all brokers and delete the entry store/identity under the prefix"
)
_BACKOFF = Backoff(first=0.05, longest=1.0, spread=0.5)
_MOST_NAMED = 16
"""The most brokers in a refusal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberOptions:
    """How a broker appears in its cluster."""

    name: str = ""
    """Unique in the cluster; one is made if it is empty."""
    rack: str = ""
    advertise: str = ""
    """host:port of its gRPC for clients; the listener's if it is empty."""
    roles: tuple[str, ...] = ("overseer", "carrier")
    ttl_ms: int = SHORTEST_TTL_MS
    margin_ms: int = DEFAULT_MARGIN_MS


class ClusterMember(AsyncService):
    """The membership of this broker, from `start` to `stop`. Owned by the event loop."""

    def __init__(
        self,
        coordination: Coordination,
        options: MemberOptions,
        store_identity: Callable[[], Awaitable[str]] | None = None,
    ) -> None:
        """`store_identity` answers the identity of the store; without it the stores are not compared."""
        self.coordination = coordination
        self.options = options
        self.registration = Registration(
            coordination,
            name=options.name,
            ttl_ms=options.ttl_ms,
            margin_ms=options.margin_ms,
            on_session=lambda _: self._has_session.set(),
        )
        self._record = BrokerRecord(options.name, "", options.roles, options.rack, version=VERSION)
        self._has_session = asyncio.Event()
        self._shared = 0  # how often in turn the address was seen with another broker
        self._exits = AsyncExitStack()
        self._brokers: KeyWatch | None = None
        self._store_identity = store_identity
        self._store_problem = _NOT_COMPARED if store_identity else ""
        self._store_failure = ""
        self._is_compared = asyncio.Event()
        self._comparison: asyncio.Task[None] | None = None
        self.registration.admit(store_identity is None)

    @property
    def name(self) -> str:
        return self.options.name

    @property
    def session(self) -> BrokerSession | None:
        """The session of now; None before the first one, and while another one is opened.

        Also None while the store of this broker is not that of the cluster: then it works on nothing.
        """
        return None if self._store_problem else self.registration.session

    @property
    def takes_part(self) -> bool:
        """False if the cluster uses another store: then its brokers are no brokers for our clients."""
        return self._store_problem != _OTHER_STORE

    @property
    def problem(self) -> str:
        """Why this broker may not grant leases; empty while its session is trusted. It names no hosts."""
        session = self.registration.session
        if not self.takes_part:
            return _OTHER_STORE
        if self.registration.name_taken is not None:
            return _NAME_TAKEN
        if self._store_problem and not self.registration.failure:
            return self._store_problem
        if session is None or not session.is_trusted:
            return _NO_SESSION
        return self._store_problem or (_UNWRITTEN if self.registration.is_late else "")

    @property
    def problem_details(self) -> str:
        """The error behind the problem; it may name hosts."""
        return {
            _NAME_TAKEN: self.registration.failure,
            _NO_SESSION: self.registration.failure,
            _UNWRITTEN: self.registration.failure,
            _NOT_COMPARED: self._store_failure,
        }.get(self.problem, "")

    @property
    def brokers(self) -> dict[str, BrokerRecord]:
        """The brokers of the cluster, by name, as far as this one sees them; itself included."""
        return {} if self._brokers is None else brokers_of(self._brokers.view)

    @property
    def record(self) -> BrokerRecord:
        """The entry of this broker, as it should be. Without an address it does not listen yet."""
        return self._record

    def check_role(self, role: str) -> None:
        """Raises `WrongBroker` unless this broker has a role; it names those that have."""
        if role in self.options.roles:
            return
        fitting = (broker.address for broker in self.brokers.values() if role in broker.roles)
        others = sorted(filter(None, fitting))[:_MOST_NAMED]
        raise WrongBroker(
            f"broker {self.name!r} is no {role}; nothing was changed. "
            + (f"Ask one of: {', '.join(others)}" if others else f"The cluster has no {role} now"),
            brokers=others,
        )

    def appear(self, address: str) -> None:
        """The broker listens at this address: others can send clients to it."""
        self._show(replace(self._record, address=self.options.advertise or address))

    def describe(self, load: BrokerLoad, problems: Mapping[str, str]) -> None:
        """Its load, and why it is degraded: types with their reasons. Written if load or types changed."""
        if self._record.address:
            names, reasons = tuple(problems), tuple(problems.values())
            if names == self._record.problems:
                reasons = self._record.reasons  # those of now may have other figures
            self._show(replace(self._record, load=load, problems=names, reasons=reasons))
            self._check_others()

    async def _start(self) -> None:
        await self._exits.enter_async_context(self.coordination)
        self._brokers = self.coordination.watch(BROKERS)
        await self._exits.enter_async_context(self.registration)
        if self._store_identity is not None:
            self._comparison = asyncio.create_task(self._compare_stores(self._store_identity))
        else:
            self._is_compared.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(_FIRST_SESSION_S):
                await self._has_session.wait()
                await self._is_compared.wait()
        await self._await_name()

    async def _await_name(self) -> None:
        """Waits for the end of an earlier run of this broker. Raises `NameTaken` if another one lives on."""
        if (taken := self.registration.name_taken) is None:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(taken.ttl_ms / 1_000 + _LAPSE_S - _FIRST_SESSION_S):
                await self._has_session.wait()
        if self.registration.name_taken is not None:
            raise self.registration.name_taken

    async def _stop(self) -> None:
        if self._comparison is not None:
            self._comparison.cancel()
            with suppress(asyncio.CancelledError):
                await self._comparison
        await self._exits.aclose()

    async def _compare_stores(self, store_identity: Callable[[], Awaitable[str]]) -> None:
        waits = Waits(_BACKOFF)
        while True:
            try:
                await self._follow_store(await store_identity())
            except ChronolineError as error:
                self._store_failure = str(error)
            except Exception as error:
                logger.exception("the comparison of the stores failed; it goes on")
                self._store_failure = str(error)
            await asyncio.sleep(waits.next())

    async def _follow_store(self, own: str) -> None:
        """Compares the store of the cluster with ours, until it raises."""
        async with self.coordination.watch(STORE) as watch:
            async for view in watch:
                if is_named(view):
                    self._store_is(is_store(view, own))
                elif view.is_current:
                    await name_store(self.coordination, own)

    def _store_is(self, ours: bool) -> None:
        if not ours and self.takes_part:
            logger.error("not ready: %s", _OTHER_STORE, extra={"action": "other_store"})
        self._store_problem = "" if ours else _OTHER_STORE
        self.registration.admit(ours)
        self._is_compared.set()

    def _check_others(self) -> None:
        """Logs that another broker has this one's address. The entry of an earlier run goes soon."""
        others = [each for name, each in sorted(self.brokers.items()) if name != self.name]
        twins = [each.name for each in others if each.address == self._record.address]
        self._shared = self._shared + 1 if twins else 0
        if self._shared == self._surely:
            logger.error(
                "this broker and %s show the same address to clients, %s: set advertise to an address of its "
                "own for each",
                ", ".join(twins),
                self._record.address,
                extra={"action": "address_taken"},
            )

    @property
    def _surely(self) -> int:
        """The number of looks, one each second, after which an entry is not that of an earlier run."""
        return self.options.ttl_ms // 1_000 + 1

    def _show(self, record: BrokerRecord) -> None:
        self._record = record
        self.registration.show(record)
