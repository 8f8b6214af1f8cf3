"""The input topic of a pipe: one contract, with implementations for Kafka and for the log.

A position is the offset (Kafka) or sequence (log) of the next record to take in, by partition. The positions
in the store are authoritative; `commit` only shows them to the topic's own tools.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping

from chronoline.core.errors import InvalidInput, TopicNotFound
from chronoline.log import Log
from chronoline.pipe.places import Place
from chronoline.runtime.service import Closable

DEFAULT_TIMEOUT_S = 10.0


class Input(Closable):
    """A topic to read. Thread-safe. Raises `TopicNotFound`, with the command that creates the topic."""

    @abstractmethod
    def identity(self) -> str:
        """An id that distinguishes the topic from an earlier one, or one elsewhere, with the same name."""

    @abstractmethod
    def partitions(self) -> list[int]:
        """The partitions, in order."""

    @abstractmethod
    def earliest(self) -> dict[int, int]:
        """The position of the first record that each partition still has."""

    @abstractmethod
    def latest(self) -> dict[int, int]:
        """The position that the next record of each partition gets."""

    @abstractmethod
    def commit(self, positions: Mapping[int, int]) -> None:
        """Shows the positions to the topic's own tools. Nothing depends on it."""


def open_input(place: Place, group: str, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> Input:
    """Opens an input topic; the topic's tools show its positions under `group`."""
    if not group:
        raise InvalidInput("the group, by which the topic's tools know the pipe, is empty")
    if place.kind == "log":
        return LogInput(place, group)
    return KafkaInput(place, group, timeout_s=timeout_s)


class KafkaInput(Input):
    """A topic of Kafka."""

    def __init__(self, place: Place, group: str, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        from chronoline.pipe.kafka import KafkaTopic  # noqa: PLC0415 - its library is optional

        self._topic = KafkaTopic(place, timeout_s=timeout_s)
        self._group = group

    def identity(self) -> str:
        return self._topic.identity()

    def partitions(self) -> list[int]:
        return self._topic.partitions()

    def earliest(self) -> dict[int, int]:
        return self._topic.earliest()

    def latest(self) -> dict[int, int]:
        return self._topic.latest()

    def commit(self, positions: Mapping[int, int]) -> None:
        self._topic.commit(self._group, positions)

    def close(self) -> None:
        self._topic.close()


class LogInput(Input):
    """A topic of the log."""

    def __init__(self, place: Place, group: str) -> None:
        self._name = place.topic
        self._group = group
        self._log = Log(place.log)
        try:
            self._log.topic(self._name)
        except TopicNotFound as error:
            self._log.close()
            raise TopicNotFound(place.log_problem()) from error
        except BaseException:
            self._log.close()
            raise

    def identity(self) -> str:
        return str(self._log.topic(self._name).uid)

    def partitions(self) -> list[int]:
        return list(range(self._log.topic(self._name).partitions))

    def earliest(self) -> dict[int, int]:
        return {head.partition: head.first_sequence for head in self._log.heads(self._name)}

    def latest(self) -> dict[int, int]:
        return {head.partition: head.next_sequence for head in self._log.heads(self._name)}

    def commit(self, positions: Mapping[int, int]) -> None:
        for partition, sequence in positions.items():
            self._log.seek(self._name, self._group, sequence, partition=partition)

    def close(self) -> None:
        self._log.close()
