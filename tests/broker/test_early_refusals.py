"""A broker that can change nothing says so at once: the reason, and one line in the audit trail."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from chronoline.cli.broker import Broker
from chronoline.client import Client
from chronoline.core.errors import BrokerUnavailable, ChronolineError, StoreBusy, StoreUnavailable
from chronoline.runtime.clock import SystemClock
from chronoline.stores.contract import Reach
from chronoline.stores.memory import MemoryStore
from tests.broker.cluster.scene import cluster
from tests.broker.http.served import serving
from tests.coordination.engines import EmbeddedEngine
from tests.deadline import run_scene, until

_ACTS: dict[str, Callable[[Client], Any]] = {
    "create_topic": lambda client: client.create_topic("new"),
    "delete_topic": lambda client: client.delete_topic("jobs"),
    "change_topic": lambda client: client.change_topic("jobs", dedupe=60),
    "pause": lambda client: client.pause_topic("jobs"),
    "resume": lambda client: client.resume_topic("jobs"),
    "create_schedule": lambda client: client.create_schedule("daily", "jobs", every=3_600),
    "pause_schedule": lambda client: client.pause_schedule("hourly"),
    "delete_schedule": lambda client: client.delete_schedule("hourly"),
}


class IllStore:
    """A store that takes no changes, or does not answer its probe, or has another clock."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.reach = Reach.CHANGES
        self.behind_ms = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def probe(self, *, patience_s: float) -> Reach:
        return self.reach

    def clock_ms(self) -> int | None:
        return SystemClock().now_ms() - self.behind_ms

    def fall_ill(self, illness: str) -> None:
        match illness:
            case "clock":
                self.behind_ms = 10_000
            case "silent":
                self.reach = Reach.NOTHING
            case "unfinished":
                self.reach = Reach.READS


_ILLNESSES: dict[str, tuple[type[ChronolineError], str]] = {
    "clock": (BrokerUnavailable, "this broker's clock is 10.0 s ahead of the store's"),
    "silent": (StoreUnavailable, "the store did not answer within 1 s"),
    "unfinished": (StoreBusy, "a synchronous standby may be away"),
}


def _audited(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.name == "chronoline.audit"]


@pytest.mark.parametrize("illness", _ILLNESSES)
def test_administrative_act_is_refused_at_once_with_the_reason(
    illness: str, caplog: pytest.LogCaptureFixture
) -> None:
    error_type, reason = _ILLNESSES[illness]

    def act_all(client: Client) -> None:
        for act, do in _ACTS.items():
            if illness == "silent" and act != "create_topic":
                continue  # the client asks for the topic first, which repeats for a while
            caplog.clear()
            with pytest.raises(error_type, match=reason):
                do(client)
            assert len(_audited(caplog)) == 1, act

    async def play() -> None:
        with MemoryStore() as inner:
            store: Any = IllStore(inner)
            async with serving(store) as served:
                assert served.node.parts is not None
                degradation = served.node.parts.degradation
                async with served.client() as client:
                    await client.create_topic("jobs")
                    await client.create_schedule("hourly", "jobs", every=3_600)
                command = Broker(address=served.address, token=None, tls=False)
                with command.administration() as client:
                    await asyncio.to_thread(client.topic, "jobs")
                    store.fall_ill(illness)
                    await until(lambda: bool(degradation.current))
                    await asyncio.to_thread(act_all, client)

    with caplog.at_level(logging.INFO, "chronoline.audit"):
        run_scene(play)


@pytest.mark.parametrize("illness", ["clock", "silent"])
def test_client_of_an_ill_broker_goes_to_a_healthy_one(
    illness: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def play() -> None:
        with MemoryStore() as inner:
            store: Any = IllStore(inner)
            async with cluster(EmbeddedEngine()) as found:
                ill = await found.add_broker("a", store=store)
                await found.add_broker("b", store=inner)
                await until(lambda: found.sees("a", "b"))
                store.fall_ill(illness)
                assert ill.node.parts is not None
                degradation = ill.node.parts.degradation
                await until(lambda: bool(degradation.current))
                client = await found.client("a")
                await client.create_topic("jobs")
                refused, done = _audited(caplog)
                assert refused.endswith("unavailable")
                assert done.endswith(": done")

    with caplog.at_level(logging.INFO, "chronoline.audit"):
        run_scene(play)
