"""Every interface reports the same degradation of a broker."""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from chronoline.broker.cluster.clocks import ClusterClocks
from chronoline.broker.cluster.member import ClusterMember, MemberOptions
from chronoline.broker.degradation import NOTICES
from chronoline.cli.broker import Broker
from chronoline.client import TopicSettings
from chronoline.console.app import Console
from chronoline.coordination.contract import ServerOffset
from chronoline.coordination.embedded import EmbeddedCoordination, EmbeddedHub
from chronoline.core.errors import ChronolineError, StoreUnavailable
from chronoline.runtime.clock import SystemClock
from chronoline.stores.memory import MemoryStore
from chronoline.stores.sqlite import SqliteStore
from tests.broker.clocks import MovableClock
from tests.broker.http.served import Served, serving
from tests.broker.metric_samples import scrape
from tests.deadline import until

_CLOCK = "this broker's clock is"
_NO_SESSION = "this broker has no session with the coordination service"
_REASONS = {
    "away": ("storage", "the server at db.example is gone"),
    "locked": ("storage", "the store takes no changes: "),
    "clock": ("clock", _CLOCK),
    "coordination": ("coordination", _NO_SESSION),
    "stopping": ("stopping", "the broker is stopping"),
}
_PUBLIC = {
    "away": "the store does not answer",
    "locked": "the store takes no changes",
    "clock": _CLOCK,
    "coordination": _NO_SESSION,
    "stopping": "the broker is stopping",
}


class SickStore:
    """A store that can be away, with a clock that can be moved."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.away = False
        self.behind_ms = 0

    def __getattr__(self, name: str) -> Any:
        if self.away and name not in ("watch", "capabilities", "traffic"):
            raise StoreUnavailable("the server at db.example is gone")
        return getattr(self._store, name)

    def clock_ms(self) -> int:
        return SystemClock().now_ms() - self.behind_ms


class Scene:
    def __init__(
        self, served: Served, store: SickStore, path: Path, coordination: EmbeddedCoordination
    ) -> None:
        self.served = served
        self._store = store
        self._path = path
        self._coordination = coordination

    @asynccontextmanager
    async def illness(self, kind: str) -> AsyncIterator[None]:
        """Something is wrong with the node, until the block ends."""
        assert self.served.node.parts is not None
        with closing(sqlite3.connect(self._path, isolation_level=None)) as other:
            match kind:
                case "away":
                    self._store.away = True
                case "locked":
                    other.execute("BEGIN IMMEDIATE")
                case "clock":
                    self._store.behind_ms = 10_000
                case "coordination":
                    self._coordination.cut()
                case "stopping":
                    self.served.node.parts.gate.stopping = True
            yield
        if kind == "locked":
            await self.served.create_topic()  # it takes changes again
        self._store.away, self._store.behind_ms = False, 0
        if kind == "coordination":
            self._coordination.heal()
        self.served.node.parts.gate.stopping = False

    async def said(self) -> dict[str, Any]:
        """The types of degradation that each interface shows."""
        info = (await self.served.http.get("/v1/info")).json()
        # `info` blocks, and the broker runs in this event loop.
        status = await Broker(address=self.served.address, token=None, tls=False)._info()
        samples = await scrape(self.served.http)
        metric = [
            each.labels["type"]
            for each in samples
            if each.name == "broker_degradation_state" and each.value
        ]
        ready = await self.served.http.get("/readyz")
        (is_ready,) = (bool(each.value) for each in samples if each.name == "broker_ready")
        return {
            "info": [(each["type"], each["reason"]) for each in info["degradations"]],
            "status": [(each.type, each.reason) for each in status.degradations],
            "metric": metric,
            "is_ready": is_ready,
            "ready": "" if ready.status_code == 200 else ready.json()["detail"],
        }

    async def console(self) -> list[tuple[str, bool]]:
        """The problems in the next event of the console's first page: the type, and whether it is ready."""
        async with self.served.http.stream("GET", "/console/live") as stream:
            async for line in stream.aiter_lines():
                if line.startswith("data: {"):
                    event = json.loads(line.removeprefix("data: "))
                    return [(each["type"], each["ready"]) for each in event["problems"]]
        raise AssertionError("the stream ended")


@asynccontextmanager
async def scene(path: Path) -> AsyncIterator[Scene]:
    with SqliteStore(str(path), busy_ms=100) as store:
        sick: Any = SickStore(store)
        coordination = EmbeddedCoordination()
        async with serving(
            sick, upkeep_every_s=0.05, coordination=coordination, console=Console
        ) as served:
            yield Scene(served, sick, path, coordination)


