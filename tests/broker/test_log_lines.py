"""An event that many messages share has one line, with their number and an example."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from chronoline.broker.subscription import Subscription
from chronoline.core.message import Lease
from tests.broker.nodes import running
from tests.deadline import run_scene, until

_LAPSED = [Lease(id=f"m{number}", consumer="x", version=1, until=0) for number in range(500)]


def test_messages_that_were_not_pushed_in_time_share_a_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    lapsed = list(_LAPSED)

    def take_lapsed(_: Subscription) -> list[Lease]:
        taken = lapsed[:50]
        del lapsed[:50]
        return taken

    monkeypatch.setattr(Subscription, "take_lapsed", take_lapsed)

    def counts() -> list[int]:
        found = (
            record for record in caplog.records if getattr(record, "action", "") == "not_pushed"
        )
        return [int(getattr(each, "count", 1)) for each in found]

    async def play() -> None:
        async with running(tmp_path) as broker, broker.client() as client:
            await client.create_topic("jobs")
            leases = client.consume("jobs")
            for number in range(10):  # each push takes some of them
                await client.send("jobs", id=f"pushed-{number}")
                await (await anext(leases)).ack()
            await until(lambda: sum(counts()) == len(_LAPSED))
            assert len(counts()) < 10
            await leases.aclose()

    with caplog.at_level(logging.WARNING):
        run_scene(play)
    assert "message 'm0' of topic 'jobs' was not pushed within its lease" in caplog.text
