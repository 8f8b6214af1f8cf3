"""The administration client of one Kafka topic: its partitions, its offsets, and this user's rights.

It also writes the positions of a consumer group, so that Kafka's own tools show the lag.

Every request has a time-out: a cluster that does not answer in time is `KafkaUnavailable`. The error of a
denied request names the remedy.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from typing import Any

from chronoline.core.errors import ChronolineError, InvalidInput, TopicNotFound
from chronoline.pipe import librdkafka
from chronoline.pipe.places import Place
from chronoline.runtime.extras import needs
from chronoline.runtime.service import Closable

with needs("Kafka", "kafka"):
    from confluent_kafka import (
        ConsumerGroupTopicPartitions,
        IsolationLevel,
        KafkaError,
        KafkaException,
        TopicCollection,
        TopicPartition,
    )
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.admin._acl import AclOperation  # where their types are known
    from confluent_kafka.admin._listoffsets import OffsetSpec

DEFAULT_TIMEOUT_S = 10.0
_LISTEN_EVERY_S = 0.1
_REMEMBERED_S = 60.0
_MORE_S = 1.0  # librdkafka says itself when a request is over, and says why
_UNKNOWN = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)
_DENIED = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
)
_TAKEN = (KafkaError.UNKNOWN_MEMBER_ID, KafkaError.ILLEGAL_GENERATION, KafkaError.NON_EMPTY_GROUP)


class KafkaUnavailable(ChronolineError):
    """Kafka cannot be reached. Try again."""


class KafkaDenied(ChronolineError):
    """Kafka denies the request to this user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRights:
    """The rights of this user on a topic; None if the cluster does not report them."""

    may_read: bool | None
    may_write: bool | None


