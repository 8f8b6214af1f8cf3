"""The agent of the bench `broker`: a producer, or a consumer."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

from chronoline.core.errors import ChronolineError
from chronoline.runtime.tasks import TaskSet
from chronoline_bench.broker.beanstalk import BeanstalkLine
from chronoline_bench.broker.lines import Line, SdkLine, SkipLockedLine
from chronoline_bench.harness.agent import Figures, freeze_heap, paced
from chronoline_bench.harness.passage import Notes, wall_us, write_pairs

LINES: dict[str, Callable[..., Line]] = {
    "sdk": SdkLine,
    "beanstalk": BeanstalkLine,
    "skip_locked": SkipLockedLine,
}
FAR_S = 86_400
"""The delay of messages that are not consumed."""


class Agent:
    """The agent's commands. `line` names the line to use, and its arguments."""

    def __init__(self) -> None:
        self._notes = Notes()
        self._line: Line | None = None
        self._consuming: asyncio.Task[None] | None = None

    # A producer

    async def produce(self, line: dict[str, Any], path: str, **load: Any) -> Figures:
        """Puts messages at a rate, and writes their due times to a file."""
        async with _opened(**line) as opened:
            figures, due_us = await produce(opened, **load)
        write_pairs(Path(path), enumerate(due_us, load["first"]))
        return figures

    async def batches(self, line: dict[str, Any], **load: Any) -> Figures:
        async with _opened(**line) as opened:
            return await create_batches(opened, **load)

    async def singles(self, line: dict[str, Any], **load: Any) -> Figures:
        async with _opened(**line) as opened:
            return await create_singles(opened, **load)

    # A consumer

    async def consume(self, line: dict[str, Any]) -> Figures:
        """Starts to consume; returns when due messages arrive from then on."""
        self._notes = Notes()
        self._line = _line(**line)
        await self._line.open()
        freeze_heap()
        ready = asyncio.Event()
        self._consuming = asyncio.create_task(self._line.consume(self._notes, ready.set))
        waiting = asyncio.create_task(ready.wait())
        await asyncio.wait((waiting, self._consuming), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        return await self.count()

    async def count(self) -> Figures:
        """Returns the number of settled messages."""
        if self._consuming is not None and self._consuming.done():
            self._consuming.result()  # raises its error
        return {"settled": self._notes.acked + self._notes.refused}

    async def stop(self, path: str) -> Figures:
        """Stops consuming, and writes the arrival times to a file."""
        if self._consuming is not None:
            self._consuming.cancel()
            await asyncio.wait([self._consuming])
        if self._line is not None:
            await self._line.close()
        self._consuming = self._line = None
        write_pairs(Path(path), self._notes.take())
        return {"refused": self._notes.refused, "last_ack_us": self._notes.last_ack_us}


async def produce(
    line: Line, *, first: int, messages: int, rate: float, delay_s: int
) -> tuple[Figures, array[int]]:
    """Puts messages at a rate, without waiting for answers; returns their due times in order."""
    due_us = array("q", [await line.put(first, delay_s)])  # to warm up the connections
    due_us.extend([0] * (messages - 1))
    putting = TaskSet()
    failed: list[Exception] = []

    async def put(place: int) -> None:
        try:
            due_us[place] = await line.put(first + place, delay_s, place)
        except Exception as error:  # raised at the end
            failed.append(error)

    freeze_heap()
    started_us = wall_us()
    async for place in paced(messages, rate, start=1):
        putting.start(put(place))
    ended_us = wall_us()
    await asyncio.gather(*putting)
    if failed:
        raise ChronolineError(f"{len(failed)} messages could not be put: {failed[0]}")
    return {"started_us": started_us, "ended_us": ended_us}, due_us


async def create_batches(
    line: Line, *, first: int, messages: int, batch: int, under_way: int
) -> Figures:
    """Creates messages in prepared batches as fast as possible, with several batches in flight."""
    assert isinstance(line, SdkLine)
    await line.put(first, FAR_S)  # to warm up the connection
    end = first + messages
    prepared = [
        line.batch(start, min(batch, end - start), FAR_S) for start in range(first + 1, end, batch)
    ]
    left = iter(prepared)

    async def put() -> None:
        for some in left:
            await line.put_many(some)

    freeze_heap()
    started_us = wall_us()
    await asyncio.gather(*(put() for _ in range(under_way)))
    took_s = (wall_us() - started_us) / 1_000_000
    return {"rate": (messages - 1) / took_s, "created": messages}


async def create_singles(line: Line, *, first: int, tasks: int, seconds: float) -> Figures:
    """Creates messages one by one in many tasks, each of which waits for its answer."""
    numbers = count(first)
    await line.put(next(numbers), FAR_S)
    freeze_heap()
    started_us = wall_us()
    until_us = started_us + round(seconds * 1_000_000)

    async def put(hand: int) -> int:
        created = 0
        while wall_us() < until_us:
            await line.put(next(numbers), FAR_S, hand)
            created += 1
        return created

    created = sum(await asyncio.gather(*(put(hand) for hand in range(tasks))))
    took_s = (wall_us() - started_us) / 1_000_000
    return {"rate": created / took_s, "created": created + 1}


@asynccontextmanager
async def _opened(**line: Any) -> AsyncIterator[Line]:
    opened = _line(**line)
    try:
        await opened.open()
        yield opened
    finally:
        await opened.close()


def _line(kind: str, **arguments: Any) -> Line:
    return LINES[kind](**arguments)
