"""What a producer of the bench is told to do. Each answers figures when it is done."""

from __future__ import annotations

import asyncio
from array import array
from itertools import count
from pathlib import Path

from chronoline.core.errors import ChronolineError
from chronoline_bench.brokers.lines import Line, now_us
from chronoline_bench.brokers.sdk import SdkLine
from chronoline_bench.pacing import forget_the_past, paced
from chronoline_bench.pipes.records import write_pairs

FAR_S = 86_400
"""What is only created is due then: nobody consumes it."""

Figures = dict[str, float]


async def produce(
    line: Line, *, first: int, messages: int, rate: float, delay_s: int, path: str
) -> Figures:
    """Puts messages at a rate, whether or not they are answered, and leaves a file: which is due when."""
    due_us = array("q", [await line.put(first, delay_s)])  # from here on the way is known
    due_us.extend([0] * (messages - 1))
    putting: set[asyncio.Task[None]] = set()
    failed: list[Exception] = []

    async def put(place: int) -> None:
        try:
            due_us[place] = await line.put(first + place, delay_s, place)
        except Exception as error:  # it is told at the end
            failed.append(error)

    forget_the_past()
    started_us = now_us()
    async for place in paced(messages, rate, start=1):
        task = asyncio.create_task(put(place))
        putting.add(task)
        task.add_done_callback(putting.discard)
    ended_us = now_us()
    await asyncio.gather(*putting)
    if failed:
        raise ChronolineError(f"{len(failed)} messages could not be put: {failed[0]}")
    write_pairs(Path(path), enumerate(due_us, first))
    return {"started_us": started_us, "ended_us": ended_us}


async def batches(line: Line, *, first: int, messages: int, batch: int, under_way: int) -> Figures:
    """Creates messages in batches, as fast as it goes, so many batches at a time. They lie ready before."""
    assert isinstance(line, SdkLine)
    await line.put(first, FAR_S)  # from here on the way is known
    end = first + messages
    prepared = [
        line.batch(start, min(batch, end - start), FAR_S) for start in range(first + 1, end, batch)
    ]
    left = iter(prepared)

    async def put() -> None:
        for some in left:
            await line.put_many(some)

    forget_the_past()
    started_us = now_us()
    await asyncio.gather(*(put() for _ in range(under_way)))
    took_s = (now_us() - started_us) / 1_000_000
    return {"rate": (messages - 1) / took_s, "created": messages}


async def singles(line: Line, *, first: int, tasks: int, seconds: float) -> Figures:
    """Creates messages one by one from many tasks, of which each waits for its answer."""
    numbers = count(first)
    await line.put(next(numbers), FAR_S)
    forget_the_past()
    started_us = now_us()
    until_us = started_us + round(seconds * 1_000_000)

    async def put(hand: int) -> int:
        created = 0
        while now_us() < until_us:
            await line.put(next(numbers), FAR_S, hand)
            created += 1
        return created

    created = sum(await asyncio.gather(*(put(hand) for hand in range(tasks))))
    took_s = (now_us() - started_us) / 1_000_000
    return {"rate": created / took_s, "created": created + 1}
