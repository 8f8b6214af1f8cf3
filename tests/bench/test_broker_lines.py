"""The three lines of the bench `broker` pass the same tests."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from chronoline.core.errors import ChronolineError
from chronoline.testing.postgres import PostgresServer
from chronoline_bench.broker.agent import Agent, create_batches, create_singles, produce
from chronoline_bench.broker.beanstalk import Beanstalk, BeanstalkLine
from chronoline_bench.broker.lines import (
    Line,
    SdkLine,
    SkipLockedLine,
    body_of,
    number_of_body,
    number_of_id,
)
from chronoline_bench.broker.targets import Table, TableTarget, TubeTarget
from chronoline_bench.harness.agent import Figures
from chronoline_bench.harness.passage import Notes, take_pairs, wall_us
from chronoline_bench.servers.beanstalkd import BeanstalkdServer
from chronoline_bench.workload import BODY_BYTES, Filling, message_id
from tests.broker.nodes import running as running_node
from tests.conftest import running
from tests.deadline import until


@pytest.fixture(scope="module")
def beanstalkd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BeanstalkdServer]:
    yield from running(BeanstalkdServer(tmp_path_factory.mktemp("beanstalkd") / "data"))


@pytest.fixture
def tube(beanstalkd: BeanstalkdServer, request: pytest.FixtureRequest) -> TubeTarget:
    return TubeTarget(beanstalkd, request.node.name)


@pytest.fixture
def table(postgres_server: PostgresServer) -> Iterator[TableTarget]:
    with Table(postgres_server, "hand_written") as made:
        yield made.open()


async def check_lines(line: Line, consumer: Line) -> None:
    """Puts some messages with and without a delay, from several tasks; each comes at its time."""
    await line.open()
    await consumer.open()
    notes, ready = Notes(), asyncio.Event()
    consuming = asyncio.create_task(consumer.consume(notes, ready.set))
    try:
        async with asyncio.timeout(60):
            await ready.wait()
            began_us = wall_us()
            assert began_us <= await line.put(0, 0) <= wall_us() + 1_000
            sent, due = await produce(line, first=1, messages=20, rate=200, delay_s=1)
            due_us = dict(enumerate(due, 1))
            await until(lambda: notes.acked >= 21)
    finally:
        consuming.cancel()
        await asyncio.wait([consuming])
        await consumer.close()
        await line.close()
    came_us = dict(notes.take())
    assert sorted(notes.numbers) == list(range(21))
    assert len(due_us) == 20
    assert all(came_us[number] >= due for number, due in due_us.items())
    assert max(due_us.values()) <= sent["ended_us"] + 1_100_000
    assert sent["ended_us"] - sent["started_us"] >= 19 / 200 * 1_000_000
    assert notes.refused == 0
    assert notes.last_ack_us >= max(came_us.values())


def test_beanstalkd(tube: TubeTarget) -> None:
    def new_line() -> BeanstalkLine:
        return BeanstalkLine(tube.line()["port"], tube.line()["tube"], connections=2)

    asyncio.run(check_lines(new_line(), new_line()))
    assert tube.count() == 0


@pytest.mark.parametrize("take", [1, 100])
def test_the_hand_written_queue(table: TableTarget, take: int) -> None:
    arguments = table.line(take=take, connections=2)
    assert arguments.pop("kind") == "skip_locked"
    line, consumer = (SkipLockedLine(**arguments) for _ in range(2))
    asyncio.run(check_lines(line, consumer))
    assert table.count() == 0


def test_the_sdk(tmp_path: Path) -> None:
    async def play() -> None:
        async with on_topic(tmp_path) as new_line:
            await check_lines(new_line(), new_line())

    asyncio.run(play())


def test_batches_through_the_sdk(tmp_path: Path) -> None:
    async def play() -> None:
        async with on_topic(tmp_path) as new_line:
            line = new_line()
            figures = await create_batches(line, first=5, messages=26, batch=10, under_way=2)
            assert figures["created"] == 26
            assert figures["rate"] > 0
            with pytest.raises(ChronolineError):
                await line.put(30, 60)  # it exists already
            await line.put(31, 60)
            await line.close()

    asyncio.run(play())


def test_single_ones_from_many_tasks(tube: TubeTarget) -> None:
    async def play() -> Figures:
        line = BeanstalkLine(tube.line()["port"], tube.line()["tube"], connections=4)
        await line.open()
        try:
            return await create_singles(line, first=0, tasks=4, seconds=0.1)
        finally:
            await line.close()

    figures = asyncio.run(play())
    assert figures["rate"] > 0
    assert tube.count() == figures["created"]


def test_failed_puts_fail_the_load(tube: TubeTarget) -> None:
    class Full(BeanstalkLine):
        async def put(self, number: int, delay_s: int, hand: int = 0) -> int:
            if number > 2:
                raise ChronolineError("no room")
            return await super().put(number, delay_s, hand)

    async def play() -> None:
        line = Full(tube.line()["port"], tube.line()["tube"])
        await line.open()
        try:
            await produce(line, first=0, messages=5, rate=1_000, delay_s=1)
        finally:
            await line.close()

    with pytest.raises(ChronolineError, match="2 messages could not be put: no room"):
        asyncio.run(play())


def test_a_refused_ack_is_counted(tube: TubeTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer that deletes jobs that do not exist."""
    delete = Beanstalk.delete

    async def delete_another(self: Beanstalk, job_id: int) -> None:
        await delete(self, job_id + 1_000_000)

    async def play() -> Notes:
        line, consumer = (BeanstalkLine(tube.line()["port"], tube.line()["tube"]) for _ in range(2))
        await line.open()
        await consumer.open()
        notes = Notes()
        await line.put(1, 0)
        await line.put(2, 0)
        consuming = asyncio.create_task(consumer.consume(notes, lambda: None))
        await until(lambda: notes.refused >= 2)
        consuming.cancel()
        await asyncio.wait([consuming])
        await consumer.close()
        await line.close()
        return notes

    monkeypatch.setattr(Beanstalk, "delete", delete_another)
    notes = asyncio.run(play())
    assert (list(notes.numbers), notes.acked) == ([1, 2], 0)


