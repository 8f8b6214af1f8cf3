"""Workers: handlers, retries, renewals, draining."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import chronoline.client.worker as worker_module
from chronoline.client import TopicSettings
from chronoline.client.aio import AsyncClient
from chronoline.client.leases import AsyncLease
from chronoline.client.messages import ToSend
from chronoline.client.sync import Client, Lease
from chronoline.client.worker import Retry, Worker
from chronoline.core.errors import BrokerUnavailable, InvalidInput, OutcomeUnknown, TopicNotFound
from chronoline.runtime.backoff import Backoff
from chronoline.runtime.child_process import free_addresses
from chronoline.stores.memory import MemoryStore
from chronoline.testing import scheduled
from chronoline.wire.v1 import chronoline_pb2 as pb
from tests.broker.nodes import Running, running
from tests.client.fake import TOPIC_UID, FakeBroker, FakeStream, delivery, done
from tests.deadline import until

_QUICK = Retry(base=0.02, factor=1.0, jitter=0.0, final=(KeyError,))


def test_return_acks_and_exception_retries(
    tmp_path: Path,
) -> None:
    async def play() -> None:
        seen: list[tuple[str, int]] = []
        async with running(tmp_path) as broker, broker.client() as client:
            worker = Worker(broker.address, retry=_QUICK)

            @worker.handler("jobs")
            async def work(lease: AsyncLease) -> None:
                seen.append((lease.id, lease.attempts))
                if lease.attempts < 2:
                    raise RuntimeError("not yet")

            await client.create_topic("jobs")
            await client.send("jobs", b"x", id="a")
            serving = asyncio.ensure_future(worker.serve())
            await _emptied(client, "jobs")
            worker.stop()
            await serving
            assert seen == [("a", 0), ("a", 1), ("a", 2)]
            assert await client.dead_letters("jobs") == []

    asyncio.run(play())


@pytest.mark.parametrize(
    "final", [[ValueError, KeyError], (ValueError, KeyError), {ValueError, KeyError}]
)
def test_final_errors_may_be_given_in_any_collection(final: Any) -> None:
    assert set(Retry(final=final).final) == {ValueError, KeyError}
    assert Retry(final=ValueError).final == (ValueError,)  # type: ignore[arg-type]  # one is meant


@pytest.mark.parametrize("final", ["ValueError", [ValueError("x")], [int], [None], 5])
def test_final_takes_only_classes_of_errors(final: Any) -> None:
    with pytest.raises(InvalidInput, match="classes of errors"):
        Retry(final=final)


def test_full_worker_leaves_other_topics_to_another(
    tmp_path: Path,
) -> None:
    async def play() -> None:
        async with running(tmp_path) as broker, broker.client() as client:
            for name in ("slow", "quick"):
                await client.create_topic(name, TopicSettings(window=0.1))
            release, by = asyncio.Event(), {}
            full = Worker(broker.address, consumer="full", concurrency=2, lease=600)
            other = Worker(broker.address, consumer="other", concurrency=2, lease=600)

            @full.handler("slow")
            async def wait(_: AsyncLease) -> None:
                await release.wait()

            @full.handler("quick")
            async def late(lease: AsyncLease) -> None:
                by[lease.id] = "full"

            @other.handler("quick")
            async def work(lease: AsyncLease) -> None:
                by[lease.id] = "other"

            serving = [asyncio.ensure_future(full.serve())]
            await client.send_many("slow", [ToSend(), ToSend()])
            await until(lambda: _held(broker, "slow") == 2)
            await client.send_many("quick", [ToSend(id=f"m{number}") for number in range(20)])
            await until(lambda: _held(broker, "quick") == 2)
            serving.append(asyncio.ensure_future(other.serve()))
            await until(lambda: len(by) == 20)
            assert set(by.values()) == {"other"}
            release.set()
            await _emptied(client, "slow")
            await client.send("quick", b"", id="after")
            await until(lambda: "after" in by)
            for worker in (full, other):
                worker.stop()
            await asyncio.gather(*serving)

    asyncio.run(play())


def _held(broker: Running, topic: str) -> int:
    """How many messages of a topic are with a consumer."""
    return sum(len(each.outstanding) for each in broker.subscriptions if each.topic.name == topic)


def test_final_error_buries_at_once(tmp_path: Path) -> None:
    async def play() -> None:
        async with running(tmp_path) as broker, broker.client() as client:
            worker = Worker(broker.address, retry=_QUICK)

            @worker.handler("jobs")
            def work(lease: Lease) -> None:
                raise KeyError(lease.id)

            await client.create_topic("jobs")
            await client.send("jobs", b"x", id="a")
            serving = asyncio.ensure_future(worker.serve())
            await _emptied(client, "jobs")
            worker.stop()
            await serving
            (letter,) = await client.dead_letters("jobs")
            assert (letter.message.id, letter.reason) == ("a", "KeyError: 'a'")
            assert letter.message.attempts == 1

    asyncio.run(play())


def test_lease_of_a_slow_handler_is_renewed(tmp_path: Path) -> None:
    async def play() -> None:
        calls = 0
        async with running(tmp_path) as broker, broker.client() as client:
            worker = Worker(broker.address, lease=3)

            @worker.handler("slow")
            def work(lease: Lease) -> None:
                nonlocal calls
                calls += 1
                version = lease.version
                while lease.version < version + 2:  # each after a third of it
                    threading.Event().wait(0.01)
                assert not lease.is_lost

            await client.create_topic("slow", TopicSettings(default_lease=0.5))
            await client.send("slow", b"x")
            serving = asyncio.ensure_future(worker.serve())
            await _emptied(client, "slow")
            worker.stop()
            await serving
            assert calls == 1

    asyncio.run(play())


def test_stopping_worker_finishes_and_returns_the_rest(tmp_path: Path) -> None:
    async def play() -> None:
        begun = asyncio.Event()
        go_on = asyncio.Event()
        async with running(tmp_path) as broker, broker.client() as client:
            worker = Worker(broker.address, concurrency=1)

            @worker.handler("jobs")
            async def work(lease: AsyncLease) -> None:
                begun.set()
                await go_on.wait()

            await client.create_topic("jobs")
            for name in ("a", "b", "c"):
                await client.send("jobs", b"x", id=name)
            serving = asyncio.ensure_future(worker.serve())
            await begun.wait()
            worker.stop()
            await asyncio.sleep(0.1)  # a worker that did not wait for its handler would have ended
            assert not serving.done()
            go_on.set()
            await serving
            counts = await client.count("jobs")
            assert counts.total == 2
            assert counts.processing == 0

    asyncio.run(play())


def test_leases_are_renewed_while_a_worker_drains(tmp_path: Path) -> None:
    async def play() -> None:
        begun, go_on = asyncio.Event(), asyncio.Event()
        async with running(tmp_path) as broker, broker.client() as client:
            worker = Worker(broker.address, lease=3)

            @worker.handler("jobs")
            async def work(lease: AsyncLease) -> None:
                begun.set()
                await go_on.wait()
                assert not lease.is_lost

            await client.create_topic("jobs")
            await client.send("jobs", b"x", id="a")
            serving = asyncio.ensure_future(worker.serve())
            await begun.wait()
            worker.stop()
            version = await _version(client, "a")

            async def was_renewed() -> bool:
                return await _version(client, "a") >= version + 2

            await until(was_renewed)
            go_on.set()
            await serving
            assert (await client.count("jobs")).total == 0

    asyncio.run(play())


def test_concurrency_covers_all_topics(tmp_path: Path) -> None:
    async def play() -> None:
        now, most = 0, 0
        async with running(tmp_path) as broker, broker.client() as client:
            worker = Worker(broker.address, concurrency=2)

            async def work(lease: AsyncLease) -> None:
                nonlocal now, most
                now += 1
                most = max(most, now)
                await asyncio.sleep(0.01)  # the work: others could begin meanwhile
                now -= 1

            for topic in ("a", "b", "c"):
                worker.handler(topic)(work)
                await client.create_topic(topic)
                for _ in range(10):
                    await client.send(topic, b"x")
            serving = asyncio.ensure_future(worker.serve())
            for topic in ("a", "b", "c"):
                await _emptied(client, topic)
            worker.stop()
            await serving
            assert most == 2

    asyncio.run(play())


def test_handler_may_settle_its_lease(tmp_path: Path) -> None:
    async def play() -> None:
        async with running(tmp_path) as broker, broker.client() as client:
            worker = Worker(broker.address)

            @worker.handler("jobs")
            def work(lease: Lease) -> None:
                lease.release(delay=3_600)
                worker.stop()

            await client.create_topic("jobs")
            await client.send("jobs", b"x", id="a")
            await worker.serve()
            found = await client.lookup("jobs", "a")
            assert found is not None
            assert (found.attempts, found.lock_consumer) == (0, None)

    asyncio.run(play())


def test_handler_sees_a_lost_lease_and_worker_continues() -> None:
    async def play() -> None:
        async def answer(stream: FakeStream, frame: Any) -> None:
            match frame.WhichOneof("what"):
                case "subscribe":
                    told = pb.Subscribed(topic_uid=TOPIC_UID, lease_ms=300)
                    await stream.reply(seq=frame.seq, subscribed=told)
                case "move":
                    outcomes = [pb.Outcome(id=m.id, refusal="stale") for m in frame.move.moves]
                    await stream.reply(seq=frame.seq, moved=pb.Moved(outcomes=outcomes, at_ms=[0]))
                case "ack" if frame.ack.leases[0].id == "lost":
                    await stream.outcomes(frame.seq, [pb.Outcome(id="lost", refusal="stale")])
                case _:
                    await done(stream, frame)

        async with FakeBroker(answer) as broker:
            worker = Worker(broker.address, lease=0.3)
            seen = []

            @worker.handler("t")
            async def work(lease: AsyncLease) -> None:
                if lease.id == "lost":
                    assert not lease.is_lost
                    await lease.lost.wait()
                    assert lease.is_lost
                seen.append(lease.id)

            serving = asyncio.ensure_future(worker.serve())
            await broker.until(lambda: bool(broker.streams))
            await broker.push(delivery("lost", lease_ms=300))
            await broker.seen("ack")
            await broker.push(delivery("next"))
            await broker.seen("ack", 2)
            worker.stop()
            await serving
            assert seen == ["lost", "next"]

    asyncio.run(play())


def test_lease_without_a_handler_is_let_go() -> None:
    """Also when the broker refuses the retry."""

    async def play() -> None:
        async def refuse(stream: FakeStream, frame: Any) -> None:
            if frame.WhichOneof("what") == "move":
                outcomes = [pb.Outcome(id=m.id, refusal="too_soon") for m in frame.move.moves]
                await stream.reply(seq=frame.seq, moved=pb.Moved(outcomes=outcomes, at_ms=[0]))
            else:
                await done(stream, frame)

        async with FakeBroker(refuse) as broker:
            worker = Worker(broker.address, concurrency=1)

            @worker.handler("t")
            async def work(lease: AsyncLease) -> None:
                raise RuntimeError

            serving = asyncio.ensure_future(worker.serve())
            await broker.until(lambda: bool(broker.streams))
            await broker.push(delivery("a"))
            await broker.seen("credit")  # its place is free, and it is not renewed any more
            worker.stop()
            await serving
            assert broker.of("ack") == []

    asyncio.run(play())


def _exits() -> None:
    sys.exit("no such user")


def _interrupts() -> None:
    raise KeyboardInterrupt


def _stops_iterating() -> None:
    next(iter(()))


def _is_cancelled() -> None:
    raise asyncio.CancelledError


@pytest.mark.parametrize(
    ("kind", "fail"),
    [
        ("plain", _exits),
        ("plain", _interrupts),
        ("plain", _stops_iterating),
        ("plain", _is_cancelled),
        ("async", _exits),
        ("async", _is_cancelled),
    ],
)
def test_handler_error_fails_only_its_message(
    kind: str, fail: Callable[[], None], caplog: pytest.LogCaptureFixture
) -> None:
    async def play() -> None:
        async with FakeBroker() as broker:
            worker = Worker(broker.address, retry=_QUICK)

            async def await_it(lease: AsyncLease) -> None:
                await asyncio.sleep(0)
                if lease.id == "fails":
                    fail()

            def call_it(lease: Lease) -> None:
                if lease.id == "fails":
                    fail()

            worker.handler("t")(await_it if kind == "async" else call_it)
            serving = asyncio.ensure_future(worker.serve())
            await broker.until(lambda: bool(broker.streams))
            await broker.push(delivery("fails"))
            (retry,) = await broker.seen("move")
            assert retry.move.kind == pb.MoveBatch.KIND_RETRY
            await broker.push(delivery("next"))
            (ack,) = await broker.seen("ack")
            assert [each.id for each in ack.ack.leases] == ["next"]
            worker.stop()
            await serving

    asyncio.run(play())
    assert "message 'fails' failed, it is tried again" in caplog.text


def test_keyboard_interrupt_ends_the_worker() -> None:
    async def play() -> None:
        async with FakeBroker() as broker:
            worker = Worker(broker.address)

            @worker.handler("t")
            async def work(lease: AsyncLease) -> None:
                raise KeyboardInterrupt

            serving = asyncio.ensure_future(worker.serve())
            await broker.until(lambda: bool(broker.streams))
            await broker.push(delivery("a"))
            await serving

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(play())


def test_self_cancelled_handler_is_retried() -> None:
    async def play() -> None:
        async with FakeBroker() as broker:
            worker = Worker(broker.address, retry=_QUICK)

            @worker.handler("t")
            async def work(lease: AsyncLease) -> None:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
                await asyncio.sleep(0)

            serving = asyncio.ensure_future(worker.serve())
            await broker.until(lambda: bool(broker.streams))
            await broker.push(delivery("a"))
            (retry,) = await broker.seen("move")
            assert retry.move.kind == pb.MoveBatch.KIND_RETRY
            worker.stop()
            await serving

    asyncio.run(play())


def test_system_exit_can_be_a_final_error() -> None:
    async def play() -> None:
        async with FakeBroker() as broker:
            worker = Worker(broker.address, retry=Retry(final=SystemExit))  # type: ignore[arg-type]  # one is meant

            @worker.handler("t")
            def work(lease: Lease) -> None:
                sys.exit("no such user")

            serving = asyncio.ensure_future(worker.serve())
            await broker.until(lambda: bool(broker.streams))
            await broker.push(delivery("a"))
            (buried,) = await broker.seen("move")
            assert buried.move.moves[0].reason == "SystemExit: no such user"
            worker.stop()
            await serving

    asyncio.run(play())


def test_cancelled_worker_cancels_handlers_and_settles_nothing() -> None:
    async def play() -> None:
        begun, cancelled = asyncio.Event(), asyncio.Event()
        async with FakeBroker() as broker:
            worker = Worker(broker.address)

            @worker.handler("t")
            async def work(lease: AsyncLease) -> None:
                begun.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    cancelled.set()

            serving = asyncio.ensure_future(worker.serve())
            await broker.until(lambda: bool(broker.streams))
            await broker.push(delivery("a"))
            await begun.wait()
            serving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await serving
            await cancelled.wait()
            assert broker.of("move") == broker.of("ack") == []

    asyncio.run(play())


def test_worker_stops_before_the_broker_answers() -> None:
    async def play() -> None:
        async def never(stream: FakeStream, frame: Any) -> None:
            """Never answer."""

        async with FakeBroker(never) as broker:
            worker = Worker(broker.address)
            worker.stop()  # before the start it has no effect
            worker.handler("t")(print)
            serving = asyncio.ensure_future(worker.serve())
            await broker.seen("subscribe")
            worker.stop()
            worker.stop()
            async with asyncio.timeout(60):
                await serving

    asyncio.run(play())


def test_worker_waits_for_a_topic_and_serves_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No setting: the test does not wait for the usual time.
    monkeypatch.setattr(worker_module, "_BACKOFF", Backoff(0.02, 0.02))
    caplog.set_level("WARNING", "chronoline.client.worker")

    def said(words: str) -> bool:
        return any(words in message for message in caplog.messages)

    async def play() -> None:
        async with running(tmp_path) as broker, broker.client() as client:
            worker = Worker(broker.address)
            worker.handler("later")(lambda lease: None)
            worker.handler("jobs")(lambda lease: None)
            await client.create_topic("jobs")
            await client.send("jobs", b"x")
            serving = asyncio.ensure_future(worker.serve())
            await _emptied(client, "jobs")
            assert said("topic 'later' does not exist")
            await client.create_topic("later")
            await client.send("later", b"x")
            await _emptied(client, "later")
            assert said("topic 'later' exists now")
            worker.stop()
            await serving

    asyncio.run(play())


def test_worker_stops_while_it_waits_for_a_topic(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def play() -> None:
        async with running(tmp_path) as broker:
            worker = Worker(broker.address)
            worker.handler("nowhere")(print)
            serving = asyncio.ensure_future(worker.serve())
            await until(lambda: "the worker waits for it" in caplog.text)
            worker.stop()
            async with asyncio.timeout(60):
                await serving

    asyncio.run(play())


def test_worker_that_cannot_start_says_why() -> None:
    async def play() -> None:
        (dead,) = free_addresses(1)
        worker = Worker(dead)
        worker.handler("nowhere")(print)
        with pytest.raises(BrokerUnavailable, match="chronoline up"):
            await worker.serve()

    asyncio.run(play())


def test_deleted_topic_ends_its_worker(tmp_path: Path) -> None:
    async def play() -> None:
        async with running(tmp_path) as broker, broker.client() as client:
            worker = Worker(broker.address)
            begun = asyncio.Event()

            @worker.handler("jobs")
            async def work(lease: AsyncLease) -> None:
                begun.set()

            await client.create_topic("jobs")
            await client.send("jobs", b"x")
            serving = asyncio.ensure_future(worker.serve())
            await begun.wait()
            await client.delete_topic("jobs")
            async with asyncio.timeout(60):
                with pytest.raises(TopicNotFound):
                    await serving

    asyncio.run(play())


_CHILD = """
import sys
from chronoline.client import Client, Worker

