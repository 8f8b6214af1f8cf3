"""A consumer that retries nearly everything gets single messages; others are not held up by it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from chronoline.broker.consumer_health import ConsumerHealth
from chronoline.client import TopicSettings
from chronoline.core.permissions import Operation
from tests.broker.nodes import running
from tests.deadline import run_scene, until

NOW = 1_000_000


def erring_consumer() -> ConsumerHealth:
    health = ConsumerHealth()
    for number in range(18):
        health.settled(Operation.RETRY, f"m{number}", NOW)
    assert health.is_erring
    return health


def test_retries_of_nearly_all_messages_are_errors() -> None:
    health = ConsumerHealth()
    for number in range(18):
        assert not health.is_erring
        health.settled(Operation.RETRY, f"m{number}", NOW)
    assert health.is_erring
    assert not health.may_serve(NOW)


def test_few_poisoned_messages_stop_no_consumer() -> None:
    health = ConsumerHealth()
    for number in range(1_000):
        health.settled(Operation.RETRY, f"m{number % 9}", NOW)
    assert not health.is_erring


def test_consumer_that_handles_some_messages_is_not_stopped() -> None:
    health = ConsumerHealth()
    for number in range(1_000):
        handles = number % 6 == 0
        health.settled(Operation.ACK if handles else Operation.RETRY, f"m{number}", NOW)
    assert not health.is_erring


def test_releases_are_no_errors() -> None:
    health = ConsumerHealth()
    for number in range(1_000):
        health.settled(Operation.RELEASE, f"m{number}", NOW)
    assert not health.is_erring


def test_failed_trials_come_further_and_further_apart() -> None:
    health = erring_consumer()
    now_ms, waits = NOW, []
    for _ in range(6):
        opens_at = health.gate.opens_at(now_ms)
        assert opens_at is not None
        assert not health.may_serve(opens_at - 1)
        assert health.may_serve(opens_at)
        waits.append(opens_at - now_ms)
        now_ms = opens_at
        health.gate.passed()
        assert not health.may_serve(now_ms)  # one at a time
        health.settled(Operation.RETRY, "trial", now_ms)
    assert waits == [1_000, 2_000, 4_000, 8_000, 10_000, 10_000]


@pytest.mark.parametrize("operation", [Operation.ACK, Operation.BURY])
def test_handled_message_ends_the_state(operation: Operation) -> None:
    health = erring_consumer()
    health.gate.passed()
    health.settled(operation, "m", NOW + 1_000)
    assert not health.is_erring
    health.settled(Operation.RETRY, "m", NOW + 1_000)
    assert not health.is_erring  # it is judged anew


def test_released_trial_allows_another() -> None:
    health = erring_consumer()
    health.gate.passed()
    health.settled(Operation.RELEASE, "m", NOW + 1_000)
    assert health.is_erring
    assert health.may_serve(NOW + 1_000)


def test_erring_consumer_leaves_the_messages_to_a_healthy_one(tmp_path: Path) -> None:
    """It is shown while it errs; the healthy one gets every message."""

    async def play() -> None:
        async with (
            running(tmp_path) as it,
            it.client() as erring,
            it.client() as healthy,
        ):
            await erring.create_topic("jobs", TopicSettings(window=0.2, max_attempts=1_000))
            ids = {f"m{number}" for number in range(60)}
            for each in ids:
                await erring.send("jobs", b"", id=each)

            async def fail() -> None:
                async for lease in erring.consume("jobs"):
                    await lease.retry()

            failing = asyncio.ensure_future(fail())
            assert it.node.parts is not None
            degradation = it.node.parts.degradation
            await until(lambda: [each.topic for each in degradation.notices] == ["jobs"])
            assert degradation.current == ()
            done: set[str] = set()
            async for lease in healthy.consume("jobs"):
                await lease.ack()
                done.add(lease.id)
                if done == ids:
                    break
            failing.cancel()
            await asyncio.gather(failing, return_exceptions=True)

    run_scene(play)


def test_lone_consumer_gets_everything_after_it_works_again(tmp_path: Path) -> None:
    async def play() -> None:
        async with running(tmp_path) as it, it.client() as client:
            await client.create_topic("jobs", TopicSettings(window=0.2, max_attempts=1_000))
            ids = {f"m{number}" for number in range(60)}
            for each in ids:
                await client.send("jobs", b"", id=each)
            assert it.node.parts is not None
            degradation = it.node.parts.degradation
            done: set[str] = set()
            async for lease in client.consume("jobs", prefetch=1):
                if not done and not degradation.notices:
                    await lease.retry()
                    continue
                await lease.ack()
                done.add(lease.id)
                if done == ids:
                    break
            assert degradation.notices == ()

    run_scene(play)
