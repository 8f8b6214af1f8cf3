"""A program that runs a command, then makes a session, serves a pipe on it and stops it.

`python -m tests.spark.pipes.own_session FLAGS pipe run …`: the command begins in a fresh process. The session
after it has the JVM that the command started. At the end it prints what it saw, as JSON.
"""

from __future__ import annotations

import json
import signal
import sys

from chronoline.cli.main import run
from chronoline.core.errors import InvalidInput
from chronoline.pipe.settings import PipeSettings
from chronoline.pipe.spark.pipe import Pipe
from chronoline.pipe.spark.session import build_session, count_slots
from tests.spark.pipes.places import PATIENCE_S
from tests.spark.pipes.scene import until


def run_command(arguments: list[str]) -> None:
    sys.argv = ["chronoline", *arguments]
    try:
        run()
    except SystemExit as ended:
        if ended.code:
            raise


def main(flags: str) -> None:
    settings = PipeSettings.load(None, {}, json.loads(flags))
    signals: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda given, _: signals.append(given))
    spark, _ = build_session(settings)
    signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGTERM)
    slots = count_slots(spark, 1)
    remembered = spark.conf.get("spark.sql.streaming.numRecentProgressUpdates")
    with Pipe(settings, spark) as pipe:
        # The first look of the supervisor has no event.
        until(lambda: pipe._input_claims.claims, "the supervisor has looked for the first time")
        spark.stop()
        stopped = pipe.stopped.wait(PATIENCE_S / 2)
        failed = pipe.failed
    try:
        again = f"a pipe runs as node {Pipe(settings, spark).node}"
    except InvalidInput as error:
        again = str(error)
    seen = {
        "signals": signals,
        "slots": slots,
        "remembered": int(remembered or 0),
        "stopped": stopped,
        "failed": failed,
        "again": again,
    }
    print(json.dumps(seen))


if __name__ == "__main__":
    own, *command = sys.argv[1:]
    run_command(command)
    main(own)
