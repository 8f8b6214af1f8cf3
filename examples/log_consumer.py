"""Bill the orders of log_producer.py: python examples/log_consumer.py [--limit N] [--once]

Start it several times, and they share the partitions. It follows until SIGTERM or Ctrl-C.
What was billed is noted; what was not comes again.
"""

import argparse
import json
import logging
import signal
import sys
from pathlib import Path

from chronoline.log import Again, Event, Log

arguments = argparse.ArgumentParser()
arguments.add_argument("--limit", type=int, help="end after so many")
arguments.add_argument("--once", action="store_true", help="end when everything is done")
chosen = arguments.parse_args()


def bill(event: Event) -> None:
    """Returns: done. Raises: again after a while, before anything behind it in its partition."""
    order = json.loads(event.value or b"")
    if order["amount"] < 0:
        raise ValueError(f"order {order['number']} has a negative amount")
    print(f"billed order {order['number']} of {(event.key or b'').decode()}", flush=True)


logging.basicConfig(stream=sys.stdout, format="%(message)s")  # which attempts failed, and why

with Log(Path("orders-log")) as log:
    if not any(topic.name == "orders" for topic in log.topics()):
        sys.exit("there are no orders yet: start examples/log_producer.py first")
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: log.stop())  # after the order that is at hand
    if not any(topic.name == "unbillable" for topic in log.topics()):
        log.create_topic("unbillable", partitions=1)
    log.process(
        "orders",
        "billing",
        bill,
        follow=not chosen.once,
        limit=chosen.limit,
        again=Again(retry_ms=100, max_attempts=3),
        dead_letter_topic="unbillable",
    )
