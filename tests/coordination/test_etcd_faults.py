"""The etcd engine while its server is killed, paused, cut off or compacted."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Iterator
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path

import grpc
import pytest

from chronoline.coordination.contract import Absent, Put, View
from chronoline.coordination.etcd import EtcdAddress, EtcdCoordination, EtcdTimes
from chronoline.coordination.factory import open_coordination
from chronoline.coordination.settlement import commit_surely
from chronoline.core.errors import CommitUnknown, CoordinationUnavailable
from chronoline.runtime.child_process import free_addresses
from chronoline.testing.etcd import EtcdServer
from chronoline_bench.servers.etcd import surviving_program
from tests.broker.tcp_proxy import tcp_proxy
from tests.conftest import running
from tests.coordination.engines import ManualMonotonic, keys, view_where
from tests.coordination.etcd_admin import compact, make_room
from tests.deadline import run_scene, until

QUICK = EtcdTimes(silence_s=0.2, connect_s=0.5)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    """One that these tests may kill and pause."""
    yield from running(EtcdServer(tmp_path_factory.mktemp("etcd"), program=surviving_program))


def at(address: str, prefix: str, monotonic: ManualMonotonic | None = None) -> EtcdCoordination:
    place = EtcdAddress.parse(f"etcd://{address}/{prefix}")
    if monotonic is None:
        return EtcdCoordination(place, times=QUICK)
    return EtcdCoordination(place, times=QUICK, monotonic=monotonic)


def test_killed_server_is_found_again(server: EtcdServer) -> None:
    async def scene() -> None:
        async with at(server.address, "killed") as one, one.watch("") as watch:
            session = await one.open_session(10_000)
            await one.commit([Put("k", b"1", session)])
            await view_where(watch, lambda view: keys(view) == ["k"])

            await asyncio.to_thread(server.kill)
            away = await view_where(watch, lambda view: not view.is_current)
            assert keys(away) == ["k"]
            with pytest.raises(CoordinationUnavailable):
                await one.read("")
            with pytest.raises(CoordinationUnavailable):
                await one.commit([Put("l", b"")])

            await asyncio.to_thread(server.start)
            back = await view_where(watch, lambda view: view.is_current)
            assert keys(back) == ["k"]
            await session.keep_alive()
            assert session.is_trusted
            assert (await one.commit([Put("l", b"")])).is_made
            await view_where(watch, lambda view: keys(view) == ["k", "l"])

    run_scene(scene)


def test_many_interrupted_watches_share_a_line(
    server: EtcdServer, caplog: pytest.LogCaptureFixture
) -> None:
    def lines() -> list[int]:
        """The number of watches that each line reports."""
        found = (record for record in caplog.records if "is interrupted" in record.message)
        return [int(getattr(each, "count", 1)) for each in found]

    async def scene() -> None:
        async with at(server.address, "many") as one, AsyncExitStack() as exits:
            watches = [
                await exits.enter_async_context(one.watch(f"of-{number}")) for number in range(20)
            ]
            for watch in watches:
                await view_where(watch, lambda view: view.is_current)
            server.pause()
            try:
                for watch in watches:
                    await view_where(watch, lambda view: not view.is_current)
                await until(lambda: sum(lines()) >= len(watches))
            finally:
                server.resume()
            assert len(lines()) < len(watches)

    run_scene(scene)


def test_start_needs_no_server() -> None:
    async def scene() -> None:
        (nobody,) = free_addresses(1)
        async with at(nobody, "none") as one:
            watch = one.watch("")
            for call in (one.read(""), one.commit([Put("k", b"")]), one.open_session()):
                with pytest.raises(CoordinationUnavailable):
                    await call
            assert watch.view.revision == 0
            assert not watch.view.is_current
            assert await one.clock_offset() is None

    run_scene(scene)


def test_silent_server_makes_views_not_current(server: EtcdServer) -> None:
    async def scene() -> None:
        async with at(server.address, "silent") as one, one.watch("") as watch:
            await one.commit([Put("k", b"")])
            await view_where(watch, lambda view: keys(view) == ["k"])
            server.pause()
            silent = await view_where(watch, lambda view: not view.is_current)
            server.resume()
            assert keys(silent) == ["k"]
            await view_where(watch, lambda view: view.is_current)

    run_scene(scene)


def test_trust_counts_from_the_sending_of_a_keep_alive(server: EtcdServer) -> None:
    async def scene() -> None:
        clock = ManualMonotonic()
        async with at(server.address, "late", clock) as one:
            # The task of the session is quiet for 10 s: the test sends the keep-alives.
            session = await one.open_session(40_000, 500)
            begin_s = clock.now_s
            assert session.trusted_until == begin_s + 39.5
            clock.now_s += 5
            server.pause()
            sent = asyncio.Event()
            clock.on_read = sent.set
            late = asyncio.create_task(session.keep_alive())
            await sent.wait()
            clock.now_s += 20  # the answer is late by that
            assert session.trusted_until == begin_s + 39.5
            server.resume()
            await late
            assert session.trusted_until == begin_s + 5 + 39.5

    run_scene(scene)


def test_session_is_trusted_for_the_ttl_that_was_granted(tmp_path: Path) -> None:
    """With a longer election time-out, etcd grants no TTL as short as the one that is asked for."""

    async def scene(server: EtcdServer) -> None:
        clock = ManualMonotonic()
        async with at(server.address, "granted", clock) as one:
            session = await one.open_session(2_000, 300)
            assert session.ttl_ms > 5_000
            granted_s = session.ttl_ms / 1_000
            assert session.trusted_until == clock.now_s + granted_s - 0.3
            clock.now_s += granted_s - 0.4
            assert session.is_trusted
            clock.now_s += 0.1
            assert not session.is_trusted
            await session.keep_alive()
            assert session.trusted_until == clock.now_s + granted_s - 0.3

    options = ("--election-timeout", "5000")
    for server in running(EtcdServer(tmp_path, options=options)):
        run_scene(partial(scene, server))


def test_trust_ends_by_the_clock_alone(server: EtcdServer) -> None:
    async def scene() -> None:
        clock = ManualMonotonic()
        async with at(server.address, "frozen", clock) as one:
            session = await one.open_session(40_000, 500)
            server.pause()
            clock.now_s += 39
            assert session.is_trusted
            clock.now_s += 0.5
            assert not session.is_trusted
            assert not session.is_lost
            server.resume()
            await session.keep_alive()  # the server had it all the time
            assert session.is_trusted

    run_scene(scene)


def test_holder_hears_of_a_lost_session(server: EtcdServer) -> None:
    async def scene() -> None:
        async with (
            tcp_proxy(server.address) as way,
            at(way.address, "lost") as one,
            at(server.address, "lost") as other,
            other.watch("") as watch,
        ):
            session = await one.open_session()
            await one.commit([Put("k", b"", session)])
            await view_where(watch, lambda view: keys(view) == ["k"])
            way.cut()
            await view_where(watch, lambda view: not view.entries)
            assert not session.is_trusted
            assert not session.is_lost
            way.heal()
            await session.wait_lost()
            again = await one.open_session()
            assert (await one.commit([Put("k", b"", again)])).is_made

    run_scene(scene)


class InterruptedReads(EtcdCoordination):
    """gRPC cancels the first read by itself."""

    interruptions = 1

    async def read(self, prefix: str) -> View:
        if self.interruptions:
            self.interruptions -= 1
            raise asyncio.CancelledError
        return await super().read(prefix)


def test_errors_of_an_outage_are_freed_without_garbage_collection(
    server: EtcdServer, caplog: pytest.LogCaptureFixture
) -> None:
    """A broker collects seldom, and each error holds a call of gRPC."""
    caplog.set_level(logging.ERROR)  # a captured record holds the error of a warning

    async def scene() -> None:
        async with at(server.address, "freed") as one, one.watch("") as watch:
            session = await one.open_session(10_000)
            await view_where(watch, lambda view: view.is_current)
            gc.collect()
            gc.disable()
            await asyncio.to_thread(server.kill)
            await view_where(watch, lambda view: not view.is_current)
            for ask in (lambda: one.read(""), session.keep_alive):
                with suppress(CoordinationUnavailable):
                    await ask()
            await asyncio.to_thread(server.start)
            await view_where(watch, lambda view: view.is_current)
            await session.keep_alive()
            left = [each for each in gc.get_objects() if isinstance(each, grpc.aio.AioRpcError)]
            assert left == []

    try:
        run_scene(scene)
    finally:
        gc.enable()


def test_watch_survives_a_call_that_grpc_cancelled(server: EtcdServer) -> None:
    async def scene() -> None:
        address = EtcdAddress.parse(f"etcd://{server.address}/interrupted")
        async with InterruptedReads(address, times=QUICK) as one, one.watch("") as watch:
            await view_where(watch, lambda view: view.is_current)

    run_scene(scene)


def test_call_that_grpc_cancelled_is_an_error_of_the_service(server: EtcdServer) -> None:
    async def cancelled(*_: object) -> None:
        raise asyncio.CancelledError

    async def scene() -> None:
        async with at(server.address, "cancelled") as one:
            with pytest.raises(CoordinationUnavailable):
                await one.connection.ask(cancelled)
            await one.read("")  # a member is connected
            with pytest.raises(CommitUnknown):
                await one.connection.ask_once(cancelled)

    run_scene(scene)


def test_cancelled_caller_stays_cancelled(server: EtcdServer) -> None:
    async def scene() -> None:
        async with at(server.address, "stopped") as one:
            hung = asyncio.create_task(one.connection.ask(lambda *_: asyncio.Event().wait()))
            await asyncio.sleep(0)
            hung.cancel()
            with pytest.raises(asyncio.CancelledError):
                await hung

    run_scene(scene)


def test_session_survives_a_failed_keep_alive(server: EtcdServer) -> None:
    async def scene() -> None:
        clock = ManualMonotonic()
        async with at(server.address, "beats", clock) as one:
            session = await one.open_session()
            again = asyncio.Event()

            def fail_once() -> None:
                clock.on_read = again.set
                raise RuntimeError

            clock.on_read = fail_once
            await again.wait()
            assert not session.is_lost

    run_scene(scene)


def test_watch_survives_a_compaction_that_it_missed(server: EtcdServer) -> None:
    async def scene() -> None:
        async with (
            tcp_proxy(server.address) as way,
            at(way.address, "compacted") as one,
            at(server.address, "compacted") as other,
            one.watch("") as watch,
        ):
            await other.commit([Put("gone", b""), Put("kept", b"1")])
            await view_where(watch, lambda view: keys(view) == ["gone", "kept"])
            way.cut()
            await view_where(watch, lambda view: not view.is_current)
            session = await other.open_session()
            await other.commit([Put("gone", b"", session)])
            await session.close()
            for number in range(5):
                await other.commit([Put("kept", b"2"), Put("new", bytes([number]))])
            await compact(server, (await other.read("")).revision)
            way.heal()
            view = await view_where(watch, lambda view: view.is_current)
            assert view == await other.read("")
            assert keys(view) == ["kept", "new"]
            await other.commit([Put("newer", b"")])
            await view_where(watch, lambda view: "newer" in view.entries)

    run_scene(scene)


@pytest.mark.parametrize("is_made", [True, False])
def test_commit_without_an_answer_is_unknown_and_settled(server: EtcdServer, is_made: bool) -> None:
    async def scene() -> None:
        prefix = f"unknown-{is_made}"
        async with (
            tcp_proxy(server.address) as way,
            at(way.address, prefix) as one,
            at(server.address, prefix) as other,
            other.watch("") as watch,
        ):
            await one.commit([Put("first", b"")])
            way.loses_answers, way.loses_requests = is_made, not is_made
            commit = asyncio.create_task(one.commit([Put("k", b"mine")], when=[Absent("k")]))
            if is_made:
                await view_where(watch, lambda view: "k" in view.entries)
                way.cut()
            with pytest.raises(CommitUnknown):
                await commit
            way.cut()
            assert (await other.get("k") is not None) == is_made
            way.loses_answers = way.loses_requests = False
            way.heal()
            await until(lambda: _reads(one))

    run_scene(scene)


def test_lost_answer_is_settled_by_the_same_commit(server: EtcdServer) -> None:
    async def scene() -> None:
        async with (
            tcp_proxy(server.address) as way,
            at(way.address, "settled") as one,
            at(server.address, "settled") as other,
            other.watch("") as watch,
        ):
            await one.commit([Put("first", b"")])
            way.loses_answers = True
            commit = asyncio.create_task(
                commit_surely(
                    one,
                    [Put("k", b"mine")],
                    when=[Absent("k")],
                    is_ours=lambda found: found is not None and found.value == b"mine",
                )
            )
            await view_where(watch, lambda view: "k" in view.entries)
            way.cut()
            way.loses_answers = False
            way.heal()
            done = await commit
            entry = await other.get("k")
            assert entry is not None
            assert (done.is_made, done.revision) == (True, entry.version)

    run_scene(scene)


def test_other_member_is_used_when_one_fails(server: EtcdServer) -> None:
    """Two addresses of one member: the first of nobody, then one that is cut."""

    async def scene() -> None:
        (nobody,) = free_addresses(1)
        async with tcp_proxy(server.address) as way:
            url = f"etcd://{nobody},{way.address},{server.address}/members"
            async with open_coordination(url) as one, one.watch("") as watch:
                session = await one.open_session(10_000)
                assert (await one.commit([Put("k", b"", session)])).is_made
                await view_where(watch, lambda view: keys(view) == ["k"])
                way.cut()
                assert keys(await one.read("")) == ["k"]
                assert (await one.commit([Put("l", b"")])).is_made
                await session.keep_alive()
                await view_where(watch, lambda view: view.is_current and len(view.entries) == 2)

    run_scene(scene)


def test_clock_of_the_server_is_ours_on_this_machine(server: EtcdServer) -> None:
    async def scene() -> None:
        async with at(server.address, "clock") as one:
            offset = await one.clock_offset()
            assert offset is not None
            assert abs(offset.ahead_ms) <= offset.error_ms + 1

    run_scene(scene)


async def _reads(one: EtcdCoordination) -> bool:
    try:
        await one.read("")
    except CoordinationUnavailable:
        return False
    return True


def test_full_etcd_refuses_commits_and_keeps_sessions(tmp_path: Path) -> None:
    async def fill(one: EtcdCoordination) -> None:
        for _ in range(100):
            await one.commit([Put("k", bytes(500_000))])

    async def scene(server: EtcdServer) -> None:
        async with at(server.address, "full") as one, one.watch("") as watch:
            session = await one.open_session(10_000)
            await one.commit([Put("mine", b"1", session)])
            is_full = "space exceeded; nothing was changed"
            with pytest.raises(CoordinationUnavailable, match=is_full):
                await fill(one)
            with pytest.raises(CoordinationUnavailable, match=is_full):
                await one.commit([Put("mine", b"2", session)])

            await session.keep_alive()  # it writes nothing
            assert session.is_trusted
            assert (await one.read("mine")).entries["mine"].value == b"1"

            await make_room(server)
            assert (await one.commit([Put("mine", b"2", session)])).is_made
            await view_where(
                watch, lambda view: "mine" in view.entries and view.entries["mine"].value == b"2"
            )

    for server in running(EtcdServer(tmp_path, options=("--quota-backend-bytes", "4000000"))):
        run_scene(partial(scene, server))
