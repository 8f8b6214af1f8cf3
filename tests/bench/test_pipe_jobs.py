"""The measured Spark jobs write and count the right messages."""

from typing import Any, NamedTuple

import pytest

from chronoline.core.message import NewMessage
from chronoline.runtime.clock import SystemClock
from chronoline.stores.factory import open_store
from chronoline.testing.postgres import PostgresServer
from chronoline_bench.harness.agent import AgentProcess
from chronoline_bench.pipe import jobs
from tests.spark.environment import python_of_workers

pytestmark = pytest.mark.timeout(300)

DAY_MS = 86_400_000
MINUTE_MS = 60_000

Figures = dict[str, list[float]]


class Measured(NamedTuple):
    now_ms: int
    own: str
    raw: str
    """The stores of the bulk job: one for the written and one for the copied messages."""
    bulk: Figures
    forecast: Figures


@pytest.fixture(scope="module")
def measured(postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Measured:
    """Runs both jobs, one after the other, on one Spark."""
    folder = tmp_path_factory.mktemp("jobs")
    now_ms = SystemClock().now_ms()
    own, raw = (postgres_server.create_database(f"jobs_{name}") for name in ("own", "raw"))
    for url in (own, raw):
        with open_store(url) as store:
            store.create_topic("campaign", now_ms=now_ms)
    bulk: dict[str, Any] = {
        **{"store": own, "topic": "campaign", "raw": raw, "raw_topic": "campaign"},
        **{"messages": 300, "rounds": 1},
    }
    coming = f"sqlite:///{folder}/forecast.db"
    start_ms = now_ms // MINUTE_MS * MINUTE_MS + DAY_MS
    with open_store(coming) as store:
        topic = store.create_topic("coming", now_ms=now_ms)
        messages = [
            NewMessage(id=f"m{number}", due=start_ms + number * 1_000) for number in range(150)
        ]
        assert all(each.done for each in store.create(topic.uid, messages, now_ms=now_ms))
    forecast: dict[str, Any] = {
        **{"store": coming, "topic": "coming", "rounds": 1},
        **{"start_ms": start_ms, "end_ms": start_ms + 5 * MINUTE_MS},
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", python_of_workers(folder))
        with AgentProcess(jobs, folder / "log") as agent:
            return Measured(
                now_ms, own, raw, agent.ask("bulk", **bulk), agent.ask("forecast", **forecast)
            )


def test_frame_is_written_and_rows_are_copied(measured: Measured) -> None:
    assert {name: len(values) for name, values in measured.bulk.items()} == {
        "write": 1,
        "copy_1": 1,
        "copy_2": 1,
    }
    assert all(values[0] > 0 for values in measured.bulk.values())
    now_ms = measured.now_ms
    for url, wanted in ((measured.own, 300 + jobs.WARM_UP), (measured.raw, 2 * 300)):
        with open_store(url) as store:
            topic = store.find_topic("campaign")
            assert topic is not None
            counts = store.count(
                topic.uid,
                topic.all_buckets,
                start=now_ms,
                end=now_ms + 3 * DAY_MS,
                now_ms=now_ms,
            )
            assert counts.total == counts.waiting == wanted


def test_both_forecasts_count_the_same(measured: Measured) -> None:
    figures = measured.forecast
    assert figures["counted"] == figures["grouped"] == [150]
    # The store also returns the minutes without a message.
    assert (figures["counted_steps"], figures["grouped_steps"]) == ([5], [3])
    assert figures["counted_ms"][0] > 0
    assert figures["grouped_ms"][0] > 0
