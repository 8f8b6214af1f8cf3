"""Reads an output topic and does nothing else: notes when each message came.

`python -m chronoline_bench.pipes.watcher BOOTSTRAP TOPIC PATH`. It begins at the topic's end, says so by a
line on its output, and adds a pair to the file for each message: its number, and the time in µs. SIGTERM
ends it.
"""

from __future__ import annotations

import gc
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from chronoline_bench.pipes.loader import number_of
from chronoline_bench.pipes.records import PAIR

READY = "ready"
_POLL_S = 0.02
_WRITE_EVERY_US = 200_000
_CONSUMER = {
    "group.id": "chronoline-bench-watcher",
    "enable.auto.commit": False,
    "fetch.wait.max.ms": 100,
    # What was away is found again at once: it is the pipe that is measured.
    "fetch.error.backoff.ms": 20,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 50,
    "socket.nagle.disable": True,
    "log_level": 0,
}
_ASK_S = 30.0


def watch(bootstrap: str, topic: str, path: Path, stopping: threading.Event) -> None:
    """Until it is told to stop; what is on its way then is not waited for."""
    consumer = Consumer({**_CONSUMER, "bootstrap.servers": bootstrap})
    consumer.assign(_ends(consumer, topic))
    gc.collect()
    gc.freeze()
    with path.open("wb", buffering=0) as file:
        print(READY, flush=True)
        _note(consumer, file.write, stopping)
    consumer.close()


def _note(consumer: Consumer, write: Callable[[bytes], object], stopping: threading.Event) -> None:
    """Pairs are written a few times a second, and whenever there is nothing to read."""
    pairs = bytearray()
    written_us = 0
    while not stopping.is_set():
        message = consumer.poll(_POLL_S)
        now_us = time.time_ns() // 1_000
        if message is not None and message.error() is None:
            pairs += PAIR.pack(number_of(message), now_us)
        if pairs and (message is None or now_us - written_us > _WRITE_EVERY_US):
            write(bytes(pairs))
            pairs.clear()
            written_us = now_us
    write(bytes(pairs))


def _ends(consumer: Consumer, topic: str) -> list[TopicPartition]:
    known = consumer.list_topics(topic, timeout=_ASK_S).topics[topic].partitions
    places = [TopicPartition(topic, partition) for partition in known]
    for place in places:
        _, place.offset = consumer.get_watermark_offsets(place, timeout=_ASK_S)
    return places


def main(bootstrap: str, topic: str, path: str) -> None:
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    watch(bootstrap, topic, Path(path), stopping)


if __name__ == "__main__":
    main(*sys.argv[1:])
