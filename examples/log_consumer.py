"""Bill the orders of log_producer.py: python examples/log_consumer.py [--limit N] [--once]

Several processes share the partitions. Each follows the log until SIGTERM or Ctrl-C. The log stores the
progress of the group; an order that was not billed comes again.
"""

import argparse
import json
import logging
import signal
import sys
from pathlib import Path

from chronoline.log import Again, Event, Log

arguments = argparse.ArgumentParser()
arguments.add_argument("--limit", type=int, help="end after N events")
arguments.add_argument("--once", action="store_true", help="end when everything is done")
chosen = arguments.parse_args()


def bill(event: Event) -> None:
    """Bill an order. If it raises, the event is retried before later events of its partition."""
    order = json.loads(event.value or b"")
    if order["amount"] < 0:
        raise ValueError(f"order {order['number']} has a negative amount")
    print(f"billed order {order['number']} of {(event.key or b'').decode()}", flush=True)


logging.basicConfig(stream=sys.stdout, format="%(message)s")  # failed attempts, and their reasons

with Log(Path("orders-log")) as log:
    if not any(topic.name == "orders" for topic in log.topics()):
        sys.exit("there are no orders yet: start examples/log_producer.py first")
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: log.stop())  # ends after the current order
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
