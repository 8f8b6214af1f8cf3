"""Every interface reports the same degradation of a broker."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from chronoline.cli.broker import Broker
from chronoline.core.errors import StoreUnavailable
from chronoline.runtime.clock import SystemClock
from chronoline.stores.sqlite import SqliteStore
from tests.broker.http.served import Served, serving
from tests.broker.metric_samples import scrape
from tests.deadline import until

_CLOCK = "this broker's clock is"
_REASONS = {
    "away": ("storage", "the server at db.example is gone"),
    "locked": ("storage", "the store takes no changes: "),
    "clock": ("clock", _CLOCK),
    "stopping": ("stopping", "the broker is stopping"),
}
_PUBLIC = {
    "away": "the store does not answer",
    "locked": "the store takes no changes",
    "clock": _CLOCK,
    "stopping": "the broker is stopping",
}


class SickStore:
    """A store that can be away, with a clock that can be moved."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.away = False
        self.behind_ms = 0

    def __getattr__(self, name: str) -> Any:
        if self.away and name not in ("watch", "capabilities"):
            raise StoreUnavailable("the server at db.example is gone")
        return getattr(self._store, name)

    def clock_ms(self) -> int:
        return SystemClock().now_ms() - self.behind_ms


class Scene:
    def __init__(self, served: Served, store: SickStore, path: Path) -> None:
        self.served = served
        self._store = store
        self._path = path

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
                case "stopping":
                    self.served.node.parts.gate.stopping = True
            yield
        if kind == "locked":
            await self.served.create_topic()  # it takes changes again
        self._store.away, self._store.behind_ms = False, 0
        self.served.node.parts.gate.stopping = False

    async def said(self) -> dict[str, Any]:
        """The types of degradation that each interface shows."""
        info = (await self.served.http.get("/v1/info")).json()
        # `info` blocks, and the broker runs in this event loop.
        status = await Broker(address=self.served.address, token=None, tls=False)._info()
        metric = [
            each.labels["type"]
            for each in await scrape(self.served.http)
            if each.name == "broker_degradation_state" and each.value
        ]
        ready = await self.served.http.get("/readyz")
        return {
            "info": [(each["type"], each["reason"]) for each in info["degradations"]],
            "status": [(each.type, each.reason) for each in status.degradations],
            "metric": metric,
            "ready": "" if ready.status_code == 200 else ready.json()["detail"],
        }


@asynccontextmanager
async def scene(path: Path) -> AsyncIterator[Scene]:
    with SqliteStore(str(path), busy_ms=100) as store:
        sick: Any = SickStore(store)
        async with serving(sick, upkeep_every_s=0.05) as served:
            yield Scene(served, sick, path)


@pytest.mark.parametrize("kind", _REASONS)
def test_every_interface_shows_the_same_degradation(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    type_, reason = _REASONS[kind]

    async def play() -> None:
        async with scene(tmp_path / "timeline.db") as it:
            well = {"info": [], "status": [], "metric": [], "ready": ""}
            assert await it.said() == well

            async def is_said() -> bool:
                found = await it.said()
                told = [*found["info"], *found["status"]]
                return (
                    len(told) == 2
                    and all(kind == type_ and reason in words for kind, words in told)
                    and found["metric"] == [type_]
                    and found["ready"].startswith(_PUBLIC[kind])
                    and "db.example" not in found["ready"]
                )

            async def is_well() -> bool:
                return await it.said() == well

            async with it.illness(kind):
                await until(is_said)
            await until(is_well)

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
