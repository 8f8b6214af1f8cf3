"""The agent that runs a pipe.

Pipe settings in the environment (`CHRONOLINE_PIPE_WINDOW_MS` and others) apply too, to measure variants.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from chronoline.pipe.settings import PipeSettings
from chronoline.pipe.spark.pipe import Pipe
from chronoline_bench.harness.agent import Figures
from chronoline_bench.servers import jars


def pipe_settings(
    *,
    name: str,
    store: str,
    bootstrap: str,
    input: str,
    output: str,
    settings: Mapping[str, object],
) -> PipeSettings:
    """Returns the settings of a pipe between two topics of one Kafka; `settings` adds others by name."""
    flags = {
        "name": name,
        "store": store,
        "input.topic": input,
        "input.kafka.bootstrap.servers": bootstrap,
        "output.topic": output,
        "output.kafka.bootstrap.servers": bootstrap,
        "spark.jars": str(jars.resolve("spark-kafka")),
    }
    return PipeSettings.load(flags={**flags, **settings})


class Agent:
    def __init__(self) -> None:
        logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(message)s")
        self._pipe: Pipe | None = None

    async def serve(self, **arguments: Any) -> Figures:
        """Starts the pipe of `pipe_settings`; returns when it runs."""
        self._pipe = await asyncio.to_thread(Pipe, pipe_settings(**arguments))
        return {}

    async def close(self) -> None:
        if self._pipe is not None:
            await asyncio.to_thread(self._pipe.close)
