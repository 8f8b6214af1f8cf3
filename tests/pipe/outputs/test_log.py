"""Publishing on our log."""

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chronoline.core.errors import (
    OutcomeUnknown,
    OutputUnavailable,
    StoreBusy,
    TopicNotFound,
    Unpublishable,
)
from chronoline.log import Log
from chronoline.log.events import MAX_VALUE_BYTES
from chronoline.pipe.outputs.contract import OutRecord
from chronoline.pipe.outputs.log import LogOutput
from tests.pipe.outputs.confirmations import Confirmations
from tests.pipe.outputs.test_kafka import records

RECORD = OutRecord(b"k", b"v", ())


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with Log(f"file://{tmp_path / 'log'}") as log:
        log.create_topic("t", partitions=1)
        yield log


def published(log: Log) -> list[OutRecord]:
    return [OutRecord(e.key, e.value, e.headers) for e in log.read("t", follow=False)]


@settings(
    max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(records, min_size=20, max_size=60))
def test_every_byte_comes_out(log: Log, batch: list[OutRecord]) -> None:
    before, confirmations = len(published(log)), Confirmations()
    with LogOutput(log, "t") as output:
        for place, each in enumerate(batch):
            output.publish(each, confirmations.of(place))
    assert set(confirmations.wait(0).values()) == {None}
    assert published(log)[before:] == batch


def test_oversized_record_is_refused_alone(log: Log) -> None:
    confirmations = Confirmations()
    with LogOutput(log, "t") as output:
        output.publish(RECORD._replace(value=bytes(MAX_VALUE_BYTES + 1)), confirmations.of("large"))
        output.publish(RECORD, confirmations.of("good"))
    told = confirmations.wait(0)
    assert isinstance(told["large"], Unpublishable)
    assert told["good"] is None


class SlowLog:
    """A log that answers on demand, and is full with one append under way."""

    def __init__(self) -> None:
        self.on_its_way: list[Future[Any]] = []
        self.was_full = threading.Event()

    def topic(self, name: str) -> None:
        pass

    def append_later(self, topic: str, events: list[Any]) -> Future[Any]:
        if self.on_its_way:
            self.was_full.set()
            raise StoreBusy
        self.on_its_way.append(Future())
        return self.on_its_way[-1]


@pytest.fixture
def slow() -> Any:
    return SlowLog()


def test_publish_waits_while_the_log_is_full(slow: Any) -> None:
    confirmations = Confirmations()
    output = LogOutput(slow, "t", room_timeout_s=60)
    output.publish(RECORD, confirmations.of("first"))
    second = confirmations.of("second")
    writer = threading.Thread(target=output.publish, args=[RECORD, second])
    writer.start()
    assert slow.was_full.wait(60)
    assert output.flush(0) == 2
    slow.on_its_way.pop().set_result([])
    writer.join(60)
    assert confirmations.wait_for("first") is None
    slow.on_its_way.pop().set_result([])
    assert confirmations.wait_for("second") is None
    assert output.flush(0) == 0


@pytest.mark.parametrize("error", [OutcomeUnknown(), OSError("no disk")])
def test_failing_log_is_unavailable(slow: Any, error: Exception) -> None:
    confirmations = Confirmations()
    output = LogOutput(slow, "t")
    output.publish(RECORD, confirmations.of("v"))
    slow.on_its_way.pop().set_exception(error)
    assert isinstance(confirmations.wait_for("v"), OutputUnavailable)
    assert output.flush(0) == 0


def test_full_log_is_unavailable(slow: Any) -> None:
    confirmations = Confirmations()
    output = LogOutput(slow, "t", room_timeout_s=0)
    output.publish(RECORD, confirmations.of("first"))
    output.publish(RECORD, confirmations.of("second"))
    assert isinstance(confirmations.wait_for("second", 0), OutputUnavailable)
    assert output.flush(0) == 1


def test_closing_flushes_and_a_closed_output_answers(log: Log) -> None:
    confirmations = Confirmations()
    output = LogOutput(log, "t")
    for place in range(100):
        output.publish(RECORD, confirmations.of(place))
    output.close()
    output.close()
    assert set(confirmations.wait(0).values()) == {None}
    output.publish(RECORD, confirmations.of("late"))
    assert isinstance(confirmations.wait_for("late", 0), OutputUnavailable)
    assert len(published(log)) == 100


def test_missing_topic_is_refused_at_once(log: Log) -> None:
    with pytest.raises(TopicNotFound, match="create it first"):
        LogOutput(log, "nowhere")
