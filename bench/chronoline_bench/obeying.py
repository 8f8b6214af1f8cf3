"""An agent's side of a bench: a process that does what it is told.

It reads commands from its input, a JSON object in each line, and answers each by one: `{"done": …}` or
`{"error": …}`. It ends when its input does, and so with the bench.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

Obey = Callable[..., Awaitable[dict[str, Any]]]
"""Does what a command says; the members of its object are the arguments."""


async def serve(obey: Obey) -> None:
    """Until the input ends; then whatever is under way ends too."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    under_way: set[asyncio.Task[None]] = set()
    async for line in reader:
        task = asyncio.create_task(_carry_out(obey, line))
        under_way.add(task)
        task.add_done_callback(under_way.discard)


async def _carry_out(obey: Obey, line: bytes) -> None:
    answer: dict[str, Any]
    try:
        answer = {"done": await obey(**json.loads(line))}
    except Exception as error:
        answer = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(answer), flush=True)
