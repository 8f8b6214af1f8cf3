"""Liveness, readiness, metrics, and the list of consumers."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from chronoline.core.errors import StoreUnavailable
from chronoline.stores.factory import open_store
from tests.broker.http.served import Served, serving
from tests.broker.http.test_problems import check
from tests.broker.metric_samples import scrape
from tests.deadline import until


class Away:
    """A store that can be away or slow."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.away = False
        self.open = threading.Event()
        self.open.set()

    def __getattr__(self, name: str) -> Any:
        if self.away and name not in ("watch", "capabilities", "traffic"):
            raise StoreUnavailable("the server is gone")
        if name == "probe":
            self.open.wait(60)
        return getattr(self._store, name)


async def samples(served: Served) -> dict[tuple[str, str, str], float]:
    """By name, topic, and what else tells them apart."""
    return {
        (each.name, each.labels.get("topic", ""), each.labels.get("le", "")): each.value
        for each in await scrape(served.http)
    }


def test_node_is_ready_while_its_store_answers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def play() -> None:
        with open_store(f"sqlite:///{tmp_path / 'timeline.db'}") as store:
            away: Any = Away(store)
            async with serving(away) as served:
                assert (await served.http.get("/livez")).json() == {"status": "ok"}
                assert (await served.http.get("/readyz")).json() == {"status": "ready"}
                away.away = True
                unready = await _answer_that_is(served, 503)
                problem = check(unready, 503, "store_unavailable")
                assert problem["detail"].startswith("the store does not answer")
                assert "the server is gone" not in unready.text  # it may name hosts
                assert "not ready: the server is gone" in caplog.text
                assert unready.headers["retry-after"] == "1"
                assert (await served.http.get("/livez")).status_code == 200
                away.away = False
                assert (await _answer_that_is(served, 200)).json() == {"status": "ready"}
                away.open.clear()
                await _answer_that_is(served, 503)
                assert "not ready: the store did not answer within 1 s" in caplog.text
                away.open.set()
                await _answer_that_is(served, 200)

    async def _answer_that_is(served: Served, status: int) -> Any:
        """The node asks its store at most twice a second."""
        answers = []

        async def has_come() -> bool:
            answers.append(await served.http.get("/readyz"))
            return answers[-1].status_code == status

        await until(has_come)
        return answers[-1]

    asyncio.run(play())


def test_stopping_node_is_not_ready(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path) as served:
            assert served.node.parts is not None
            served.node.parts.gate.stopping = True
            check(await served.http.get("/readyz"), 503, "unavailable")

    asyncio.run(play())


def test_metrics_count_available_and_soon_due_messages(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path) as served:
            await served.create_topic(window_ms=60_000)
            ahead = [{"delay_ms": 90_000}, {"delay_ms": 200_000}, {"delay_ms": 9_000_000}, {}, {}]
            await served.http.post("/v1/topics/t/messages", json={"messages": ahead})
            found = await samples(served)
            assert found["topic_available_messages_count", "t", ""] == 2
            waiting = "topic_waiting_messages_count_bucket"
            bounds = ["60.0", "120.0", "180.0", "240.0"]
            assert [found[waiting, "t", bound] for bound in bounds] == [0, 1, 1, 2]
            assert found["topic_messages_count", "t", ""] == 5
            assert found["topic_dead_letters_count", "t", ""] == 0
            assert found["network_broker_tcp_connections_total", "", ""] >= 1
            await served.put("more")
            again = await samples(served)  # not counted anew so soon
            assert again["topic_available_messages_count", "t", ""] == 2
            assert again["topic_messages_count", "t", ""] == 6

    asyncio.run(play())


def test_metrics_are_served_while_the_store_is_away(tmp_path: Path) -> None:
    async def play() -> None:
        with open_store(f"sqlite:///{tmp_path / 'timeline.db'}") as store:
            away: Any = Away(store)
            async with serving(away) as served:
                await served.create_topic()
                away.away = True
                found = await samples(served)
                assert ("topic_available_messages_count", "t", "") not in found
                assert found["topic_commands_count", "t", ""] == 1

    asyncio.run(play())


def test_info_lists_consumers(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path) as served:
            await served.create_topic()
            await served.receive(consumer="c", wait="0s")
            info = (await served.http.get("/v1/info")).json()
            (broker,) = info["brokers"]
            assert (broker["id"], broker["address"]) == (
                served.node.broker,
                served.address,
            )
            assert (broker["health"], broker["problems"]) == ("healthy", [])
            (subscriber,) = info["subscribers"]
            assert (subscriber["consumer"], subscriber["topic"]) == ("c", "t")
            assert (subscriber["start_bucket"], subscriber["stop_bucket"]) == (0, 64)
            assert (subscriber["broker"], subscriber["own"]) == (served.node.broker, [[0, 64]])
            assert (info["store_problem"], info["clock_problem"]) == ("", "")

    asyncio.run(play())
