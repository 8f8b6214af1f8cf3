"""Publishing on a Kafka topic.

State model. An output sends on a *line*: a producer of librdkafka with a thread that waits in its `poll` and
hands out what became of the records. A record is on one line, from which it comes back within the delivery
time-out, or it is confirmed.

Whose fault it is. Kafka refuses a whole batch for one bad record in it, or because together they are larger
than the topic allows. So what was refused is sent once more on a second line, on which each record is a
batch of its own; what is refused there is `Unpublishable`. Everything else is the output's failure.

A line whose idempotence is broken for good takes no more. It is retired, hands out what it still has, and the
next record opens another.
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
from chronoline.pipe.outputs.kafka_producer import Line, Refused, tell
from chronoline.pipe.properties import delivery_problem

_RENEW_S = 1.0
"""A line that breaks sooner was not worth its opening: records are sent back until then."""
_LAST_ANSWERS_S = 1.0

_DEFAULTS = {
    # Keys land where Java's client puts them; without a key they are spread.
    "partitioner": "murmur2_random",
    # The topic says how large a record may be, not we: a message can have 64 MiB and its headers.
    "message.max.bytes": "80000000",
    # Bytes bound the queue, and it has room for the largest.
    "queue.buffering.max.kbytes": "131072",
    "queue.buffering.max.messages": "100000",
    # A broker that comes back is found at once, not after ten seconds.
    "reconnect.backoff.ms": "50",
    "reconnect.backoff.max.ms": "500",
    "socket.nagle.disable": "true",
    # While two requests are under way, what comes meanwhile keeps company in the next. With more of them, at
    # thousands a second, nearly each record is a request of its own.
    "max.in.flight.requests.per.connection": "2",
}
_ALONE = {"batch.num.messages": "1"}


class KafkaOutput(Output):
    """A topic of Kafka.

    `properties` are librdkafka's, `bootstrap.servers` among them. A record is acknowledged when all replicas
    in sync have it (`acks=all`), and idempotence is on unless they say otherwise. After `delivery_timeout_ms`
    a record that was not acknowledged is given up; keep that below the time for which the message is held.
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
        # Guards what follows.
        self._lock = threading.Lock()
        self._closed = False
        self._renewed_s = time.monotonic()
        self._retired: list[Line] = []
        self._alone: Line | None = None
        # Read without the lock: who sees one that takes no more asks for another.
        self._line = Line(topic, self._settings, self._send_alone)

    def publish(self, record: OutRecord, confirm: Confirm) -> None:
        line = self._line
        while not line.send(record, confirm):
            try:
                line = self._renewed(line)
            except OutputUnavailable as error:
                tell(confirm, error)
                return

    def flush(self, timeout_s: float) -> int:
        give_up_s = time.monotonic() + timeout_s
        # In this order: what is refused goes from a line to one behind it.
        return sum(line.flush(give_up_s - time.monotonic()) for line in self._lines())

    def close(self) -> None:
        """Takes no longer than the delivery time-out: then every record is given up."""
        with self._lock:
            self._closed = True
        self.flush(self._close_s)
        for line in self._lines():
            line.close()

    def _lines(self) -> list[Line]:
        with self._lock:
            self._retired = [line for line in self._retired if not line.is_over()]
            return [*self._retired, self._line, *([self._alone] if self._alone else [])]

    def _renewed(self, broken: Line) -> Line:
        """A line that takes more. Raises `OutputUnavailable` if there is to be none for now."""
        with self._lock:
            if self._closed:
                raise OutputUnavailable(f"the output {self.topic!r} is closed")
            if self._line is broken:
                if time.monotonic() < self._renewed_s + _RENEW_S:
                    raise OutputUnavailable(f"the producer for {self.topic!r} broke: {broken.why}")
                self._renewed_s = time.monotonic()
                self._retire(broken)
                self._line = Line(self.topic, self._settings, self._send_alone)
            return self._line

    def _send_alone(self, refused: Refused) -> None:
        """Called by the thread of a line."""
        with self._lock:
            if self._alone is not None and self._alone.why:
                self._retire(self._alone)
                self._alone = None
            if self._alone is None:
                self._alone = Line(self.topic, self._settings | _ALONE, _refuse_for_good)
            alone = self._alone
        # The thread must not wait: it hands out what makes room.
        if not alone.send(refused.record, refused.confirm, wait=False):
            tell(refused.confirm, OutputUnavailable(f"the output {self.topic!r} is full"))

    def _retire(self, line: Line) -> None:
        line.retire()
        self._retired.append(line)


def _refuse_for_good(refused: Refused) -> None:
    reason = refused.error.str()
    tell(refused.confirm, Unpublishable(f"Kafka can never take the message: {reason}"))


def producer_settings(
    properties: Mapping[str, str], delivery_timeout_ms: int, linger_ms: float
) -> dict[str, str]:
    """What librdkafka is given. Raises `InvalidInput` for what would break the output's promise."""
    if problem := delivery_problem(properties, delivery_timeout_ms):
        raise InvalidInput(problem)
    ours = _DEFAULTS | {"acks": "all", "enable.idempotence": "true"}
    if "message.timeout.ms" not in properties:
        ours["delivery.timeout.ms"] = str(delivery_timeout_ms)
    if "queue.buffering.max.ms" not in properties:
        ours["linger.ms"] = str(linger_ms)
    return ours | dict(properties)
