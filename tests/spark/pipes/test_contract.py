"""The contract for single records, on one running pipe for each place."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from chronoline.core.topic import TopicSettings
from chronoline.log import Log
from chronoline.pipe.intake import ORIGIN_HEADER, REASON_HEADER
from chronoline.pipe.kafka import KafkaTopic
from chronoline.pipe.receipts import DDL, Receipts
from chronoline.pipe.spark.pipe import Pipe
from chronoline.runtime.child_process import free_addresses
from tests.spark.pipes.places import OnServers, Place, Record
from tests.spark.pipes.scene import HOUR_MS, Scene, now_ms, over, spread, until

pytestmark = pytest.mark.timeout(300)

EVERY_BYTE = bytes(range(256))
LARGEST_OUT_BYTES = 100_000
MAX_ATTEMPTS = 2

# Kafka's own examples for its partitioner, with their hashes.
MURMUR2 = {
    b"21": -973_932_308,
    b"foobar": -790_332_482,
    b"a-little-bit-long-string": -985_981_536,
    b"a-little-bit-longer-string": -1_486_304_829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58_897_971,
    b"abc": 479_470_107,
}


class Running(NamedTuple):
    scene: Scene
    pipe: Pipe
    metrics: str
    receipts: Path


@pytest.fixture(scope="module")
def running(
    place: Place, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    receipts = tmp_path_factory.mktemp("receipts")
    (metrics,) = free_addresses(1)
    with Scene(place, output={"max_message_bytes": str(LARGEST_OUT_BYTES)}) as scene:
        few = TopicSettings(max_attempts=MAX_ATTEMPTS, dedupe_ms=0)
        scene.store.create_topic(scene.name, few, now_ms=now_ms())
        chosen = scene.settings(
            dead_letters=place.table(scene.dead_letters), receipts=str(receipts), metrics=metrics
        )
        with Pipe(chosen, spark) as pipe:
            yield Running(scene, pipe, metrics, receipts)


_names = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
_headers = st.tuples(
    _names.filter(lambda name: name != "tag" and not name.startswith("chronos")),
    st.none() | st.binary(max_size=20),
)
_records = st.builds(
    Record,
    st.lists(_headers, max_size=5).map(tuple),
    st.none() | st.binary(max_size=30),
    st.none() | st.binary(max_size=200),
)


def test_key_value_and_headers_come_out_byte_for_byte(running: Running) -> None:
    scene = running.scene
    repeated = (("b", b"1"), ("a", EVERY_BYTE), ("b", None), ("", b""), ("ä", b"2"), ("b", b"1"))
    records = [
        Record(repeated, EVERY_BYTE, EVERY_BYTE * 100),
        Record((), None, None),
        Record((), b"", b""),
        Record((), b"tombstone", None),
    ]

    @given(_records)
    @settings(max_examples=100, deadline=None, database=None)
    def collect(record: Record) -> None:
        records.append(record)

    collect()
    due_ms = now_ms() + 1_000
    tags = scene.send_all(
        scene.record(f"any-{n}", due_ms, headers=each.headers, key=each.key, value=each.value)
        for n, each in enumerate(records)
    )
    scene.wait_out(tags)
    for tag, given_record in zip(tags, records, strict=True):
        out = scene.fired_as(tag)
        assert out.headers == (*given_record.headers, ("tag", tag.encode()))
        assert (out.key, out.value) == (given_record.key, given_record.value)


def test_waiting_id_is_ignored_and_fired_id_is_new(running: Running) -> None:
    scene = running.scene
    before = scene.tally.ignored
    first, twin, overdue_twin = scene.send_all(
        scene.record("again", due_ms, partition=0)
        for due_ms in (now_ms() + 1_500, now_ms() + HOUR_MS, now_ms() - HOUR_MS)
    )
    scene.ignored |= {twin, overdue_twin}
    scene.wait_out([first])
    until(lambda: first not in scene.waiting(), "it is forgotten")
    later = scene.send("again", now_ms())
    scene.wait_out([later])
    assert scene.tally.ignored == before + 2
    assert scene.ignored.isdisjoint(scene.out())


def test_overdue_message_fires_at_once(running: Running) -> None:
    scene = running.scene
    due_ms = now_ms() + 2_000
    soon = scene.send("soon", due_ms)
    overdue = scene.send("overdue", 0)
    scene.wait_out([overdue])
    scene.wait_out([soon])
    assert now_ms() >= due_ms


def test_malformed_records_go_to_the_dead_letter_topic(running: Running) -> None:
    scene = running.scene
    wrong = {
        scene.send("no-deadline", key=b"k", headers=[("x", None)], partition=1): (
            "header chronosDeadline is missing"
        ),
        scene.send(None, now_ms(), value=EVERY_BYTE): "header chronosMessageId is missing",
        scene.send("x" * 129, now_ms()): "id has 129 characters; at most 128 are allowed",
        scene.send("what", action=b"explode"): (
            "header chronosAction is 'explode'; write cancel or reschedule, or leave it out"
        ),
    }
    if isinstance(scene.place, OnServers):  # a log does not take that many
        many = scene.send("many", now_ms(), headers=[("x", b"")] * 256)
        wrong[many] = "there are 257 headers; at most 256 are allowed"
        _check_poison(scene)
    fine = scene.send("fine", now_ms())
    until(lambda: wrong.keys() <= scene.relayed().keys(), "all are dead letters")
    scene.wait_out([fine])
    for tag, reason in wrong.items():
        letter, sent = scene.relayed()[tag], scene.sent[tag]
        assert (letter.key, letter.value) == (sent.key, sent.value)
        *own, why, (whence, where) = letter.headers
        assert tuple(own) == sent.headers
        assert why == (REASON_HEADER, reason.encode())
        topic, partition, offset = (where or b"").decode().split("/")
        assert (whence, topic) == (ORIGIN_HEADER, scene.input)
        assert int(partition) in range(2)
        assert int(offset) in range(len(scene.sent))
    until(lambda: not scene.letters(), "the store has them no more")


def _check_poison(scene: Scene) -> None:
    """A message that the output never takes; whatever comes from one log fits into another."""
    poison = scene.send("poison", now_ms(), value=bytes(LARGEST_OUT_BYTES + 1))
    until(lambda: poison in scene.relayed(), "it is a dead letter")
    letter = scene.relayed()[poison]
    assert letter.value == scene.sent[poison].value
    assert letter.headers[-1] == (REASON_HEADER, b"attempts")


def test_the_longest_ids_of_the_contract_come_through(running: Running) -> None:
    scene = running.scene
    tags = [scene.send(letter * 128, now_ms()) for letter in ("x", "é", "😀")]
    scene.wait_out(tags)
    assert [scene.fired_as(tag).value for tag in tags] == [None] * 3


def test_headers_cancel_and_reschedule_waiting_messages(running: Running) -> None:
    scene = running.scene
    before = scene.tally
    hour_ms = now_ms() + HOUR_MS
    gone, moved, stays = scene.send_all(
        scene.record(name, hour_ms, partition=0) for name in ("gone", "moved", "stays")
    )
    scene.cancelled.add(gone)
    scene.send_all(
        [
            scene.record("gone", action=b"cancel", partition=0),
            scene.record("moved", now_ms() + 500, action=b"reschedule", partition=0),
            scene.record("gone", action=b"cancel", partition=0),
            scene.record("nobody", hour_ms, action=b"reschedule", partition=0),
        ]
    )
    scene.wait_out([moved])
    tally = scene.tally
    assert tally.cancelled == before.cancelled + 1
    assert tally.rescheduled == before.rescheduled + 1
    assert tally.missed == before.missed + 2
    waiting = scene.waiting()
    assert stays in waiting
    assert gone not in waiting


def test_keys_land_where_the_java_client_puts_them(running: Running) -> None:
    """A log has the same rule."""
    scene = running.scene
    tags = scene.send_all(scene.record(f"key-{key!r}", now_ms(), key=key) for key in MURMUR2)
    scene.wait_out(tags)
    for tag, hashed in zip(tags, MURMUR2.values(), strict=True):
        assert scene.fired_as(tag).partition == (hashed & 0x7FFFFFFF) % 2


def test_positions_are_shown_to_the_tools_of_the_input(running: Running) -> None:
    scene = running.scene
    scene.wait_taken_in()
    place = scene.settings().input
    if isinstance(scene.place, OnServers):
        with KafkaTopic(place) as topic:
            until(lambda: topic.committed(scene.name) == topic.latest(), "all is committed")
    else:
        with Log(place.log) as log:
            until(lambda: [each.lag for each in log.groups(place.topic)] == [0, 0], "all is shown")
            assert {each.group for each in log.groups(place.topic)} == {scene.name}


def test_receipts_are_parquet_and_name_the_node(running: Running, spark: SparkSession) -> None:
    scene = running.scene
    due_ms = now_ms() + 300
    scene.wait_out([scene.send("receipt", due_ms)])

    def found() -> list[tuple[str, float, bool]]:
        Receipts(running.receipts.as_uri()).collect(0)  # the pipe does it once a minute
        receipts = spark.read.schema(DDL).parquet(str(running.receipts)).filter("id = 'receipt'")
        rows = receipts.selectExpr("node", "lateness_ms", "redelivered").collect()
        return [tuple(row) for row in rows]

    until(found, "the receipt is there")
    ((node, late_ms, redelivered),) = found()
    assert node == running.pipe.node
    assert late_ms >= 0
    assert not redelivered


def test_only_messages_not_yet_due_wait(running: Running) -> None:
    """1,000 a second come and go, and leave nothing behind; what is due much later stays."""
    scene = running.scene
    scene.account()
    before = set(scene.waiting())
    far = scene.send_all(spread(scene, "far", [now_ms() + HOUR_MS] * 500))
    scene.wait_out(scene.send_all(spread(scene, "near", over(3_000, 3_000))))
    until(lambda: set(scene.waiting()) == before | set(far), "what was fired is deleted")
    assert scene.out().keys().isdisjoint(far)


def test_metrics_and_status_agree_with_what_was_sent(running: Running) -> None:
    scene = running.scene
    scene.account()

    def metrics() -> dict[str, float]:
        with urllib.request.urlopen(f"http://{running.metrics}/metrics") as answer:
            lines = answer.read().decode().splitlines()
        found: dict[str, float] = {}
        for line in lines:
            if not line.startswith("#"):
                name, _, value = line.rpartition(" ")
                found[name] = float(value)
        return found

    labels = f'{{node="{running.pipe.node}",pipe="{scene.name}"}}'
    fired = f"chronoline_pipe_fired_total{labels}"
    until(lambda: metrics().get(fired) == len(scene.fired), "what came out is counted")
    scraped, status = metrics(), scene.status()
    assert scraped[f'chronoline_pipe_waiting{{pipe="{scene.name}"}}'] == len(scene.waiting())
    assert scraped[f'chronoline_pipe_input_lag{{pipe="{scene.name}"}}'] == 0
    records = f'chronoline_pipe_records_total{{outcome="accepted",pipe="{scene.name}"}}'
    assert scraped[records] == status.tally.accepted
    (node,) = status.nodes
    assert node.name == running.pipe.node
    assert node.alive
    assert status.total.restarts == 0


def test_every_message_is_accounted_for_once(running: Running) -> None:
    """The last test of this module: it checks the records of all the others."""
    assert not running.scene.account()
    assert running.scene.held() == 0
