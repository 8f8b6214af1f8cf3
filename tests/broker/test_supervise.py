"""Containment: what fails is told, counted and started anew, and nothing else notices."""

from __future__ import annotations

import asyncio
import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from chronoline.broker.metrics import BrokerMetrics
from chronoline.broker.supervise import contain
from chronoline.client.aio import AsyncClient, ToSend
from chronoline.core.topic import TopicSettings
from chronoline.node import broker_service
from chronoline.stores.contract import Store
from chronoline.stores.factory import open_store
from tests.broker.http.served import serving
from tests.waiting import until

_MESSAGES = 40


def _failures(metrics: BrokerMetrics) -> dict[str, float]:
    """How often each part of a broker failed, or a command."""
    return {
        sample.labels["command"]: sample.value
        for family in metrics.collect()
        for sample in family.samples
        if sample.name == "broker_commands_errors"
    }


class _Part:
    """Fails when it is started, so many times; then it works until it is told to end."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.starts = 0
        self.works = asyncio.Event()
        self.to_end = asyncio.Event()

    async def work(self) -> None:
        self.starts += 1
        if self.starts <= self.failures:
            raise RuntimeError(f"fault {self.starts}")
        self.works.set()
        await self.to_end.wait()


def test_a_part_that_fails_is_told_counted_and_started_anew(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def play() -> None:
        metrics = BrokerMetrics()
        part, sound = _Part(failures=2), _Part(failures=0)
        tasks = [contain("a part", part.work, metrics), contain("other", sound.work, metrics)]
        await asyncio.wait_for(part.works.wait(), 20)
        assert (part.starts, sound.starts) == (3, 1)
        assert _failures(metrics) == {"a part": 2}
        part.to_end.set()
        sound.to_end.set()
        await asyncio.wait_for(asyncio.gather(*tasks), 20)  # who returns is not started again
        assert (part.starts, sound.starts) == (3, 1)

    with caplog.at_level(logging.ERROR):
        asyncio.run(play())
    told = [each for each in caplog.records if each.getMessage().startswith("a part failed")]
    assert [str(each.exc_info[1]) for each in told if each.exc_info] == ["fault 1", "fault 2"]


@pytest.mark.parametrize("failures", [0, 1_000])
def test_cancelling_ends_a_part_whether_it_works_or_rests(failures: int) -> None:
    async def play() -> None:
        metrics = BrokerMetrics()
        part = _Part(failures)
        task = contain("a part", part.work, metrics)
        await until(lambda: part.works.is_set() or bool(_failures(metrics)))
        task.cancel()
        await asyncio.wait([task], timeout=20)
        assert task.cancelled()
        assert part.starts == 1
        assert _failures(metrics) == ({"a part": 1} if failures else {})

    asyncio.run(play())


class _Faulty:
    """Stands before a store: the method of this name fails once, as nobody foresaw."""

    def __init__(self, store: Store, method: str, *, after: bool) -> None:
        self._store = store
        self._method = method
        self._after = after
        self._lock = threading.Lock()
        self.calls = 0
        """Of this method."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name != self._method:
            return found

        def ask(*given: Any, **named: Any) -> Any:
            with self._lock:
                self.calls += 1
                is_first = self.calls == 1
            if is_first and not self._after:
                raise RuntimeError("a fault before it")
            answer = found(*given, **named)
            if is_first:
                raise RuntimeError("a fault after it")
            return answer

        return ask


class _Consumers:
    """They extend and ack what comes."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self.settled: list[str] = []

    async def consume(self, name: str) -> None:
        async for lease in self._client.consume("jobs", consumer=name, lease=600):
            await lease.extend()
            await lease.ack()
            self.settled.append(lease.id)


_COUNTED_AS = {
    "reserve": "reserving",
    "next_ts": "reserving",
    "purge": "upkeep",
    "resume": "subscribe",
}
"""By method of the store: what of the broker failed with it, where that has another name."""


@pytest.mark.parametrize(
    ("method", "after"),
    [
        ("create", False),
        ("reserve", False),
        ("reserve", True),
        ("next_ts", False),
        ("purge", False),
        ("resume", False),
        ("resume", True),
        ("extend", False),
        ("ack", False),
        ("ack", True),
    ],
)
def test_a_node_goes_on_after_a_fault_that_nobody_foresaw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, after: bool
) -> None:
    monkeypatch.setattr(broker_service, "_UPKEEP_EVERY_S", 0.1)
    ids = [f"m{number}" for number in range(_MESSAGES)]
    # Settlings of two that meet in a lane are tried again apart, and neither fails.
    names = ("a",) if method in ("ack", "extend") else ("a", "b")

    async def play() -> None:
        with open_store(f"sqlite:///{tmp_path / 'timeline.db'}") as store:
            faulty: Any = _Faulty(store, method, after=after)
            async with serving(faulty) as served, served.client() as client:
                await client.create_topic("jobs", TopicSettings(window_ms=100))
                consumers = _Consumers(client)
                tasks = [asyncio.ensure_future(consumers.consume(name)) for name in names]
                outcomes = await client.send_many("jobs", [ToSend(id=each) for each in ids])
                assert not outcomes.refused
                await until(lambda: len(consumers.settled) >= len(ids))
                await until(lambda: faulty.calls > 1)  # the part is at work again
                assert sorted(consumers.settled) == sorted(ids)
                assert (await client.count("jobs")).total == 0
                failed = _failures(served.node.metrics)
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            assert failed == {_COUNTED_AS.get(method, method): 1}

    asyncio.run(play())
