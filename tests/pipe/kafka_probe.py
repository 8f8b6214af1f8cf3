"""Asks a topic of Kafka before and after a line comes in: `python -m tests.pipe.kafka_probe BOOTSTRAP TOPIC`.

A process of its own, which ends at once: librdkafka has aborted when clients whose requests were never
answered were taken down together with their server.
"""

import os
import sys
from collections.abc import Callable

from chronoline.core.errors import ChronolineError
from chronoline.pipe.kafka import KafkaTopic
from chronoline.pipe.places import Place


def _say(ask: Callable[[], object]) -> None:
    try:
        print(ask(), flush=True)
    except ChronolineError as error:
        print(f"{type(error).__name__}: {error}", flush=True)


def main(bootstrap: str, name: str) -> None:
    topic = KafkaTopic(Place.of_kafka(name, bootstrap), timeout_s=0.5)
    _say(topic.partitions)
    sys.stdin.readline()
    for ask in (topic.partitions, topic.latest, lambda: topic.commit("g", {0: 0})):
        _say(ask)
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
