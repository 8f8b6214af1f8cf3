"""The states of messages that are no longer on their timeline."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from chronoline.broker.message_states import MOST_STATES, known_states
from chronoline.core.errors import TooMuch
from chronoline.core.message import SavedMessage
from chronoline.core.topic import TopicSettings
from chronoline.stores.factory import open_store
from chronoline.testing.postgres import PostgresServer
from chronoline.wire.v1 import chronoline_pb2 as pb
from tests.broker.nodes import running

NOW = 1_800_000_000_000
ODD = ["\x01", "a", "a\x01", "aa", "b", "ä", "\ue000", "\U0010ffff", "a" * 500, "é" * 250]


@pytest.mark.parametrize("engine", ["memory", "sqlite", "postgres"])
def test_letters_of_one_moment_keep_their_reasons(
    engine: str, tmp_path: Path, postgres_server: PostgresServer
) -> None:
    url = {"memory": "memory://", "sqlite": f"sqlite:///{tmp_path / 't.db'}"}.get(engine)
    with open_store(url or postgres_server.create_database("letters of one moment")) as store:
        uid = store.create_topic("t", TopicSettings(), now_ms=NOW).uid
        ids = [*ODD, *(f"m{number:03}" for number in range(300))]
        store.restore(uid, [_letter(each) for each in ids], now_ms=NOW)
        found = known_states(store, uid, ids, now_ms=NOW)
    assert [(each.id, each.reason) for each in found] == [(each, f"of {each}") for each in ids]


def _letter(message_id: str) -> SavedMessage:
    return SavedMessage(
        id=message_id,
        due=NOW,
        expires=None,
        attempts=1,
        producer_group="g",
        key=None,
        headers=(),
        body=None,
        reason=f"of {message_id}",
        died=NOW - 5,
    )


def test_too_many_states_at_once_are_refused(tmp_path: Path) -> None:
    async def play() -> None:
        async with running(tmp_path) as broker, broker.client() as client:
            topic = await client.create_topic("t")
            asked = pb.LookupRequest(topic_uid=topic.uid, ids=["a"] * (MOST_STATES + 1))
            with pytest.raises(TooMuch, match="at most 1,000 ids"):
                await client._ask("Carrier/States", asked, pb.MessageStates)  # it asks for one

    asyncio.run(play())
