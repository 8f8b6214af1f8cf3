"""Sets of tasks end as a whole; a supervised task that fails is logged, counted and started again."""

from __future__ import annotations

import asyncio
import logging

import pytest

from chronoline.runtime.tasks import TaskSet, supervise
from tests.deadline import until


class Part:
    """Fails at its first `failures` starts; then it works until `to_end` is set."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.starts = 0
        self.works = asyncio.Event()
        self.to_end = asyncio.Event()

    async def work(self) -> None:
        self.starts += 1
        if self.starts <= self.failures:
            raise RuntimeError(f"fault {self.starts}")
        self.works.set()
        await self.to_end.wait()


class Counted:
    """The failures that were counted."""

    def __init__(self) -> None:
        self.failures: list[tuple[str, str]] = []

    def failed(self, what: str, topic: str) -> None:
        self.failures.append((what, topic))


def test_failed_task_is_logged_counted_and_restarted(caplog: pytest.LogCaptureFixture) -> None:
    async def play() -> None:
        counted = Counted()
        part, sound = Part(failures=2), Part(failures=0)
        tasks = [
            supervise("a part", part.work, counted.failed, topic="jobs"),
            supervise("other", sound.work, counted.failed),
        ]
        await asyncio.wait_for(part.works.wait(), 60)
        assert (part.starts, sound.starts) == (3, 1)
        assert counted.failures == [("a part", "jobs")] * 2
        part.to_end.set()
        sound.to_end.set()
        await asyncio.wait_for(asyncio.gather(*tasks), 60)  # a task that returns is not restarted
        assert (part.starts, sound.starts) == (3, 1)

    with caplog.at_level(logging.ERROR):
        asyncio.run(play())
    told = [each for each in caplog.records if each.getMessage().startswith("a part for topic")]
    assert [str(each.exc_info[1]) for each in told if each.exc_info] == ["fault 1", "fault 2"]


@pytest.mark.parametrize("failures", [0, 1_000])
def test_cancelling_ends_a_task_at_work_or_at_rest(failures: int) -> None:
    async def play() -> None:
        counted = Counted()
        part = Part(failures)
        task = supervise("a part", part.work, counted.failed)
        await until(lambda: part.works.is_set() or bool(counted.failures))
        task.cancel()
        await asyncio.wait([task], timeout=20)
        assert task.cancelled()
        assert part.starts == 1
        assert counted.failures == ([("a part", "")] if failures else [])

    asyncio.run(play())


def test_ended_task_leaves_its_set() -> None:
    async def play() -> None:
        tasks, part = TaskSet(), Part(failures=0)
        task = tasks.start(part.work())
        assert tasks == {task}
        part.to_end.set()
        await tasks.end(20)
        assert task.done()
        assert not task.cancelled()
        assert not tasks

    asyncio.run(play())


def test_end_cancels_tasks_after_the_patience() -> None:
    async def play() -> None:
        tasks = TaskSet()
        task = tasks.start(Part(failures=0).work())
        await tasks.end()
        assert task.cancelled()

    asyncio.run(play())
