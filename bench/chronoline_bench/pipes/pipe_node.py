"""A pipe as a process: `python -m chronoline_bench.pipes.pipe_node WORK`, where WORK is a `PipeWork` as JSON.

Settings of a pipe that are in the environment (`CHRONOLINE_PIPE_WINDOW_MS` and the like) hold here too, so
that variants can be measured. SIGTERM ends it, in order.
"""

from __future__ import annotations

import json
import logging
import signal
import sys
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Self

from chronoline.pipe.settings import PipeSettings
from chronoline.pipe.spark.pipe import Pipe
from chronoline_bench.servers import jars

_LOOK_EVERY_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class PipeWork:
    """What a pipe of the bench has to do."""

    name: str
    store: str
    bootstrap: str
    input: str
    output: str
    settings: Mapping[str, object] = field(default_factory=dict)
    """Further ones, by their names."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, text: str) -> Self:
        return cls(**json.loads(text))

    def pipe_settings(self) -> PipeSettings:
        flags = {
            "name": self.name,
            "store": self.store,
            "input.topic": self.input,
            "input.kafka.bootstrap.servers": self.bootstrap,
            "output.topic": self.output,
            "output.kafka.bootstrap.servers": self.bootstrap,
            "spark.jars": str(jars.resolve("spark-kafka")),
        }
        return PipeSettings.load(flags={**flags, **self.settings})


def main(text: str) -> None:
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(message)s")
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    with Pipe(PipeWork.parse(text).pipe_settings()) as pipe:
        print("ready", flush=True)
        while not (stopping.wait(_LOOK_EVERY_S) or pipe.stopped.is_set()):
            pass


if __name__ == "__main__":
    main(sys.argv[1])
