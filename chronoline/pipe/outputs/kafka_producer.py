"""One producer of librdkafka, and the thread that confirms its records.

The thread waits in `poll` and does nothing else, so it confirms a record as soon as it is acknowledged. No
other thread polls: every confirmation comes from this thread, or from within `send`.

librdkafka's queue is bounded by bytes and by records. While it is full `send` waits, and the thread wakes it
after each confirmation.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from chronoline.core.errors import InvalidInput, OutputUnavailable, Unpublishable
from chronoline.pipe import librdkafka
from chronoline.pipe.outputs.contract import Confirm, OutRecord

_POLL_S = 0.1
"""The longest time until the thread notices that the producer is closed."""
_JOIN_S = 10.0

_REFUSALS = frozenset(
    {
        KafkaError.INVALID_RECORD,
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError._INVALID_DIFFERENT_RECORD,
    }
)
"""Errors of a record: this one, or another one in its batch."""

logger = logging.getLogger(__name__)


class KafkaRefusal(NamedTuple):
    """An unconfirmed record that was refused, because of itself or of another one in its batch."""

    record: OutRecord
    confirm: Confirm
    error: KafkaError


class KafkaProducer:
    """Sends records until it is retired, closed or broken. Thread-safe.

    Records that the broker refuses go to `refused`, which must confirm them; all others are confirmed here.
    """

    def __init__(
        self, topic: str, settings: Mapping[str, str], refused: Callable[[KafkaRefusal], None]
    ) -> None:
        self.why = ""
        """The reason why it accepts no more records; empty while it does. Never reset."""
        self._topic = topic
        self._refused = refused
        # Held while a record is passed to librdkafka, so that none is passed after the end.
        self._lock = threading.Lock()
        self._handed_out = threading.Condition(self._lock)
        self._waiting = 0
        self._ending = False
        self._producer = _open_producer(settings, self._failed)
        self._thread = threading.Thread(target=self._serve, name="chronoline-kafka", daemon=True)
        self._thread.start()

    def send(self, record: OutRecord, confirm: Confirm, *, wait: bool = True) -> bool:
        """Sends a record. Returns false if the producer accepts none, or, without `wait`, if it is full."""
        done = partial(self._done, record, confirm)
        try:
            with self._lock:
                if self.why:
                    return False
                try:
                    self._produce(record, done)
                except BufferError:
                    return wait and self._produce_when_there_is_room(record, done)
        except KafkaException as error:
            return self._not_taken(error.args[0], confirm)
        except (TypeError, ValueError) as error:
            settle(confirm, Unpublishable(f"Kafka cannot hold the message: {error}"))
        except Unpublishable as error:
            settle(confirm, error)
        return True

    def flush(self, timeout_s: float) -> int:
        """Waits until all records are confirmed. Returns the number of unconfirmed ones."""
        with self._lock:
            self._waiting += 1
            self._handed_out.wait_for(lambda: not len(self._producer), max(0.0, timeout_s))
            self._waiting -= 1
            return len(self._producer)

    def retire(self) -> None:
        """Accepts no more records, and ends when all are confirmed."""
        self._end("it is retired")

    def close(self) -> None:
        """Accepts no more records, and gives up the unconfirmed ones. May be called twice."""
        self._end("it is closed")
        self._producer.purge(in_queue=True, in_flight=True, blocking=False)
        self._thread.join(_JOIN_S)

    def is_over(self) -> bool:
        """Whether it has ended: no more confirmations will come."""
        return not self._thread.is_alive()

    def _end(self, why: str) -> None:
        with self._lock:
            self.why = self.why or why
            self._ending = True
            self._handed_out.notify_all()

    def _produce(
        self, record: OutRecord, done: Callable[[KafkaError | None, Message], None]
    ) -> None:
        key, value, headers = record
        for name, _ in headers:
            # librdkafka would cut a name at a NUL, and its binding crashes on one that is not UTF-8.
            if "\0" in name:
                raise Unpublishable(f"the header name {name!r} contains a NUL character")
            if not name.isascii():
                name.encode()
        self._producer.produce(
            self._topic, value, key, on_delivery=done, headers=list(headers) if headers else None
        )

    def _produce_when_there_is_room(
        self, record: OutRecord, done: Callable[[KafkaError | None, Message], None]
    ) -> bool:
        """The caller holds the lock. Returns false if the producer stops accepting records meanwhile."""
        self._waiting += 1
        try:
            while not self.why:
                is_empty = not len(self._producer)
                try:
                    self._produce(record, done)
                    return True
                except BufferError:
                    if is_empty:
                        raise Unpublishable(
                            "the message is larger than the queue of its producer: "
                            "queue.buffering.max.kbytes"
                        ) from None
                self._handed_out.wait()
            return False
        finally:
            self._waiting -= 1

    def _not_taken(self, error: KafkaError, confirm: Confirm) -> bool:
        """Handles an error of `produce`, which concerns the producer or the record."""
        if error.code() == KafkaError._FATAL:
            self._failed(error)
            return False
        if error.code() in _REFUSALS:
            settle(confirm, Unpublishable(f"Kafka refuses the message permanently: {error.str()}"))
        else:
            settle(
                confirm, OutputUnavailable(f"{self._topic!r} cannot be published on: {error.str()}")
            )
        return True

    # The thread

    def _serve(self) -> None:
        while not self._ending or len(self._producer):
            self._producer.poll(_POLL_S)
            if self._waiting:
                with self._lock:
                    self._handed_out.notify_all()

    def _done(
        self, record: OutRecord, confirm: Confirm, error: KafkaError | None, _: Message
    ) -> None:
        if error is None:
            settle(confirm, None)
        elif error.code() in _REFUSALS:
            self._refused(KafkaRefusal(record, confirm, error))
        else:
            if error.fatal():
                self._failed(error)
            reason = f"{self._topic!r} did not acknowledge the message: {error.str()}"
            settle(confirm, OutputUnavailable(reason))

    def _failed(self, error: KafkaError) -> None:
        if error.fatal() or error.code() == KafkaError._FATAL:
            logger.warning(
                "the producer for %r accepts no more records: %s", self._topic, error.str()
            )
            self.why = self.why or error.str()
        else:
            logger.info("the producer for %r: %s", self._topic, error.str())


def _open_producer(settings: Mapping[str, str], failed: Callable[[KafkaError], None]) -> Producer:
    error_cb = librdkafka.error_callback(failed)
    try:
        return Producer({**settings, "error_cb": error_cb, "logger": librdkafka.logger})
    except KafkaException as error:
        raise InvalidInput(
            f"librdkafka refuses Kafka's properties: {error.args[0].str()}"
        ) from error


def settle(confirm: Confirm, error: BaseException | None) -> None:
    """Calls `confirm` and logs its exceptions, which must not end the thread of a producer."""
    try:
        confirm(error)
    except Exception:
        logger.exception("a confirmation failed")
