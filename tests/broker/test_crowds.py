"""Warnings at creation: a second that is fuller than its topic can deliver."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from chronoline.client import TopicSettings
from chronoline.client.messages import ToSend
from tests.broker.http.served import serving
from tests.broker.nodes import Running, running
from tests.deadline import run_scene, until

SOON = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)


def herd(count: int, prefix: str = "m", due: datetime = SOON) -> list[ToSend]:
    return [ToSend(id=f"{prefix}{number}", due=due) for number in range(count)]


def crowded(it: Running) -> float:
    samples = it.node.metrics.snapshot().samples
    return sum(value for name, _, value in samples if name == "topic_crowded_count")


def test_full_second_is_warned_of_once_in_a_batch(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene() -> None:
        async with running(tmp_path) as it, it.client() as client:
            await client.create_topic("t", TopicSettings(most_per_s=10))
            assert not any(each.warning for each in await client.send_many("t", herd(10)))
            later = herd(20, "n") + herd(5, "o", SOON + timedelta(minutes=1))
            outcomes = await client.send_many("t", later)
            warned = [each.id for each in outcomes if each.warning]
            assert warned == ["n0"]
            assert "30 messages of topic 't' fall due in the second of" in outcomes[0].warning
            assert "10 a second (most_per_s)" in outcomes[0].warning
            await client.send_many("t", herd(5, "p"))
            assert crowded(it) == 25

    with caplog.at_level(logging.WARNING, logger="chronoline.client"):
        run_scene(scene)
    logged = [each for each in caplog.records if getattr(each, "action", "") == "crowded"]
    assert len(logged) == 1, "at most once a minute"


def test_messages_that_the_store_had_before_count(tmp_path: Path) -> None:
    async def scene() -> None:
        async with running(tmp_path) as it, it.client() as client:
            await client.create_topic("t", TopicSettings(most_per_s=10))
            await client.send_many("t", herd(10))
        async with running(tmp_path) as it, it.client() as client:
            number = 0

            async def is_warned() -> bool:
                nonlocal number
                number += 1
                (outcome,) = await client.send_many("t", herd(1, f"n{number}-"))
                return bool(outcome.warning)

            await until(is_warned)

    run_scene(scene)


def test_scattered_messages_are_hardly_counted(tmp_path: Path) -> None:
    """A topic whose messages are scattered over years makes no query for each create."""

    async def scene() -> None:
        async with running(tmp_path) as it, it.client() as client:
            await client.create_topic("t", TopicSettings(most_per_s=10))
            for number in range(60):
                due = SOON + timedelta(minutes=number)
                (outcome,) = await client.send_many("t", herd(1, f"n{number}-", due))
                assert not outcome.warning
            counts = sum(
                value
                for name, labels, value in it.node.metrics.snapshot().samples
                if name == "storage_queries_count" and labels[:2] == ("read", "range")
            )
            assert counts < 40

    run_scene(scene)


def test_spread_makes_room(tmp_path: Path) -> None:
    async def scene() -> None:
        async with running(tmp_path) as it, it.client() as client:
            await client.create_topic("t", TopicSettings(most_per_s=10, spread=60))
            outcomes = await client.send_many("t", herd(200))
            assert not any(each.warning for each in outcomes)
            dues = [each.at for each in outcomes]
            assert all(
                due is not None and SOON <= due < SOON + timedelta(minutes=1) for due in dues
            )
            found = await client.lookup("t", "m7")
            assert found is not None
            assert found.due == dues[7]

    run_scene(scene)


def test_http_says_it_too(tmp_path: Path) -> None:
    async def scene() -> None:
        async with serving(tmp_path) as served:
            await served.create_topic(most_per_s=1, spread_ms=0)
            due = SOON.isoformat()
            assert "warning" not in await served.put("a", due=due)
            answer = await served.put("b", due=due)
            assert "2 messages" in answer["warning"]

    run_scene(scene)
