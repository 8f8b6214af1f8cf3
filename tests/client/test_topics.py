"""Topics and their settings, as the SDK shows them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from chronoline.client import TopicSettings
from tests.broker.nodes import running


def test_existing_topic_with_other_settings_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def play() -> None:
        async with running(tmp_path) as broker, broker.client() as client:
            await client.create_topic("t", TopicSettings(buckets=3))
            await client.create_topic("t")
            await client.create_topic("t", TopicSettings(buckets=3))
            assert not [
                record for record in caplog.records if record.name == "chronoline.client.aio"
            ]
            await client.create_topic("t", TopicSettings(buckets=4, dedupe=1))
            (said,) = [
                record for record in caplog.records if record.name == "chronoline.client.aio"
            ]
            words = "topic 't' exists with other settings than were given: buckets is 3, not 4, dedupe is"
            assert said.getMessage().startswith(words)

    caplog.set_level("WARNING")
    asyncio.run(play())