@pytest.mark.parametrize("kind", _REASONS)
def test_every_interface_shows_the_same_degradation(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    type_, reason = _REASONS[kind]

    async def play() -> None:
        async with scene(tmp_path / "timeline.db") as it:
            well = {"info": [], "status": [], "metric": [], "is_ready": True, "ready": ""}
            assert await it.said() == well

            async def is_said() -> bool:
                found = await it.said()
                told = [*found["info"], *found["status"]]
                return (
                    len(told) == 2
                    and all(kind == type_ and reason in words for kind, words in told)
                    and found["metric"] == [type_]
                    and not found["is_ready"]
                    and found["ready"].startswith(_PUBLIC[kind])
                    and "db.example" not in found["ready"]
                )

            async def is_well() -> bool:
                return await it.said() == well

            async with it.illness(kind):
                await until(is_said)
                assert await it.console() == [(type_, False)]
            await until(is_well)
            assert await it.console() == []

    with caplog.at_level(logging.WARNING):
        asyncio.run(play())
    actions = [getattr(each, "action", "") for each in caplog.records]
    told = [each for each in actions if each in ("not_ready", "ready")]
    assert told == ([] if kind == "stopping" else ["not_ready", "ready"])


def test_degradation_is_logged_without_a_request(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def play() -> None:
        async with scene(tmp_path / "timeline.db") as it:
            async with it.illness("locked"):  # which the purge finds out
                await until(lambda: "not ready: the store takes no changes" in caplog.text)
            await until(lambda: "ready again" in caplog.text)

    with caplog.at_level(logging.WARNING):
        asyncio.run(play())


# Notices


class TimedService(EmbeddedCoordination):
    """A coordination service with a clock that can be behind."""

    behind_ms = 0.0

    async def clock_offset(self) -> ServerOffset | None:
        return ServerOffset(-self.behind_ms, 10.0)


class NoticeScene:
    """A node, and the causes of its notices."""

    def __init__(self, served: Served, clock: MovableClock, hub: EmbeddedHub) -> None:
        self.served = served
        self._clock = clock
        self._hub = hub

    def cause(self, kind: str) -> AbstractAsyncContextManager[None]:
        causes = {
            "drift": self._drift,
            "peers": self._lost_peer,
            "consumers": self._erring_consumer,
            "producers": self._failing_producer,
        }
        return causes[kind]()

    async def is_shown(self, kind: str) -> bool:
        """Whether the metric shows this type, and no other one."""
        shown = [
            each.labels["type"]
            for each in await scrape(self.served.http)
            if each.name == "broker_degradation_state" and each.value
        ]
        return set(shown) == {kind}

    async def is_well(self) -> bool:
        return not any(
            each.value
            for each in await scrape(self.served.http)
            if each.name == "broker_degradation_state"
        )

    @asynccontextmanager
    async def _drift(self) -> AsyncIterator[None]:
        """All clocks but that of the service are moved."""
        self._clock.ahead_ms = 10_000
        yield
        self._clock.ahead_ms = 0

    @asynccontextmanager
    async def _lost_peer(self) -> AsyncIterator[None]:
        coordination = EmbeddedCoordination(self._hub)
        async with self._peer(coordination) as member:
            assert self.served.node.parts is not None
            clocks = self.served.node.parts.clocks
            await until(lambda: "peer" in clocks.offsets)
            assert member.session is not None
            await member.session.close()  # as if it had been killed
            coordination.cut()
            yield
        async with self._peer(EmbeddedCoordination(self._hub)):
            await until(self.is_well)

    @asynccontextmanager
    async def _peer(self, coordination: EmbeddedCoordination) -> AsyncIterator[ClusterMember]:
        member = ClusterMember(coordination, MemberOptions(name="peer"))
        clock = MovableClock()
        async with member, ClusterClocks(member, clock, bound_ms=1_000, stamp_every_s=0.02):
            yield member

    @asynccontextmanager
    async def _erring_consumer(self) -> AsyncIterator[None]:
        ended = asyncio.Event()

        async def work() -> None:
            async for lease in client.consume("jobs", prefetch=1):
                await (lease.ack() if ended.is_set() else lease.retry())

        async with self.served.client() as client:
            await client.create_topic("jobs", TopicSettings(window=0.2, max_attempts=1_000))
            for number in range(30):
                await client.send("jobs", id=f"m{number}")
            working = asyncio.create_task(work())
            yield
            ended.set()
            await until(self.is_well)
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)

    @asynccontextmanager
    async def _failing_producer(self) -> AsyncIterator[None]:
        async def fail() -> None:
            while True:
                with pytest.raises(ChronolineError):
                    await client.send("small", b"too large")

        async with self.served.client() as client:
            await client.create_topic("small", TopicSettings(largest_body_bytes=1))
            failing = asyncio.create_task(fail())
            yield
            failing.cancel()
            await asyncio.gather(failing, return_exceptions=True)
            for _ in range(5):
                await client.send("small")
            await until(self.is_well)


@pytest.mark.parametrize("kind", sorted(NOTICES))
def test_notice_has_its_metric_and_its_lines(caplog: pytest.LogCaptureFixture, kind: str) -> None:
    def logged(action: str) -> list[list[str]]:
        return [
            getattr(each, "degraded", [])
            for each in caplog.records
            if getattr(each, "action", "") == action
        ]

    async def play() -> None:
        clock, hub = MovableClock(), EmbeddedHub()
        with MemoryStore() as store:
            async with serving(
                store, clock=clock, coordination=TimedService(hub), upkeep_every_s=0.05
            ) as served:
                it = NoticeScene(served, clock, hub)
                assert await it.is_well()
                async with it.cause(kind):
                    await until(lambda: it.is_shown(kind))
                    await until(lambda: logged("degraded") == [[kind]])
                    assert (await served.http.get("/readyz")).status_code == 200
                await until(it.is_well)
                await until(lambda: logged("recovered") == [[kind]])

    with caplog.at_level(logging.WARNING):
        asyncio.run(play())
    assert logged("not_ready") == []
