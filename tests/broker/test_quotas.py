"""The quotas of producer groups, over each interface."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from chronoline.client import TopicSettings
from chronoline.client.messages import ToSend
from chronoline.core.errors import Refused
from chronoline.core.outcome import Refusal
from chronoline.core.quotas import GroupOverrides
from tests.broker.http.served import Served, serving
from tests.broker.nodes import running
from tests.deadline import run_scene, until


def messages(count: int, prefix: str = "m") -> list[ToSend]:
    return [ToSend(id=f"{prefix}{number}", delay=3_600) for number in range(count)]


def test_group_that_is_full_is_refused_and_others_are_not(tmp_path: Path) -> None:
    async def scene() -> None:
        async with (
            running(tmp_path) as it,
            it.client(producer_group="full") as full,
            it.client(producer_group="other") as other,
        ):
            await full.create_topic("t", TopicSettings(group_waiting=10))
            await full.create_topic("free")
            outcomes = await full.send_many("t", messages(12))
            assert [each.refusal for each in outcomes] == [None] * 10 + [Refusal.QUOTA] * 2
            refused = outcomes[-1]
            assert refused.retry_after == timedelta(seconds=1)
            assert "producer group 'full' on topic 't'" in refused.reason
            assert "10" in refused.reason
            assert (await full.count("t")).total == 10
            with pytest.raises(Refused, match="quota of producer group 'full'") as error:
                await full.send("t", b"x")
            assert error.value.retry_after is not None
            assert (await other.send_many("t", messages(10, "o"))).raise_for_refused()
            await full.send("free", b"x")
            counted = [
                (labels, value)
                for name, labels, value in it.node.metrics.snapshot().samples
                if name == "topic_quota_refused_count"
            ]
            assert counted == [(("full", "waiting", "t"), 3.0)]

    run_scene(scene)


def test_messages_that_are_gone_make_room(tmp_path: Path) -> None:
    async def scene() -> None:
        async with running(tmp_path) as it, it.client() as client:
            await client.create_topic("t", TopicSettings(group_waiting=2))
            await client.send_many("t", messages(2))
            await client.cancel("t", "m0")

            async def is_accepted() -> bool:
                (outcome,) = await client.send_many("t", messages(1, "new"))
                return outcome.done

            await until(is_accepted)

    run_scene(scene)


def test_messages_of_other_brokers_and_earlier_runs_count(tmp_path: Path) -> None:
    async def scene() -> None:
        async with running(tmp_path) as it, it.client() as client:
            await client.create_topic("t", TopicSettings(group_waiting=10))
            await client.send_many("t", messages(7))
        async with running(tmp_path) as it, it.client() as client:
            outcomes = await client.send_many("t", messages(5, "n"))
            assert [each.done for each in outcomes] == [True] * 3 + [False] * 2

    run_scene(scene)


def test_creates_a_second_are_bounded(tmp_path: Path) -> None:
    async def scene() -> None:
        async with running(tmp_path) as it, it.client() as client:
            await client.create_topic("t", TopicSettings(group_creates_per_s=5))
            outcomes = await client.send_many("t", messages(20))
            assert sum(each.done for each in outcomes) == 5
            left = outcomes[-1]
            assert left.refusal is Refusal.QUOTA
            assert left.retry_after is not None
            assert timedelta(0) < left.retry_after <= timedelta(seconds=1)
            await asyncio.sleep(left.retry_after.total_seconds())  # as the answer says
            outcomes = await client.send_many("t", messages(5, "again"))
            assert all(each.done for each in outcomes)

    run_scene(scene)


def test_node_has_quotas_of_its_own_for_some_groups(tmp_path: Path) -> None:
    quotas = GroupOverrides(waiting={"big": 20, "small": 1, "free": 0})

    async def scene() -> None:
        async with running(tmp_path, quotas=quotas) as it, it.client() as client:
            await client.create_topic("t", TopicSettings(group_waiting=10))
            await client.create_topic("unlimited")
            made = {}
            for topic in ("t", "unlimited"):
                for group in ("big", "small", "free", "any"):
                    async with it.client(producer_group=group) as producer:
                        sent = await producer.send_many(topic, messages(30, f"{group}-"))
                        made[topic, group] = sum(each.done for each in sent)
            assert made == {
                ("t", "big"): 20,
                ("t", "small"): 1,
                ("t", "free"): 30,
                ("t", "any"): 10,
                ("unlimited", "big"): 20,
                ("unlimited", "small"): 1,
                ("unlimited", "free"): 30,
                ("unlimited", "any"): 30,
            }

    run_scene(scene)


def test_http_answers_429_with_the_time_to_try_again(tmp_path: Path) -> None:
    async def scene() -> None:
        async with serving(tmp_path) as served:
            await served.create_topic(group_waiting=2)
            await served.put("a", **{"in": "1h"})
            await _refuses_the_third_of_a_batch(served)
            put = await served.http.put("/v1/topics/t/messages/d", json={"in": "1h"})
            assert put.status_code == 429
            assert put.headers["retry-after"] == "1"
            problem = put.json()
            assert (problem["code"], problem["kind"]) == ("quota", "try_again")
            assert problem["retry_after_ms"] == 1_000
            assert "group_waiting" in problem["detail"]
            other = {"in": "1h", "producer_group": "other"}
            await served.put("e", **other)

    run_scene(scene)


async def _refuses_the_third_of_a_batch(served: Served) -> None:
    batch = {"messages": [{"id": each, "in": "1h"} for each in ("b", "c")]}
    answer = await served.http.post("/v1/topics/t/messages", json=batch)
    assert answer.status_code == 200
    done, refused = answer.json()["outcomes"]
    assert done["done"]
    assert (refused["refusal"], refused["retry_after_ms"]) == ("quota", 1_000)
