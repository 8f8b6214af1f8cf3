"""This broker as a member of its cluster: connection, session, entries, and its view of the others.

A single node is a cluster of one, on the embedded engine: the same code, without a server.

The broker grants leases only while its session is *trusted* (`coordination.contract`): after that others may
take its consumers for lost. A broker that has its session and does not see its peers goes on. When the
session is lost, the registration opens another one and writes everything anew.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace

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
from chronoline.core.errors import WrongBroker
from chronoline.runtime.service import AsyncService

logger = logging.getLogger(__name__)

_FIRST_SESSION_S = 2.0
"""The longest wait of a start for the first session. Without one the broker serves, and grants no leases."""
_SURELY_TAKEN = 3
"""A name that is seen with another broker this often in turn is not that of an earlier run."""
_NO_SESSION = (
    "the coordination service does not answer, so this broker may count as gone for the others: it grants no "
    "leases until it has its session again"
)


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

    def __init__(self, coordination: Coordination, options: MemberOptions) -> None:
        self.coordination = coordination
        self.options = options
        self.registration = Registration(
            coordination,
            ttl_ms=options.ttl_ms,
            margin_ms=options.margin_ms,
            on_session=lambda _: self._has_session.set(),
        )
        self._record = BrokerRecord(options.name, "", options.roles, options.rack)
        self._has_session = asyncio.Event()
        self._taken = 0  # how often the name was seen with another broker
        self._exits = AsyncExitStack()
        self._brokers: KeyWatch | None = None

    @property
    def name(self) -> str:
        return self.options.name

    @property
    def session(self) -> BrokerSession | None:
        """The session of now; None before the first one, and while another one is opened."""
        return self.registration.session

    @property
    def problem(self) -> str:
        """Why this broker may not grant leases; empty while its session is trusted."""
        session = self.session
        return "" if session is not None and session.is_trusted else _NO_SESSION

    @property
    def brokers(self) -> dict[str, BrokerRecord]:
        """The brokers of the cluster, by name, as far as this one sees them; itself included."""
        return {} if self._brokers is None else brokers_of(self._brokers.view)

    @property
    def record(self) -> BrokerRecord:
        """The entry of this broker, as it should be. Without an address it does not listen yet."""
        return self._record

    @property
    def sees_others(self) -> bool:
        """Whether the list of brokers is current."""
        return self._brokers is not None and self._brokers.view.is_current

    def check_role(self, role: str) -> None:
        """Raises `WrongBroker` unless this broker has a role; it names those that have."""
        if role in self.options.roles:
            return
        others = sorted(each.address for each in self.brokers.values() if role in each.roles)
        raise WrongBroker(
            f"broker {self.name!r} is no {role}; nothing was changed. "
            + (f"Ask one of: {', '.join(others)}" if others else f"The cluster has no {role} now")
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
            self._check_name()

    async def _start(self) -> None:
        await self._exits.enter_async_context(self.coordination)
        self._brokers = self.coordination.watch(BROKERS)
        await self._exits.enter_async_context(self.registration)
        with suppress(TimeoutError):
            async with asyncio.timeout(_FIRST_SESSION_S):
                await self._has_session.wait()

    async def _stop(self) -> None:
        await self._exits.aclose()

    def _check_name(self) -> None:
        """Logs that another broker has this one's name. The entry of an earlier run is replaced soon."""
        assert self._brokers is not None
        entry = self._brokers.view.entries.get(self._record.key)
        session = self.session
        is_ours = entry is None or session is None or entry.session == session.id
        self._taken = 0 if is_ours else self._taken + 1
        if self._taken == _SURELY_TAKEN:
            logger.error(
                "another broker of the cluster is named %r, too, at %s: give each broker a name of its own",
                self.name,
                self.brokers[self.name].address,
                extra={"action": "name_taken"},
            )

    def _show(self, record: BrokerRecord) -> None:
        self._record = record
        self.registration.show(record)
