"""Another process on the same file: `python -m tests.stores.sqlite.child WHAT PATH`.

`lock` holds the write lock until it reads a line. `create` creates a message for each id that it reads,
and says "done" when it is answered. `flood` creates many, and says the ids of those that were answered.
"""

import sqlite3
import sys

from chronoline.runtime.clock import SystemClock
from chronoline.stores.factory import open_store
from tests.stores.line import NOW, new

FLOOD = 1_500
"""Enough for a checkpoint."""


def say(word: str) -> None:
    sys.stdout.write(word + "\n")
    sys.stdout.flush()


def lock(path: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    say("locked")
    sys.stdin.readline()
    connection.execute("ROLLBACK")
    connection.close()


def create(path: str) -> None:
    with open_store(f"sqlite:///{path}") as store:
        say("ready")
        for line in sys.stdin:
            (topic,) = store.list_topics()
            now_ms = SystemClock().now_ms()
            (outcome,) = store.create(topic.uid, [new(line.strip(), now_ms)], now_ms=now_ms)
            say("done" if outcome.done else outcome.reason)


def flood(path: str) -> None:
    with open_store(f"sqlite:///{path}") as store:
        topic = store.create_topic("t", now_ms=NOW)
        for number in range(FLOOD):
            (outcome,) = store.create(topic.uid, [new(f"m{number}", body=bytes(1_000))], now_ms=NOW)
            if outcome.done:
                say(outcome.id)


if __name__ == "__main__":
    {"lock": lock, "create": create, "flood": flood}[sys.argv[1]](sys.argv[2])
