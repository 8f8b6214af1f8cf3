"""A node as a process: `python -m chronoline_bench.published SETTINGS` (JSON). SIGTERM ends it in order."""

from __future__ import annotations

import logging
import signal
import sys
import threading

from chronoline_bench.published.node import Node, from_json

_PATIENCE_S = 60


def main(text: str) -> None:
    logging.basicConfig(level=logging.WARNING)
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    with Node(from_json(text)) as node:
        if node.ready.wait(_PATIENCE_S):
            print("ready", flush=True)
            stopping.wait()


if __name__ == "__main__":
    main(sys.argv[1])
