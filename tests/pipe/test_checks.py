"""The check of a pipe: each part is tried, and each problem is reported with advice."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from chronoline.core.errors import InvalidInput
from chronoline.core.topic import TopicSettings
from chronoline.log import Log
from chronoline.pipe.checks import Finding, check_before_spark, check_pipe
from chronoline.pipe.settings import PipeSettings
from chronoline.stores.factory import open_store
from chronoline_bench.servers.kafka import KafkaServer
from tests.pipe.conftest import NewKafkaTopic


def settings(folder: Path, **more: Any) -> PipeSettings:
    log = str(folder / "log")
    flags = {
        "name": "p",
        "store": f"sqlite:///{folder}/pipe.db",
        "input": {"topic": "in", "log": log},
        "output": {"topic": "out", "log": log},
    }
    return PipeSettings.load(None, {}, flags | more)


def findings(chosen: PipeSettings) -> dict[str, Finding]:
    return {each.part: each for each in check_pipe(chosen, lambda: "8 slots")}


def test_runnable_pipe_passes(tmp_path: Path) -> None:
    chosen = settings(tmp_path)
    with Log(chosen.input.log) as log:
        log.create_topic("in", partitions=1)
        log.create_topic("out")
    open_store(chosen.store).close()
    found = findings(chosen)
    assert all(each.fine for each in found.values()), found
    assert found["store"].words == "can be read and written"
    assert found["input"].words == "'in' has 1 partition"
    assert found["output"].words == "'out' is there"
    assert found["dead letters"].words == "no topic is set: they are kept in the store"
    assert found["Spark"].words == "8 slots"
    with open_store(chosen.store) as store:  # nothing is left of the check
        assert store.list_topics() == []
        assert store.members("check of p") == []


def test_check_creates_nothing(tmp_path: Path) -> None:
    found = findings(settings(tmp_path, store=f"sqlite:///{tmp_path}/new/pipe.db"))
    assert found["store"].fine
    assert found["store"].words == (
        f"'{tmp_path}/new/pipe.db' is not there yet: the pipe will make it, and its folder"
    )
    assert f"there is no '{tmp_path}/log', and so there is no topic 'in'" in found["input"].words
    assert f"there is no '{tmp_path}/log', and so there is no topic 'out'" in found["output"].words
    assert list(tmp_path.iterdir()) == []


def test_store_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    found = findings(settings(tmp_path, store=f"sqlite:///{tmp_path}/file/new/pipe.db"))
    assert not found["store"].fine
    assert f"cannot be made: '{tmp_path}/file' cannot be written" in found["store"].words


def test_check_before_spark_covers_all_other_parts(tmp_path: Path) -> None:
    found = list(check_before_spark(settings(tmp_path)))
    assert [each.part for each in found] == ["store", "input", "output", "dead letters", "Java"]
    assert [each.part for each in found if not each.fine] == ["input", "output"]
    assert not any(each.bearable for each in found)


def test_topics_are_checked_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = threading.Barrier(2)

    def check(*_: object) -> str:
        both.wait(timeout=60)
        return "was there with the other"

    monkeypatch.setattr("chronoline.pipe.checks.check_input", check)
    monkeypatch.setattr("chronoline.pipe.checks.check_output", check)
    found = findings(settings(tmp_path))
    assert found["input"].words == found["output"].words == "was there with the other"


def test_wrong_clock_does_not_prevent_a_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = settings(tmp_path)
    open_store(chosen.store).close()
    monkeypatch.setattr("chronoline.stores.sqlite.SqliteStore.clock_ms", lambda _: 1)
    store = findings(chosen)["store"]
    assert "set the clocks of both machines" in store.words
    assert (store.fine, store.bearable) == (False, True)


def test_every_problem_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = str(tmp_path / "log")
    chosen = settings(tmp_path, dead_letters={"topic": "dead", "log": log})
    with open_store(chosen.store) as store:
        store.create_topic("p", TopicSettings(buckets=7), now_ms=1)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    found = findings(chosen)
    assert not any(each.fine for each in found.values())
    assert "was made with buckets = 7, which is fixed, not with 64" in found["store"].words
    assert "chronoline log create in" in found["input"].words
    assert "'out'" in found["output"].words
    assert "'dead'" in found["dead letters"].words
    assert found["Java"].words.startswith("Spark needs Java 17 or newer")
    assert found["Spark"].words == "not tried: it needs Java"


def test_topic_with_a_target_is_refused(tmp_path: Path) -> None:
    chosen = settings(tmp_path)
    with open_store(chosen.store) as store:
        store.create_topic("p", TopicSettings(target="https://example.com/"), now_ms=1)
    found = findings(chosen)["store"]
    assert (
        found.words == "the timeline 'p' has a target, which gets its messages; name another pipe"
    )
    assert not found.fine


def test_problems_of_spark_are_reported(tmp_path: Path) -> None:
    def no_slots() -> str:
        raise InvalidInput("Spark has 2 slots, and this pipe needs 3")

    chosen = settings(tmp_path)
    *_, spark = check_pipe(chosen, no_slots)
    assert spark == Finding("Spark", "not tried: it starts slowly; mend the rest first", False)
    with Log(chosen.input.log) as log:
        log.create_topic("in")
        log.create_topic("out")
    *_, spark = check_pipe(chosen, no_slots)
    assert spark == Finding("Spark", "Spark has 2 slots, and this pipe needs 3", False)


@pytest.mark.parametrize(
    ("version", "fine"), [("1.8.0_392", False), ("17.0.2", True), ("21", True), ("", False)]
)
def test_java_must_be_new_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, fine: bool
) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2022-01-18' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert findings(settings(tmp_path))["Java"].fine == fine


def test_topics_of_kafka_are_asked_for(
    tmp_path: Path, kafka_server: KafkaServer, new_topic: NewKafkaTopic
) -> None:
    kafka = {"bootstrap.servers": kafka_server.bootstrap}
    found = findings(
        settings(
            tmp_path,
            input={"topic": new_topic(3), "kafka": kafka},
            output={"topic": new_topic(), "kafka": kafka},
            dead_letters={"topic": "nowhere", "kafka": kafka},
        )
    )
    assert found["input"].fine
    assert "has 3 partitions" in found["input"].words
    assert found["output"].fine
    assert "there is no Kafka topic 'nowhere'" in found["dead letters"].words
