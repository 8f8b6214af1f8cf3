"""Another process on the same database: `python -m tests.stores.postgres.child URL`.

It says "ready", and does for each line what it says: "open" opens the store, "create ID" creates a message
in the only topic that there is. Then it says "done".
"""

import sys

from chronoline.runtime.clock import SystemClock
from chronoline.stores.factory import open_store
from chronoline.stores.postgres import PostgresStore  # imported before anything is timed
from tests.stores.line import new


def say(word: str) -> None:
    sys.stdout.write(word + "\n")
    sys.stdout.flush()


def main(url: str) -> None:
    store = None
    say("ready")
    for line in sys.stdin:
        what, *ids = line.split()
        if store is None:
            store = open_store(url)
            assert isinstance(store, PostgresStore)
        if what == "create":
            (topic,) = store.list_topics()
            now_ms = SystemClock().now_ms()
            store.create(topic.uid, [new(each, now_ms) for each in ids], now_ms=now_ms)
        say("done")


if __name__ == "__main__":
    main(sys.argv[1])
