"""Agents: helper processes of a bench that execute commands.

`python -m chronoline_bench.harness.agent MODULE` makes an instance of the module's class `Agent`. It reads
commands from its input, a JSON object in each line: `do` names a coroutine method, the other members are its
arguments. It answers each with a line, `{"done": …}` or `{"error": …}`. It ends when its input ends, and
so with the bench.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from chronoline.core.errors import ChronolineError
from chronoline.runtime.child_process import PATIENCE_S as END_S
from chronoline.runtime.child_process import LineProcess
from chronoline.runtime.tasks import TaskSet

PATIENCE_S = 120.0
_PROGRAM = "chronoline_bench.harness.agent"
_READY = "ready"

Figures = dict[str, Any]
"""The answer to a command."""


class AgentProcess(LineProcess):
    """The bench's end of an agent."""

    is_guarded = False  # it ends with its input

    def __init__(self, module: ModuleType | str, log_path: Path) -> None:
        name = module if isinstance(module, str) else module.__name__
        super().__init__([sys.executable, "-m", _PROGRAM, name], log_path=log_path)
        self.name = f"the agent {name.removeprefix('chronoline_bench.')}"

    def _prepare(self) -> None:
        self._has_begun = False

    def begin(self, do: str, **arguments: Any) -> None:
        """Sends a command as soon as the agent is ready; `answer` waits for its end."""
        if not self._has_begun:
            self.read_line(_READY, PATIENCE_S)
            self._has_begun = True
        self.write_line(json.dumps({"do": do, **arguments}))

    def answer(self, patience_s: float = PATIENCE_S) -> Figures:
        """Returns the next command's answer. Raises `ChronolineError` if the command failed."""
        answer: dict[str, Any] = json.loads(self.read_line("{", patience_s))
        if "error" in answer:
            raise ChronolineError(answer["error"])
        done: Figures = answer["done"]
        return done

    def ask(self, do: str, patience_s: float = PATIENCE_S, **arguments: Any) -> Figures:
        self.begin(do, **arguments)
        return self.answer(patience_s)

    def stop(self, patience_s: float = END_S) -> None:
        """Closes its input, and waits until it has ended."""
        if self.is_running:
            self.close_input()
            with suppress(subprocess.TimeoutExpired):
                self.wait(patience_s)
        self.kill()


# The agent's end


async def serve(agent: object) -> None:
    """Executes commands until the input ends; then calls the agent's `close`, if it has one."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    under_way = TaskSet()
    async for line in reader:
        under_way.start(_carry_out(agent, line))
    if hasattr(agent, "close"):
        await agent.close()


async def _carry_out(agent: object, line: bytes) -> None:
    answer: dict[str, Any]
    try:
        asked = json.loads(line)
        answer = {"done": await getattr(agent, asked.pop("do"))(**asked)}
    except Exception as error:
        cause: BaseException = error
        while isinstance(cause, BaseExceptionGroup):
            cause = cause.exceptions[0]
        answer = {"error": f"{type(cause).__name__}: {cause}"}
    print(json.dumps(answer), flush=True)


async def paced(count: int, rate: float, *, start: int = 0) -> AsyncIterator[int]:
    """Yields the numbers from `start` to `count`, `rate` of them a second."""
    loop = asyncio.get_running_loop()
    started_s = loop.time()
    for place in range(start, count):
        while (wait_s := started_s + place / rate - loop.time()) > 0:
            await asyncio.sleep(wait_s)
        yield place


def freeze_heap() -> None:
    """Excludes all existing objects from garbage collections, which would disturb a measurement."""
    gc.collect()
    gc.freeze()


async def _run(module: str) -> None:
    agent = import_module(module).Agent()
    print(_READY, flush=True)
    await serve(agent)
    sys.stdout.flush()
    os._exit(0)  # threads may still be busy, Spark's too: their results are not needed


if __name__ == "__main__":
    asyncio.run(_run(sys.argv[1]))