worker = Worker(concurrency=1)

@worker.handler("jobs")
def work(lease):
    print("begun", flush=True)
    sys.stdin.readline()
    print("finished", flush=True)

worker.run()
print("ended")
"""


def test_sigterm_drains_a_worker(chronoline_broker: str, chronoline_store: MemoryStore) -> None:
    async def send() -> None:
        async with AsyncClient(chronoline_broker) as client:
            await client.create_topic("jobs")
            await client.send("jobs", b"x", id="a")
            await client.send("jobs", b"x", id="b")

    asyncio.run(send())
    run = [sys.executable, "-c", _CHILD]
    with subprocess.Popen(
        run, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stderr is not None
        assert child.stdout.readline() == "begun\n"
        child.send_signal(signal.SIGTERM)
        child.send_signal(signal.SIGTERM)
        child.stdin.write("\n")
        child.stdin.flush()
        assert child.stdout.read() == "finished\nended\n"
        assert child.wait() == 0
        assert child.stderr.read() == ""
    assert [each.message.id for each in scheduled(chronoline_store, "jobs")] == ["b"]
    assert [each.message.lock_consumer for each in scheduled(chronoline_store, "jobs")] == [None]


def test_workers_run_in_turn_beside_a_client(chronoline_broker: str) -> None:
    seen = []
    with Client(chronoline_broker) as client:
        client.create_topic("jobs")
        for number in range(3):
            worker = Worker(chronoline_broker)

            @worker.handler("jobs")
            async def work(lease: AsyncLease, worker: Worker = worker) -> None:
                seen.append(lease.id)
                worker.stop()

            client.send("jobs", b"x", id=f"{number}")
            worker.run()
        assert client.count("jobs").total == 0
    assert seen == ["0", "1", "2"]


def test_back_off_grows_up_to_its_cap() -> None:
    retry = Retry(base=1, factor=3, cap=20, jitter=0.5)
    assert [retry.delay_s(attempts, 0.5) for attempts in range(5)] == [1, 3, 9, 20, 20]
    assert retry.delay_s(0, 0) == 0.5
    assert retry.delay_s(0, 1) == 1.5
    assert retry.delay_s(10_000, 0.5) == 20


def test_back_off_takes_timedeltas() -> None:
    retry = Retry(base=timedelta(seconds=2), cap=timedelta(minutes=1), jitter=0)
    assert [retry.delay_s(attempts, 0) for attempts in (0, 1, 9)] == [2, 4, 60]
    with pytest.raises(InvalidInput, match="cap >= base"):
        Retry(base=timedelta(hours=2))
    with pytest.raises(InvalidInput, match="base must not be negative"):
        Retry(base=-1)


async def _emptied(client: AsyncClient, topic: str) -> None:
    async def is_empty() -> bool:
        return (await client.count(topic)).total == 0

    await until(is_empty)


async def _version(client: AsyncClient, message_id: str) -> int:
    found = await client.lookup("jobs", message_id)
    assert found is not None
    return found.version


@pytest.mark.parametrize("lives", [True, False])
def test_unanswered_settlement_is_repeated_while_the_lease_lives(
    monkeypatch: pytest.MonkeyPatch, lives: bool
) -> None:
    """Otherwise the lease lapses, and the work is done twice."""
    monkeypatch.setattr(worker_module, "_BACKOFF", Backoff(0.001, 0.001))
    asked = []

    async def ack() -> None:
        asked.append("ack")
        if len(asked) < 3:
            raise OutcomeUnknown("no answer came")

    lease: Any = SimpleNamespace(id="a", is_live=lives)
    # Called directly with a fake lease: it needs no broker and no time-out.
    asyncio.run(worker_module._settle_lease(lease, "ack", ack))
    assert len(asked) == (3 if lives else 1)
