"""A producer whose requests mostly fail is throttled; others are not."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from pathlib import Path

import httpx
import pytest

from chronoline.broker.failure_sampler import FailureSampler, SampleRule
from chronoline.broker.grpc.producer_stream import ProducerClientStream
from chronoline.client import TopicSettings
from chronoline.core.errors import ChronolineError
from tests.broker.http.served import serving
from tests.broker.nodes import Running, running
from tests.deadline import run_scene, until

_RULE = SampleRule(judged=20, failures=15, every_s=0.1, successes=5, quiet_s=5.0)


def test_throttle_lets_one_request_pass_in_its_time() -> None:
    sampler = FailureSampler(_RULE)
    for _ in range(15):
        assert sampler.admits(100.0)
        sampler.failed(100.0)
    admitted = [sampler.admits(100.0 + step / 100) for step in range(1, 101)]
    assert 8 <= admitted.count(True) <= 10
    assert sampler.wait_ms(101.0) <= 101


def test_throttle_ends_by_successes_in_a_row() -> None:
    sampler = FailureSampler(_RULE)
    for _ in range(15):
        sampler.failed(100.0)
    for _ in range(4):
        sampler.succeeded(101.0)
    sampler.failed(101.0)
    for _ in range(4):
        sampler.succeeded(102.0)
    assert sampler.is_failing
    sampler.succeeded(102.0)
    assert not sampler.is_failing


def test_producer_with_mixed_requests_is_not_throttled() -> None:
    sampler = FailureSampler(_RULE)
    for _ in range(100):
        sampler.failed(100.0)
        sampler.succeeded(100.0)
    assert not sampler.is_failing


def throttled(it: Running) -> list[str]:
    assert it.node.grpc is not None
    producers = [each for each in it.node.grpc.sessions if isinstance(each, ProducerClientStream)]
    return [each.name for each in producers if each.throttle.is_failing]


def test_only_the_failing_producer_is_throttled(tmp_path: Path) -> None:
    async def play() -> None:
        async with (
            running(tmp_path) as it,
            it.client(producer_group="bad") as bad,
            it.client(producer_group="good") as good,
        ):
            await good.create_topic("jobs")
            await good.create_topic("small", TopicSettings(largest_body_bytes=1))

            async def fail() -> None:
                while True:
                    with pytest.raises(ChronolineError):
                        await bad.send("small", b"too large")

            failing = asyncio.ensure_future(fail())
            await until(lambda: throttled(it) == ["bad"])
            assert it.node.parts is not None
            notices = [each.type for each in it.node.parts.degradation.notices]
            assert notices == ["producers"]
            failing.cancel()
            await asyncio.gather(failing, return_exceptions=True)
            for _ in range(30):
                await good.send("jobs", b"")
            assert throttled(it) == ["bad"]
            for _ in range(5):
                await bad.send("jobs", b"")  # it waits for its turn, and is not refused
            await until(lambda: throttled(it) == [])

    run_scene(play)


def test_only_the_failing_http_connection_is_throttled(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path) as it, httpx.AsyncClient(base_url=it.url) as good:
            await it.create_topic("jobs")
            path, answers = "/v1/topics/jobs/messages/a", list[int]()

            async def fail() -> bool:
                answers.append((await it.http.put(path, json={"in": "never"})).status_code)
                return answers[-1] == HTTPStatus.TOO_MANY_REQUESTS

            await until(fail)
            assert set(answers[:-1]) == {HTTPStatus.BAD_REQUEST}
            parts = it.node.parts
            assert parts is not None
            assert [each.type for each in parts.degradation.notices] == ["producers"]
            for _ in range(30):
                sent = await good.put(path, json={"in": "1h", "if_exists": "replace"})
                assert sent.status_code == HTTPStatus.CREATED
            read = await it.http.get(path)
            assert read.status_code == HTTPStatus.OK

            async def is_served_again() -> bool:
                put = await it.http.put(path, json={"in": "1h", "if_exists": "replace"})
                return put.is_success and not list(parts.degradation.notices)

            await until(is_served_again)

    run_scene(play)


@pytest.mark.parametrize("path", ["messages", "messages/a/reschedule", "reschedule", "cancel"])
def test_every_request_of_a_producer_is_throttled(tmp_path: Path, path: str) -> None:
    async def play() -> None:
        async with serving(tmp_path) as it:
            await it.create_topic("jobs")

            async def fail() -> bool:
                answer = await it.http.post(f"/v1/topics/jobs/{path}", json={"unknown": 1})
                return answer.status_code == HTTPStatus.TOO_MANY_REQUESTS

            await until(fail)

    run_scene(play)
