"""Long polls: their answers, their leases, and their messages after a disconnect."""

from __future__ import annotations

import asyncio
import json
import math
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from chronoline.broker.http.poller import Poll, Pollers
from chronoline.broker.limits import Limits
from chronoline.core.change import lease_change
from chronoline.core.errors import TooMuch
from chronoline.core.permissions import Operation
from chronoline.stores.contract import Store
from chronoline.stores.factory import open_store
from tests.broker.http.served import Served, serving
from tests.deadline import until

HOUR_MS = 3_600_000


class RawPoll:
    """A poll on its own connection, which a test can abort."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def begin(cls, served: Served, credit: int | None = None, **fields: Any) -> RawPoll:
        """Send the poll and wait until its consumer has the credit, by default that of this poll."""
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        body = json.dumps({"wait": "30s", **fields}).encode()
        writer.write(
            b"POST /v1/topics/t/receive HTTP/1.1\r\nhost: localhost\r\n"
            b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
        )
        writer.write(body)
        wanted = credit or fields.get("count", 1)
        await until(lambda: wanted in [each.credit for each in served.subscriptions])
        return cls(reader, writer)

    async def break_off(self, served: Served, credit: int = 0) -> None:
        """Close the connection and wait until the credit of the consumer is `credit`."""
        self._writer.close()
        await until(lambda: [each.credit for each in served.subscriptions] == [credit])

    async def body(self) -> dict[str, Any]:
        head = await self._reader.readuntil(b"\r\n\r\n")
        (size,) = [
            int(line.partition(b":")[2])
            for line in head.split(b"\r\n")
            if line.startswith(b"content-length")
        ]
        self._writer.close()
        return dict(json.loads(await self._reader.readexactly(size)))


def test_poll_is_answered_at_the_due(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path) as served:
            await served.create_topic()
            put = await served.put("m", delay_ms=400)
            await served.put("later", delay_ms=60_000)
            received = await served.receive(wait="10s", count=5)
            assert time.time() * 1000 >= put["due_ms"]
            assert received["now_ms"] >= put["due_ms"]
            assert [each["id"] for each in received["messages"]] == ["m"]
            assert received["consumer"].startswith("c-")

    asyncio.run(play())


def test_consumer_polls_several_topics_in_turn(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path) as served:
            await served.create_topic()
            await served.create_topic("other")
            poll = await RawPoll.begin(served, consumer="c", lease="30s")
            assert (await served.receive("other", consumer="c", wait="0s"))["messages"] == []
            await served.put("m", delay_ms=0)
            assert [each["id"] for each in (await poll.body())["messages"]] == ["m"]

    asyncio.run(play())


def test_empty_poll_is_answered_after_its_wait(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path) as served:
            await served.create_topic()
            later = await served.put("later", delay_ms=60_000)
            received = await served.receive(consumer="c", wait="300ms")
            assert received["now_ms"] >= later["due_ms"] - 60_000 + 300
            assert (received["consumer"], received["messages"]) == ("c", [])
            assert (await served.receive(wait="0s"))["messages"] == []

    asyncio.run(play())


def test_poller_has_the_rack_of_its_request(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path) as served:
            await served.create_topic()
            polls = [
                {"consumer": "c", "rack": "r1"},
                {"rack": "r1"},
                {"rack": "r2"},
                {"rack": "r1"},
            ]
            names = [(await served.receive(wait="0s", **each))["consumer"] for each in polls]
            assert names[1] == names[3] != names[2]  # without a name, a consumer for each rack
            racks = {each.name: each.receiver.rack for each in served.subscriptions}
            assert racks == {"c": "r1", names[1]: "r1", names[2]: "r2"}
            shown = (await served.http.get("/v1/info")).json()["subscribers"]
            assert {each["consumer"]: each["rack"] for each in shown} == racks
            refused = await served.http.post("/v1/topics/t/receive", json={"rack": ""})
            assert refused.status_code == 400

    asyncio.run(play())


def test_new_message_wakes_a_poll(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path) as served:
            await served.create_topic()
            poll = await RawPoll.begin(served)
            await served.put("m", body="at once")
            assert [each["id"] for each in (await poll.body())["messages"]] == ["m"]

    asyncio.run(play())


def test_consumer_polls_several_topics_at_once(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path) as served:
            await served.create_topic()
            await served.create_topic("other")
            poll = await RawPoll.begin(served, consumer="c")
            assert (await served.receive("other", consumer="c", wait="100ms"))["messages"] == []
            await served.put("m")
            assert [each["id"] for each in (await poll.body())["messages"]] == ["m"]

    asyncio.run(play())


def test_poll_respects_its_limit_and_the_order(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path) as served:
            await served.create_topic()
            messages = [{"id": f"m{number:02}", "due_ms": 1_000 + number} for number in range(25)]
            await served.http.post("/v1/topics/t/messages", json={"messages": messages})
            came: list[str] = []
            while len(came) < 25:
                got = (await served.receive(consumer="c", count=10))["messages"]
                assert 1 <= len(got) <= 10
                came += [each["id"] for each in got]
            assert came == [each["id"] for each in messages]

    asyncio.run(play())


def test_answer_fits_into_a_frame(tmp_path: Path) -> None:
    async def play() -> None:
        limits = Limits(frame_bytes=64 * 1024)
        async with serving(tmp_path, limits=limits) as served:
            await served.create_topic(largest_body_bytes=32 * 1024)
            for number in range(5):
                await served.put(f"m{number}", body="x" * 30_000, due_ms=number)
            came: list[str] = []
            while len(came) < 5:
                received = await served.receive(consumer="c", count=5)
                assert 1 <= len(received["messages"]) <= 2
                assert {each["attempts"] for each in received["messages"]} == {0}
                came += [each["id"] for each in received["messages"]]
            assert sorted(came) == [f"m{number}" for number in range(5)]

    asyncio.run(play())


def test_consumer_has_one_poll_at_a_time(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path) as served, served.client() as client:
            await served.create_topic()
            poll = await RawPoll.begin(served, consumer="c")
            second = await served.http.post("/v1/topics/t/receive", json={"consumer": "c"})
            assert (second.status_code, second.json()["code"]) == (409, "already_subscribed")
            await poll.break_off(served)
            assert (await served.receive(consumer="c", wait="0s"))["messages"] == []
            leases = client.consume("t", consumer="streaming")
            streaming = asyncio.ensure_future(anext(leases))
            await until(lambda: "streaming" in [each.name for each in served.subscriptions])
            third = await served.http.post("/v1/topics/t/receive", json={"consumer": "streaming"})
            assert third.status_code == 409
            streaming.cancel()
            await asyncio.gather(streaming, return_exceptions=True)
            await leases.aclose()

    asyncio.run(play())


def test_reservation_of_a_lost_client_is_returned(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path) as served:
            await served.create_topic()
            poll = await RawPoll.begin(served, consumer="gone")
            put = await served.put("m", delay_ms=1_000)
            await until(lambda: any(len(each.agenda) for each in served.subscriptions))
            await poll.break_off(served)
            (got,) = (await served.receive(consumer="other", wait="10s"))["messages"]
            assert (got["id"], got["attempts"], got["redelivered"]) == ("m", 0, False)
            assert time.time() * 1000 >= put["due_ms"]

    asyncio.run(play())


def test_unwritten_push_is_returned(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path) as served:
            await served.create_topic()
            await served.put("m")
            assert served.node.parts is not None
            topic = await served.node.parts.topics.find("t")
            pollers = Pollers(served.node.parts)
            await pollers.start()
            poll = await pollers.begin(topic, "gone", count=1, lease_ms=60_000)
            (came,) = await pollers.wait(poll, 10)
            assert came.lease.id == "m"
            pollers.end(poll, handed=False)
            (got,) = (await served.receive(consumer="other", wait="10s"))["messages"]
            assert (got["id"], got["attempts"], got["redelivered"]) == ("m", 0, False)
            await pollers.stop()

    asyncio.run(play())


def test_poller_keeps_its_share_for_a_window(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path) as served:
            await served.create_topic(window_ms=HOUR_MS)
            await served.receive(consumer="a", wait="0s")
            (subscription,) = served.subscriptions
            assert subscription.credit == 0
            await served.put("m")
            assert (await served.receive(consumer="b", wait="500ms"))["messages"] == []
            assert (await served.receive(consumer="a", wait="5s"))["messages"]

    asyncio.run(play())


def test_absent_poller_loses_its_share(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path) as served:
            await served.create_topic(window_ms=100)
            await served.receive(consumer="a", wait="0s")
            await served.put("m")
            (got,) = (await served.receive(consumer="b", wait="10s"))["messages"]
            await served.settle("ack", consumer="b", leases=[_name(got)])
            await until(lambda: not served.subscriptions)

    asyncio.run(play())


def test_unnamed_polls_are_one_consumer(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path) as served:
            await served.create_topic(window_ms=HOUR_MS)
            polls = [asyncio.ensure_future(served.receive(wait="10s")) for _ in range(3)]
            await until(lambda: [each.credit for each in served.subscriptions] == [3])
            for number in range(3):
                await served.put(f"m{number}")
            answers = await asyncio.gather(*polls)
            ids = [each["id"] for answer in answers for each in answer["messages"]]
            assert sorted(ids) == ["m0", "m1", "m2"]
            (consumer,) = {answer["consumer"] for answer in answers}
            leases = [_name(each) for answer in answers for each in answer["messages"]]
            acked = await served.settle("ack", consumer=consumer, leases=leases)
            assert all(each["done"] for each in acked)
            await served.put("more")
            assert (await served.receive(wait="10s"))["consumer"] == consumer
            assert (await served.receive(wait="0s", lease="1m"))["consumer"] != consumer

    asyncio.run(play())


def test_longest_waiting_poll_is_served_first(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path) as served:
            await served.create_topic()
            first = await RawPoll.begin(served, count=2)
            second = await RawPoll.begin(served, count=2, credit=4)
            await served.put("m0")
            assert [each["id"] for each in (await first.body())["messages"]] == ["m0"]
            (subscription,) = served.subscriptions
            await until(lambda: subscription.credit == 2)
            await served.put("m1")
            assert [each["id"] for each in (await second.body())["messages"]] == ["m1"]

    asyncio.run(play())


def test_aborted_poll_leaves_other_polls_alone(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path) as served:
            await served.create_topic()
            first = await RawPoll.begin(served)
            second = await RawPoll.begin(served, credit=2)
            await first.break_off(served, credit=1)
            await served.put("m")
            assert [each["id"] for each in (await second.body())["messages"]] == ["m"]

    asyncio.run(play())


def test_leases_stay_valid_between_polls(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path) as served:
            await served.create_topic(window_ms=50)
            await served.put("first")
            received = await served.receive()
            consumer, (first,) = received["consumer"], received["messages"]
            (subscription,) = served.subscriptions
            await until(lambda: subscription.receiver.busy)
            await served.receive(consumer="idle", wait="0s")
            # A later one without leases is gone: a consumer with live leases is kept.
            await until(lambda: served.subscriptions == [subscription])
            await served.put("second")
            (second,) = (await served.receive(consumer=consumer, wait="5s"))["messages"]
            assert second["id"] == "second"
            leases = [_name(first), _name(second)]
            acked = await served.settle("ack", consumer=consumer, leases=leases)
            assert all(each["done"] for each in acked)

    asyncio.run(play())


def test_restarted_consumer_gets_its_live_leases_first(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path) as served:
            await served.create_topic()
            await served.put("m")
            (first,) = (await served.receive(consumer="c"))["messages"]
            again = await served.receive(consumer="c", resume=True, wait="5s")
            (second,) = again["messages"]
            assert (second["id"], second["redelivered"]) == ("m", True)
            assert second["version"] > first["version"]
            (stale,) = await served.settle("ack", consumer="c", leases=[_name(first)])
            assert stale["refusal"] == "stale"

    asyncio.run(play())


def test_pollers_and_streams_share_a_topic(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path) as served, served.client() as client:
            await served.create_topic(window_ms=100)
            came: dict[str, list[str]] = {"stream": [], "poll": []}

            async def stream() -> None:
                async for lease in client.consume("t", consumer="stream"):
                    came["stream"].append(lease.id)
                    await lease.ack()

            async def poll() -> None:
                while True:
                    got = (await served.receive(consumer="poll", count=20))["messages"]
                    came["poll"] += [each["id"] for each in got]
                    leases = [_name(each) for each in got]
                    await served.settle("ack", consumer="poll", leases=leases)

            tasks = [asyncio.ensure_future(each()) for each in (stream, poll)]
            await until(lambda: [each.share.start for each in served.subscriptions] != [0, 0])
            ids = [f"m{number}" for number in range(200)]
            messages = [{"id": each, "delay_ms": 300 + place} for place, each in enumerate(ids)]
            await served.http.post("/v1/topics/t/messages", json={"messages": messages})
            await until(lambda: len(came["stream"]) + len(came["poll"]) >= 200)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert sorted(came["stream"] + came["poll"]) == sorted(ids)
            assert came["poll"]

    asyncio.run(play())


def test_waiting_poll_is_answered_when_the_broker_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = Poll.wait

    async def without_end(poll: Poll, _: float) -> None:
        await waits(poll, math.inf)

    async def play() -> None:
        async with serving(tmp_path) as served:
            await served.create_topic()
            poll = await RawPoll.begin(served)
            await served.node.stop()
            assert (await poll.body())["messages"] == []

    monkeypatch.setattr(Poll, "wait", without_end)
    asyncio.run(play())


def test_waiting_poll_ends_when_the_topic_is_deleted(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path) as served:
            await served.create_topic()
            poll = await RawPoll.begin(served)
            assert (await served.http.delete("/v1/topics/t")).json() == {"dropped": True}
            assert (await asyncio.wait_for(poll.body(), 5))["code"] == "topic_not_found"

    asyncio.run(play())


def test_number_of_pollers_is_limited(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path, limits=Limits(connections=2)) as served:
            await served.create_topic()
            assert served.node.parts is not None
            topic = await served.node.parts.topics.find("t")
            pollers = Pollers(served.node.parts)
            await pollers.start()
            a = await pollers.begin(topic, "a", count=1, lease_ms=1_000)
            b = await pollers.begin(topic, "b", count=1, lease_ms=1_000)
            with pytest.raises(TooMuch):
                await pollers.begin(topic, "c", count=1, lease_ms=1_000)
            pollers.end(b, handed=True)
            c = await pollers.begin(topic, "c", count=1, lease_ms=1_000)  # for the idle poller
            assert {each.name for each in served.subscriptions} == {"a", "c"}
            pollers.end(a, handed=True)
            pollers.end(c, handed=True)
            await pollers.stop()
            assert not served.subscriptions

    asyncio.run(play())


def test_poller_with_live_leases_is_not_evicted(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path, limits=Limits(connections=2)) as served:
            await served.create_topic()
            await served.put("m")
            assert served.node.parts is not None
            topic = await served.node.parts.topics.find("t")
            pollers = Pollers(served.node.parts)
            await pollers.start()
            holder = await pollers.begin(topic, "holder", count=1, lease_ms=60_000)
            (came,) = await pollers.wait(holder, 10)
            pollers.end(holder, handed=True)
            idle = await pollers.begin(topic, "idle", count=1, lease_ms=60_000)
            pollers.end(idle, handed=True)  # it became idle after the holder
            new = await pollers.begin(topic, "new", count=1, lease_ms=60_000)
            assert {each.name for each in served.subscriptions} == {"holder", "new"}
            with pytest.raises(TooMuch):
                await pollers.begin(topic, "newer", count=1, lease_ms=60_000)
            await served.node.parts.carrier.change(
                topic.uid, [lease_change(Operation.ACK, came.lease)]
            )
            newer = await pollers.begin(topic, "newer", count=1, lease_ms=60_000)
            assert {each.name for each in served.subscriptions} == {"new", "newer"}
            for poll in (new, newer):
                pollers.end(poll, handed=True)
            await pollers.stop()

    asyncio.run(play())


NONSENSE: list[tuple[dict[str, Any], str]] = [
    ({"count": 0}, "count"),
    ({"count": 10_001}, "count"),
    ({"wait": "61s"}, "at most 60000 ms"),
    ({"wait": 20}, "wait: must be text"),
    ({"lease": "5ms"}, "at least 10"),
    ({"consumer": ""}, "consumer"),
    ({"consumer": "x" * 256}, "consumer"),
    ({"consumer": "ü" * 200}, "400 bytes"),
    ({"consumer": "a\0b"}, "NUL"),
]


def test_bad_poll_is_refused(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path) as served:
            await served.create_topic()
            for fields, words in NONSENSE:
                told = await served.http.post("/v1/topics/t/receive", json=fields)
                assert (told.status_code, told.json()["code"]) == (400, "invalid_input")
                assert words in told.json()["detail"]

    asyncio.run(play())


def _name(message: dict[str, Any]) -> dict[str, Any]:
    return {"id": message["id"], "version": message["version"]}


class Slow:
    """A store whose answer to `next_times` can be delayed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.gate = threading.Event()
        self.gate.set()
        self.asked = threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def next_times(self, *given: Any) -> list[int | None]:
        found = self._store.next_times(*given)
        self.asked.set()
        self.gate.wait(60)
        return found


def test_message_created_during_a_query_is_served(tmp_path: Path) -> None:
    async def play() -> None:
        with open_store(f"sqlite:///{tmp_path / 'timeline.db'}") as store:
            slow: Any = Slow(store)
            async with serving(slow) as served:
                await served.create_topic()
                slow.gate.clear()
                poll = await RawPoll.begin(served)
                await asyncio.to_thread(slow.asked.wait, 60)
                await served.put("m")
                (subscription,) = served.subscriptions
                await until(lambda: subscription.heard is not None)  # the notice, before the answer
                slow.gate.set()
                answer = await asyncio.wait_for(poll.body(), 60)
                assert [each["id"] for each in answer["messages"]] == ["m"]

    asyncio.run(play())
