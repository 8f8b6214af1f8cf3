"""Where a topic of a pipe is: a value that travels to Spark's tasks, which open it where they run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Self

from chronoline.core.errors import InvalidInput
from chronoline.core.topic import check_topic_name
from chronoline.pipe.properties import Value, java_properties, librdkafka_properties

_KAFKA_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A topic of Kafka, or of a log. What may hold a password is not shown when it is printed."""

    kind: Literal["kafka", "log"]
    topic: str
    bootstrap: str = ""
    """Kafka's servers, `host:port` with commas between them."""
    properties: Mapping[str, Value] = field(default_factory=dict, repr=False)
    """Properties of Kafka's Java client, with or without `kafka.` before them; they serve Spark and our own
    clients alike."""
    producer: Mapping[str, Value] = field(default_factory=dict, repr=False)
    """Properties of librdkafka, for our own clients alone; they win. An empty one takes its name out."""
    log: str = field(default="", repr=False)
    """A log's connection string."""

    def __post_init__(self) -> None:
        if self.kind == "kafka":
            _check_kafka(self)
        elif self.kind == "log":
            _check_log(self)
        else:
            raise InvalidInput(f"a topic is on 'kafka' or on a 'log', not on {self.kind!r}")

    @classmethod
    def of_kafka(
        cls,
        topic: str,
        bootstrap: str,
        properties: Mapping[str, Value] | None = None,
        *,
        producer: Mapping[str, Value] | None = None,
    ) -> Self:
        return cls(
            kind="kafka",
            topic=topic,
            bootstrap=bootstrap,
            properties=dict(properties or {}),
            producer=dict(producer or {}),
        )

    @classmethod
    def of_log(cls, topic: str, log: str) -> Self:
        return cls(kind="log", topic=topic, log=log)

    def log_problem(self) -> str:
        """What to say if its log has no such topic. A URL that may hold a password is not repeated."""
        log = self.log if self.log.startswith("file:") and "?" not in self.log else "…"
        return (
            f"there is no topic {self.topic!r} in the log; create it: chronoline log create {self.topic}"
            f" --log {log}"
        )

    def java(self) -> dict[str, str]:
        """What Kafka's Java client is given, and Spark with `kafka.` before each name."""
        return java_properties(self.properties) | {"bootstrap.servers": self.bootstrap}

    def librdkafka(self) -> dict[str, str]:
        """What our own producer is given. Raises `InvalidInput` for what cannot be translated."""
        return librdkafka_properties(self.java(), self.producer)


def _check_kafka(place: Place) -> None:
    if not _KAFKA_TOPIC.fullmatch(place.topic) or place.topic in (".", ".."):
        raise InvalidInput(
            f"{place.topic!r} is no name of a Kafka topic: 1 to 249 letters, digits, '.', '_' and '-'"
        )
    given = java_properties(place.properties).get("bootstrap.servers", place.bootstrap)
    if given != place.bootstrap:
        raise InvalidInput(
            f"the topic {place.topic!r} is said to be at {place.bootstrap!r} and, by its property "
            f"bootstrap.servers, at {given!r}; name its servers once"
        )
    if not all(server.strip() for server in place.bootstrap.split(",")):
        raise InvalidInput(
            f"the servers of the Kafka topic {place.topic!r} are not named; write host:port,host:port"
        )
    if place.log:
        raise InvalidInput(f"the topic {place.topic!r} is on Kafka and cannot be on a log too")


def _check_log(place: Place) -> None:
    check_topic_name(place.topic)
    if not place.log:
        raise InvalidInput(
            f"the log of the topic {place.topic!r} is not named; write what `chronoline log init` printed"
        )
    if place.bootstrap or place.properties or place.producer:
        raise InvalidInput(f"the topic {place.topic!r} is on a log and takes nothing of Kafka's")
