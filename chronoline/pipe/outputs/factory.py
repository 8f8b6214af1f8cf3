"""The choice of an output's implementation."""

from __future__ import annotations

from chronoline.core.errors import TopicNotFound
from chronoline.log import Log
from chronoline.pipe.outputs.contract import DEFAULT_DELIVERY_TIMEOUT_MS, Output
from chronoline.pipe.outputs.log import LogOutput
from chronoline.pipe.places import Place
from chronoline.runtime.extras import needs


def open_output(
    place: Place,
    *,
    delivery_timeout_ms: int = DEFAULT_DELIVERY_TIMEOUT_MS,
    linger_ms: float = 0,
) -> Output:
    """Opens a topic to publish on.

    `delivery_timeout_ms` bounds the time to an acknowledgement; keep it below the hold time. `linger_ms` is
    the time to wait for more records before a batch is sent.
    """
    if place.kind == "log":
        return _open_log(place, delivery_timeout_ms, linger_ms)
    with needs("Kafka", "kafka"):
        from chronoline.pipe.outputs.kafka import KafkaOutput  # noqa: PLC0415 - chosen by place
    return KafkaOutput(
        place.topic,
        place.librdkafka(),
        delivery_timeout_ms=delivery_timeout_ms,
        linger_ms=linger_ms,
    )


def _open_log(place: Place, delivery_timeout_ms: int, linger_ms: float) -> LogOutput:
    log = Log(place.log, linger_ms=linger_ms)
    try:
        return LogOutput(log, place.topic, room_timeout_s=delivery_timeout_ms / 1000, owns_log=True)
    except TopicNotFound as error:
        log.close()
        raise TopicNotFound(place.log_problem()) from error
    except BaseException:
        log.close()
        raise
