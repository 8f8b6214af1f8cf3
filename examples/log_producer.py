"""Append orders to a log in a folder, with many appends in flight: python examples/log_producer.py [COUNT]"""

import json
import sys
from pathlib import Path

from chronoline.log import Log, NewEvent

count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000

with Log(Path("orders-log").absolute().as_uri()) as log:
    if not any(topic.name == "orders" for topic in log.topics()):
        log.create_topic("orders", partitions=4)

    orders = [
        NewEvent(
            key=f"customer-{number % 10}".encode(),  # the orders of a customer stay in sequence
            value=json.dumps({"number": number, "amount": number % 14 - 1}).encode(),
            headers=(("source", b"web"),),
        )
        for number in range(1, count + 1)
    ]
    on_their_way = [
        log.append_later("orders", orders[first : first + 100]) for first in range(0, count, 100)
    ]
    positions = [position for future in on_their_way for position in future.result()]
    print(f"{len(positions)} orders are durable")