class KafkaTopic(Closable):
    """One topic of a Kafka cluster. Thread-safe."""

    def __init__(self, place: Place, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        self._place = place
        self._timeout_s = timeout_s
        self._isolation = _isolation(place)
        self._refused: KafkaError | None = None  # the last refused connection, and its time
        self._refused_s = 0.0
        settings: dict[str, Any] = {
            **place.librdkafka(),
            "error_cb": librdkafka.error_callback(self._hear),
        }
        try:
            self._admin = AdminClient(settings, logger=librdkafka.logger)
        except KafkaException as error:
            raise InvalidInput(f"Kafka's properties do not do: {error.args[0].str()}") from error

    @property
    def name(self) -> str:
        return self._place.topic

    def partitions(self) -> list[int]:
        """The partitions in order. Raises `TopicNotFound` with the command that creates the topic."""
        return sorted(info.id for info in self._described().partitions)

    def identity(self) -> str:
        """The topic's id; a topic that is created again under the same name has another."""
        return str(self._described().topic_id)

    def rights(self) -> TopicRights:
        """Returns the rights of this user. An answer shows that the servers and the topic are reachable."""
        operations = self._described(operations=True).authorized_operations
        if operations is None:
            return TopicRights(may_read=None, may_write=None)
        return TopicRights(
            may_read=AclOperation.READ in operations, may_write=AclOperation.WRITE in operations
        )

    def earliest(self) -> dict[int, int]:
        """The offset of the first record that each partition still has."""
        return self._offsets(OffsetSpec.earliest())  # type: ignore[no-untyped-call] # the library's

    def latest(self) -> dict[int, int]:
        """The offset that the next record of each partition gets.

        With `isolation.level` `read_committed`, the offset of the first record that is not committed yet.
        """
        return self._offsets(OffsetSpec.latest())  # type: ignore[no-untyped-call] # the library's

    def commit(self, group: str, positions: Mapping[int, int]) -> None:
        """Writes the positions of a consumer group: the offset of the next record, by partition.

        The group belongs to the pipe and has no members, since the reader joins none.
        """
        if not positions:
            return
        offsets = [self._at(partition, offset) for partition, offset in positions.items()]
        written = self._ask(
            lambda: self._admin.alter_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(group, offsets)], request_timeout=self._timeout_s
            )[group],
            group,
        )
        self._check_each(written.topic_partitions, group)

    def committed(self, group: str) -> dict[int, int]:
        """The positions of a consumer group; partitions without a position are left out."""
        asked = [self._at(partition) for partition in self.partitions()]
        found = self._ask(
            lambda: self._admin.list_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(group, asked)], request_timeout=self._timeout_s
            )[group],
            group,
        ).topic_partitions
        self._check_each(found, group)
        return {each.partition: each.offset for each in found if each.offset >= 0}

    def close(self) -> None:
        """Does nothing: the connections end with the object."""

    def _at(self, partition: int, offset: int | None = None) -> TopicPartition:
        if offset is None:
            return TopicPartition(self.name, partition)
        return TopicPartition(self.name, partition, offset)

    def _described(self, *, operations: bool = False) -> Any:
        return self._ask(
            lambda: self._admin.describe_topics(
                TopicCollection([self.name]),
                include_authorized_operations=operations,
                request_timeout=self._timeout_s,
            )[self.name]
        )

    def _offsets(self, spec: OffsetSpec) -> dict[int, int]:
        asked = {self._at(partition): spec for partition in self.partitions()}
        try:
            answers = self._admin.list_offsets(
                asked, isolation_level=self._isolation, request_timeout=self._timeout_s
            )
        except KafkaException as error:
            raise self._translated(error.args[0]) from error
        return {at.partition: self._answer(answer).offset for at, answer in answers.items()}

    def _hear(self, error: KafkaError) -> None:
        """Stores an error that `poll` reports: it explains a missing answer."""
        if error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL):
            self._refused, self._refused_s = error, time.monotonic()

    # Requests and answers

    def _ask(self, ask: Any, group: str | None = None) -> Any:
        try:
            asked = ask()
        except KafkaException as error:
            raise self._translated(error.args[0], group) from error
        return self._answer(asked, group)

    def _answer(self, asked: Future[Any], group: str | None = None) -> Any:
        self._admin.poll(0)  # earlier errors do not concern this request
        begun_s = time.monotonic()
        give_up_s = begun_s + self._timeout_s + _MORE_S
        while True:
            try:
                return asked.result(_LISTEN_EVERY_S)
            except KafkaException as error:
                raise self._translated(error.args[0], group) from error
            except FutureTimeoutError as error:
                self._admin.poll(0)
                over = time.monotonic() >= give_up_s
                # The library reports a refusal only sometimes: the last one also explains a time-out.
                since_s = begun_s - _REMEMBERED_S if over else begun_s
                if self._refused is not None and self._refused_s >= since_s:
                    raise self._denied(self._refused) from error
                if over:
                    raise self._unreachable("it did not answer") from error

    def _check_each(self, answered: Iterable[TopicPartition], group: str) -> None:
        for each in answered:
            if each.error is not None:
                raise self._translated(each.error, group)

    def _translated(self, error: KafkaError, group: str | None = None) -> ChronolineError:
        servers, topic = self._place.bootstrap, self.name
        if error.code() in _UNKNOWN and group:
            return TopicNotFound(
                f"the Kafka topic {topic!r} at {servers} is gone, or has no such partition"
            )
        if error.code() in _UNKNOWN:
            return TopicNotFound(
                f"there is no Kafka topic {topic!r} at {servers}; create it, or let this user see it: "
                f"kafka-topics.sh --bootstrap-server {servers} --create --topic {topic} --partitions 8"
            )
        if error.code() in _DENIED:
            what = f"the group {group!r}" if group else f"the topic {topic!r}"
            return KafkaDenied(
                f"Kafka at {servers} denies this user {what} ({error.str()}); grant it, as in: kafka-acls.sh "
                f"--bootstrap-server {servers} --add --allow-principal User:… --topic {topic} --group "
                f"{group or '…'} --operation All"
            )
        if error.code() in _TAKEN:
            return InvalidInput(
                f"the consumer group {group!r} has members on {topic!r}; give the pipe a group of its own"
            )
        return self._unreachable(error.str())

    def _denied(self, refused: KafkaError) -> KafkaDenied:
        return KafkaDenied(f"Kafka at {self._place.bootstrap} refuses the login: {refused.str()}")

    def _unreachable(self, why: str) -> KafkaUnavailable:
        return KafkaUnavailable(
            f"Kafka at {self._place.bootstrap} cannot be asked about {self.name!r}: {why}. Check its "
            "address, that it runs, and security.protocol; then try again"
        )


def _isolation(place: Place) -> IsolationLevel:
    level = place.consumer()["isolation.level"].lower()  # as the reader has it
    if level not in ("read_uncommitted", "read_committed"):
        raise InvalidInput(f"isolation.level is read_uncommitted or read_committed, not {level!r}")
    return IsolationLevel[level.upper()]
