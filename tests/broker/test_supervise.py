"""A broker continues after an unexpected error in one of its parts."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from chronoline.broker.metrics import BrokerMetrics
from chronoline.client import TopicSettings
from chronoline.client.aio import AsyncClient, ToSend
from chronoline.stores.contract import Store
from chronoline.stores.factory import open_store
from tests.broker.http.served import serving
from tests.deadline import until
from tests.delivery.stores import call_name

_MESSAGES = 40


def _failures(metrics: BrokerMetrics) -> dict[str, float]:
    """How often each part of a broker failed, or a command."""
    return {
        sample.labels["command"]: sample.value
        for family in metrics.collect()
        for sample in family.samples
        if sample.name == "broker_commands_errors"
    }


class _Faulty:
    """A store in which one method fails once with an unexpected error."""

    def __init__(self, store: Store, method: str, *, after: bool) -> None:
        self._store = store
        self._method = method
        self._after = after
        self._lock = threading.Lock()
        self.calls = 0
        """Of this method."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name not in (self._method, "apply"):
            return found

        def ask(*given: Any, **named: Any) -> Any:
            if call_name(name, given) != self._method:
                return found(*given, **named)
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
    """Consumers that extend and ack every message."""

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
    "next_times": "reserving",
    "purge": "purging",
    "resume": "subscribe",
}
"""By method of the store: what of the broker failed with it, where that has another name."""


@pytest.mark.parametrize(
    ("method", "after"),
    [
        ("create", False),
        ("reserve", False),
        ("reserve", True),
        ("next_times", False),
        ("purge", False),
        ("resume", False),
        ("resume", True),
        ("extend", False),
        ("ack", False),
        ("ack", True),
    ],
)
def test_node_continues_after_an_unexpected_error(tmp_path: Path, method: str, after: bool) -> None:
    ids = [f"m{number}" for number in range(_MESSAGES)]
    # Settlings of two that meet in a lane are tried again apart, and neither fails.
    names = ("a",) if method in ("ack", "extend") else ("a", "b")

    async def play() -> None:
        with open_store(f"sqlite:///{tmp_path / 'timeline.db'}") as store:
            faulty: Any = _Faulty(store, method, after=after)
            async with (
                serving(faulty, upkeep_every_s=0.1) as served,
                served.client() as client,
            ):
                await client.create_topic("jobs", TopicSettings(window=0.1))
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
