"""The clocks of two brokers that meet in one coordination service."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from chronoline.broker.cluster.clocks import ClusterClocks
from chronoline.broker.cluster.member import ClusterMember, MemberOptions
from chronoline.broker.degradation import DegradationType
from chronoline.coordination.contract import ServerOffset
from chronoline.coordination.embedded import EmbeddedCoordination, EmbeddedHub
from tests.broker.clocks import MovableClock
from tests.broker.nodes import running
from tests.deadline import run_scene, until

_DRIFT = {DegradationType.DRIFT}


@asynccontextmanager
async def broker(hub: EmbeddedHub, name: str, clock: MovableClock) -> AsyncIterator[ClusterClocks]:
    member = ClusterMember(EmbeddedCoordination(hub), MemberOptions(name=name))
    async with member:
        clocks = ClusterClocks(member, clock, bound_ms=1_000, stamp_every_s=0.02)
        async with clocks:
            yield clocks


def shown(clocks: ClusterClocks) -> set[DegradationType]:
    return {each.type for each in clocks.degradations()}


def samples(clocks: ClusterClocks, target: str) -> list[float]:
    return [value for _, labels, value in clocks.samples() if labels == (target, "")]


def test_moved_clock_of_a_peer_is_shown_until_it_is_right() -> None:
    async def play() -> None:
        hub, moved = EmbeddedHub(), MovableClock()
        async with broker(hub, "a", MovableClock()) as a, broker(hub, "b", moved) as b:
            await until(lambda: a.offsets.keys() == {"b"} and b.offsets.keys() == {"a"})
            assert shown(a) == shown(b) == set()
            for jump_ms in (10_000, -10_000):
                moved.ahead_ms = jump_ms
                await until(lambda: shown(a) == shown(b) == _DRIFT)
                count, mean_s = samples(a, "broker")
                assert count == 1
                assert mean_s > 1
                moved.ahead_ms = 0
                await until(lambda: shown(a) == shown(b) == set())

    run_scene(play)


def test_peer_that_leaves_is_not_shown_and_one_that_vanishes_is() -> None:
    async def play() -> None:
        hub = EmbeddedHub()
        async with broker(hub, "a", MovableClock()) as a, AsyncExitStack() as others:
            leaving = AsyncExitStack()
            await leaving.enter_async_context(broker(hub, "b", MovableClock()))
            c = EmbeddedCoordination(hub)
            member = ClusterMember(c, MemberOptions(name="c"))
            await others.enter_async_context(member)
            await others.enter_async_context(
                ClusterClocks(member, MovableClock(), bound_ms=1_000, stamp_every_s=0.02)
            )
            await until(lambda: a.offsets.keys() == {"b", "c"})
            await leaving.aclose()
            await until(lambda: a.offsets.keys() == {"c"})
            assert shown(a) == set()
            assert member.session is not None
            await member.session.close()  # as if it had been killed
            await until(lambda: shown(a) == {DegradationType.PEERS})

    run_scene(play)


class _TimedService(EmbeddedCoordination):
    """Has a clock of its own, which is behind."""

    async def clock_offset(self) -> ServerOffset | None:
        return ServerOffset(-5_000.0, 10.0)


def test_clock_of_the_coordination_service_is_shown() -> None:
    async def play() -> None:
        clock = MovableClock()
        member = ClusterMember(_TimedService(), MemberOptions(name="a"))
        async with member, ClusterClocks(member, clock, bound_ms=1_000) as clocks:
            await until(lambda: shown(clocks) == _DRIFT)
            count, mean_s = samples(clocks, "sync")
            assert count == 1
            assert mean_s > 1
            clock.ahead_ms = -5_000  # as the service's
            assert shown(clocks) == set()

    run_scene(play)


def test_broker_shows_the_drift_of_its_peer_and_stays_ready(tmp_path: Path) -> None:
    async def play() -> None:
        hub, moved = EmbeddedHub(), MovableClock()
        moved.ahead_ms = 10_000
        async with (
            broker(hub, "b", moved),
            running(tmp_path, coordination=EmbeddedCoordination(hub)) as it,
        ):
            assert it.node.parts is not None
            degradation = it.node.parts.degradation
            await until(lambda: [each.type for each in degradation.notices] == ["drift"])
            assert degradation.current == ()
            await degradation.check()

    run_scene(play)