def test_the_client_of_beanstalkd(beanstalkd: BeanstalkdServer) -> None:
    async def play() -> None:
        connection = await Beanstalk.connect(beanstalkd.port)
        await connection.use("client")
        ids = await asyncio.gather(*(connection.put(b"x\r\n" * 99, 0) for _ in range(3)))
        jobs = [await connection.reserve() for _ in ids]
        assert [job.id for job in jobs] == ids
        assert jobs[0].body == b"x\r\n" * 99
        assert (await connection.stats("client"))["current-jobs-reserved"] == "3"
        assert await connection.stats("no-such-tube") == {}
        await asyncio.gather(*(connection.delete(each) for each in ids))
        with pytest.raises(ChronolineError, match="beanstalkd answered 'NOT_FOUND'"):
            await connection.delete(ids[0])
        waiting = asyncio.create_task(connection.reserve())
        await asyncio.sleep(0)  # it begins to wait
        connection.close()
        with pytest.raises(ChronolineError, match="is lost: closed"):
            await waiting
        with pytest.raises(ChronolineError, match="is lost"):
            await connection.put(b"", 0)

    asyncio.run(play())


def test_answer_may_come_in_pieces() -> None:
    async def play() -> None:
        connection = Beanstalk()
        loop = asyncio.get_running_loop()
        futures = [loop.create_future() for _ in range(2)]
        # Answers that nobody waits for have no public name.
        connection._waiting.extend(futures)
        for byte in b"RESERVED 7 4\r\n\r\nab\r\nDELETED\r\n":
            connection.data_received(bytes([byte]))
        first, second = await asyncio.gather(*futures)
        assert (first.words, first.data) == ([b"RESERVED", b"7", b"4"], b"\r\nab")
        assert (second.words, second.data) == ([b"DELETED"], b"")

    asyncio.run(play())


def test_agent_consumes_until_it_is_stopped(table: TableTarget, tmp_path: Path) -> None:
    async def play() -> dict[int, int]:
        agent = Agent()
        numbers = table.fill(250, wall_us() // 1_000 - 1_000)
        await agent.consume(table.line())

        async def is_settled() -> bool:
            return bool((await agent.count())["settled"] >= len(numbers))

        await until(is_settled)
        told = await agent.stop(str(tmp_path / "pairs"))
        assert told["refused"] == 0
        return dict(take_pairs(tmp_path / "pairs"))

    assert sorted(asyncio.run(play())) == list(range(250))
    assert table.left() == 0


def test_numbers_are_found_again() -> None:
    assert number_of_id(message_id(1_234)) == number_of_body(body_of(1_234)) == 1_234
    assert len(body_of(0)) == BODY_BYTES
    filling = Filling(total=10, start_ms=0, span_ms=0, now_ms=0)
    assert filling.id(7) == message_id(7)
    assert filling.due(7) == 0


@asynccontextmanager
async def on_topic(folder: Path) -> AsyncIterator[Callable[[], SdkLine]]:
    async with running_node(folder) as broker:
        async with broker.client() as client:
            await client.create_topic("t")
        yield lambda: SdkLine(broker.address, "t")
