"""The location of a pipe's topic: a value that is sent to Spark's tasks, which open the topic."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Self

from chronoline.core.errors import InvalidInput, TopicNotFound
from chronoline.core.topic import check_topic_name
from chronoline.pipe.properties import (
    Value,
    consumer_properties,
    java_properties,
    librdkafka_properties,
)
from chronoline.runtime.store_url import scheme_of, split_url, sqlite_path

_KAFKA_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A topic of Kafka, or of a log. Its `repr` leaves out fields that may hold a password."""

    kind: Literal["kafka", "log"]
    topic: str
    bootstrap: str = ""
    """Kafka's servers: `host:port`, separated by commas."""
    properties: Mapping[str, Value] = field(default_factory=dict, repr=False)
    """Properties of Kafka's Java client, with or without the prefix `kafka.`."""
    producer: Mapping[str, Value] = field(default_factory=dict, repr=False)
    """Properties of librdkafka. They override `properties`; an empty one removes a property."""
    log: str = field(default="", repr=False)
    """A log's connection string."""

    def __post_init__(self) -> None:
        if self.kind == "kafka":
            _check_kafka_place(self)
        elif self.kind == "log":
            _check_log_place(self)
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
        """The error text for a missing topic of a log. It leaves out a URL that may hold a password."""
        log = self.log if self.log.startswith("file:") and "?" not in self.log else "…"
        return (
            f"there is no topic {self.topic!r} in the log; create it: chronoline log create {self.topic}"
            f" --log {log}"
        )

    def java(self) -> dict[str, str]:
        """The properties as Kafka's Java client names them."""
        return java_properties(self.properties) | {"bootstrap.servers": self.bootstrap}

    def librdkafka(self) -> dict[str, str]:
        """The properties for librdkafka. Raises `InvalidInput` for one that cannot be translated."""
        return librdkafka_properties(self.java(), self.producer)

    def consumer(self) -> dict[str, str]:
        """The properties for a consumer of librdkafka."""
        return consumer_properties(self.java()) | self.librdkafka()


def _check_kafka_place(place: Place) -> None:
    if not _KAFKA_TOPIC.fullmatch(place.topic) or place.topic in (".", ".."):
        raise InvalidInput(
            f"{place.topic!r} is not a name of a Kafka topic: 1 to 249 letters, digits, '.', '_' and '-'"
        )
    given = java_properties(place.properties).get("bootstrap.servers", place.bootstrap)
    if given != place.bootstrap:
        raise InvalidInput(
            f"the topic {place.topic!r} is at {place.bootstrap!r} and, by its property "
            f"bootstrap.servers, at {given!r}; name its servers once"
        )
    if not all(server.strip() for server in place.bootstrap.split(",")):
        raise InvalidInput(
            f"the servers of the Kafka topic {place.topic!r} are not named; write host:port,host:port"
        )
    if place.log:
        raise InvalidInput(f"the topic {place.topic!r} is on Kafka and cannot be on a log too")


def _check_log_place(place: Place) -> None:
    check_topic_name(place.topic)
    if not place.log:
        raise InvalidInput(
            f"the log of the topic {place.topic!r} is not named; write what `chronoline log init` printed"
        )
    if place.bootstrap or place.properties or place.producer:
        raise InvalidInput(f"the topic {place.topic!r} is on a log and takes nothing of Kafka's")


# Files on this machine: a command that only reads a pipe must not create one by a mistyped path


def missing_file(url: str) -> Path | None:
    """The file of a SQLite database, if it does not exist yet; opening the database creates it."""
    if scheme_of(url) != "sqlite":
        return None
    path = Path(sqlite_path(url))
    return None if path.exists() else path


def check_log(place: Place) -> None:
    """Raises `TopicNotFound` if the log of a topic does not exist, with the command that creates both."""
    missing = _missing_part(place.log) if place.kind == "log" else None
    if missing is not None:
        raise TopicNotFound(f"there is no {str(missing)!r}, and so {place.log_problem()}")


def _missing_part(log: str) -> Path | None:
    scheme, _, folder, options = split_url(log)
    if scheme == "file" and not Path(folder, "objects").is_dir():
        return Path(folder, "objects") if Path(folder).is_dir() else Path(folder)
    return missing_file(options.get("index", ""))
