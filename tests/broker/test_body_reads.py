"""Reading bodies takes no more memory than one answer, for any number of ids."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from grpc import aio

from chronoline.broker.grpc import unary_calls
from chronoline.broker.limits import Limits
from chronoline.core.message import NewMessage
from chronoline.core.permissions import Producer
from chronoline.core.topic import Topic, TopicSettings
from chronoline.node.broker_service import BrokerService
from chronoline.stores.contract import Bodies
from chronoline.stores.factory import open_store
from chronoline.wire.v1 import chronoline_pb2 as pb

KIB = 1024
NOW_MS = 1_800_000_000_000


class Counting:
    """A store that records the producer group and the number of bodies of each call."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.read: list[tuple[str, int]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def bodies(self, topic_uid: int, ids: list[str], *, actor: Producer, now_ms: int) -> Bodies:
        self.read.append((actor.group, len(ids)))
        found: Bodies = self._store.bodies(topic_uid, ids, actor=actor, now_ms=now_ms)
        return found


@asynccontextmanager
async def _asking(folder: Path, limits: Limits) -> AsyncIterator[tuple[Counting, Any]]:
    """The store of a node, and the question."""
    with open_store(f"sqlite:///{folder / 'timeline.db'}") as store:
        counting: Any = Counting(store)
        node = BrokerService(counting, grpc_address=("127.0.0.1", 0), limits=limits)
        await node.start()
        assert node.grpc is not None
        async with aio.insecure_channel(f"127.0.0.1:{node.grpc.port}") as channel:
            yield (
                counting,
                channel.unary_unary(
                    "/chronoline.v1.Carrier/ReadBodies",
                    request_serializer=pb.BodiesRequest.SerializeToString,
                    response_deserializer=pb.BodiesFound.FromString,
                ),
            )
        await node.stop()


def _make(store: Any, largest_bytes: int, body_bytes: int, count: int) -> tuple[Topic, list[str]]:
    settings = TopicSettings(largest_body_bytes=largest_bytes)
    topic: Topic = store.create_topic("jobs", settings, now_ms=NOW_MS)
    ids = [f"m{number}" for number in range(count)]
    messages = [NewMessage(id=each, due=NOW_MS, body=bytes(body_bytes)) for each in ids]
    store.create(topic.uid, messages, if_exists="refuse", now_ms=NOW_MS)
    return topic, ids


@pytest.mark.parametrize(
    ("largest_kib", "at_once"),
    [(16, 4), (32, 2), (0, 100)],
    ids=["4 fit", "2 fit", "all are empty"],
)
def test_bodies_read_at_once_fit_into_an_answer(
    tmp_path: Path, largest_kib: int, at_once: int
) -> None:
    async def play() -> None:
        async with _asking(tmp_path, Limits(frame_bytes=64 * KIB)) as (store, read):
            topic, ids = _make(store, largest_kib * KIB, largest_kib * 100, 150)
            asked = pb.BodiesRequest(topic_uid=topic.uid, ids=ids, producer_group="default")
            if largest_kib:
                with pytest.raises(aio.AioRpcError, match="ask for fewer at once"):
                    await read(asked)
            else:
                assert len((await read(asked)).found) == 150
            assert max(count for _, count in store.read) == at_once
            bytes_read = sum(count for _, count in store.read) * largest_kib * 100
            assert bytes_read <= 2 * 64 * KIB

    asyncio.run(play())


def test_number_of_body_readers_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # No setting: a small bound is reached soon.
    monkeypatch.setattr(unary_calls, "_READERS", 1)

    async def play() -> None:
        async with _asking(tmp_path, Limits(frame_bytes=64 * KIB)) as (store, read):
            topic, ids = _make(store, 32 * KIB, 10, 20)
            groups = [f"g{number}" for number in range(5)]
            questions = (
                pb.BodiesRequest(topic_uid=topic.uid, ids=ids, producer_group=group)
                for group in groups
            )
            answers = await asyncio.gather(*map(read, questions))
            assert [len(each.refused) for each in answers] == [20] * 5
            in_turn = [group for group, _ in groupby(name for name, _ in store.read)]
            assert sorted(in_turn) == groups  # each from its first to its last, and then the next

    asyncio.run(play())
