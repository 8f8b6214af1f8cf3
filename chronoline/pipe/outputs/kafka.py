"""The output on a Kafka topic.

State model. An output sends by a `KafkaProducer`: a producer of librdkafka with a thread that waits in its
`poll` and confirms the records. A record is in one producer at a time, which reports its outcome within the
delivery time-out.

Bad records. Kafka refuses a whole batch for one bad record in it, or because the batch is larger than the
topic allows. So refused records are sent once more by a second producer, in which each record is a batch by
itself; a record that is refused there is `Unpublishable`. Every other error is a failure of the output.

A producer whose idempotence is broken permanently accepts no more records. It is retired and confirms its
remaining records, and the next record opens another one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from chronoline.core.errors import InvalidInput, OutputUnavailable, Unpublishable
from chronoline.pipe.outputs.contract import (
    DEFAULT_DELIVERY_TIMEOUT_MS,
    Confirm,
    Output,
    OutRecord,
)
from chronoline.pipe.outputs.kafka_producer import KafkaProducer, KafkaRefusal, settle
from chronoline.pipe.properties import delivery_problem

_RENEW_S = 1.0
"""The shortest time between two new producers; until then a broken producer's records are returned."""
_LAST_ANSWERS_S = 1.0

_DEFAULTS = {
    # Keys go to the partitions that Java's client chooses; records without a key are spread.
    "partitioner": "murmur2_random",
    # The topic limits the size of a record: a message can have 64 MiB and its headers.
    "message.max.bytes": "80000000",
    # The queue is bounded by bytes, and has room for the largest record.
    "queue.buffering.max.kbytes": "131072",
    "queue.buffering.max.messages": "100000",
    # Reconnect to a broker at once, not after ten seconds.
    "reconnect.backoff.ms": "50",
    "reconnect.backoff.max.ms": "500",
    "socket.nagle.disable": "true",
    # While two requests are in flight, further records collect in the next. With more requests in flight, at
    # thousands a second, nearly each record would be a separate request.
    "max.in.flight.requests.per.connection": "2",
}
_ALONE = {"batch.num.messages": "1"}


class KafkaOutput(Output):
    """A topic of Kafka.

    `properties` are librdkafka's, including `bootstrap.servers`. A record is acknowledged when all replicas
    in sync have it (`acks=all`), and idempotence is on unless they turn it off. After `delivery_timeout_ms`
    an unacknowledged record is given up; keep that below the hold time of the message.
    """

    def __init__(
        self,
        topic: str,
        properties: Mapping[str, str],
        *,
        delivery_timeout_ms: int = DEFAULT_DELIVERY_TIMEOUT_MS,
        linger_ms: float = 0,
    ) -> None:
        self.topic = topic
        self._settings = producer_settings(properties, delivery_timeout_ms, linger_ms)
        self._close_s = delivery_timeout_ms / 1000 + _LAST_ANSWERS_S
        # Guards the fields below.
        self._lock = threading.Lock()
        self._closed = False
        self._renewed_s = time.monotonic()
        self._retired: list[KafkaProducer] = []
        self._alone: KafkaProducer | None = None
        # Read without the lock: a caller whose producer refuses a record asks for another.
        self._producer = KafkaProducer(topic, self._settings, self._send_alone)

    def publish(self, record: OutRecord, confirm: Confirm) -> None:
        producer = self._producer
        while not producer.send(record, confirm):
            try:
                producer = self._renewed(producer)
            except OutputUnavailable as error:
                settle(confirm, error)
                return

    def flush(self, timeout_s: float) -> int:
        give_up_s = time.monotonic() + timeout_s
        # In this order: refused records move from a producer to a later one.
        return sum(producer.flush(give_up_s - time.monotonic()) for producer in self._producers())

    def close(self) -> None:
        """Waits at most for the delivery time-out, after which every record is given up."""
        with self._lock:
            self._closed = True
        self.flush(self._close_s)
        for producer in self._producers():
            producer.close()

    def _producers(self) -> list[KafkaProducer]:
        with self._lock:
            self._retired = [producer for producer in self._retired if not producer.is_over()]
            return [*self._retired, self._producer, *([self._alone] if self._alone else [])]

    def _renewed(self, broken: KafkaProducer) -> KafkaProducer:
        """Replaces a broken producer. Raises `OutputUnavailable` if the last one is too recent."""
        with self._lock:
            if self._closed:
                raise OutputUnavailable(f"the output {self.topic!r} is closed")
            if self._producer is broken:
                if time.monotonic() < self._renewed_s + _RENEW_S:
                    raise OutputUnavailable(f"the producer for {self.topic!r} broke: {broken.why}")
                self._renewed_s = time.monotonic()
                self._retire(broken)
                self._producer = KafkaProducer(self.topic, self._settings, self._send_alone)
            return self._producer

    def _send_alone(self, refused: KafkaRefusal) -> None:
        """Called by the thread of a producer."""
        with self._lock:
            if self._alone is not None and self._alone.why:
                self._retire(self._alone)
                self._alone = None
            if self._alone is None:
                self._alone = KafkaProducer(self.topic, self._settings | _ALONE, _refuse_for_good)
            alone = self._alone
        # The thread must not wait: its confirmations make room.
        if not alone.send(refused.record, refused.confirm, wait=False):
            settle(refused.confirm, OutputUnavailable(f"the output {self.topic!r} is full"))

    def _retire(self, producer: KafkaProducer) -> None:
        producer.retire()
        self._retired.append(producer)


def _refuse_for_good(refused: KafkaRefusal) -> None:
    reason = refused.error.str()
    settle(refused.confirm, Unpublishable(f"Kafka refuses the message permanently: {reason}"))


def producer_settings(
    properties: Mapping[str, str], delivery_timeout_ms: int, linger_ms: float
) -> dict[str, str]:
    """The settings of librdkafka. Raises `InvalidInput` for one that breaks the output's guarantees."""
    if problem := delivery_problem(properties, delivery_timeout_ms):
        raise InvalidInput(problem)
    ours = _DEFAULTS | {"acks": "all", "enable.idempotence": "true"}
    if "message.timeout.ms" not in properties:
        ours["delivery.timeout.ms"] = str(delivery_timeout_ms)
    if "queue.buffering.max.ms" not in properties:
        ours["linger.ms"] = str(linger_ms)
    return ours | dict(properties)
