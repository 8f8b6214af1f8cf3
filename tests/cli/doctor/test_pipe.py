"""`chronoline doctor --pipe`: what a pipe would use, without starting Spark."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from chronoline.cli.doctor.checks import CHECK_S
from chronoline.log import Log
from chronoline.pipe.kafka import DEFAULT_TIMEOUT_S
from tests.cli.doctor.conftest import Doctor


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """The settings of a pipe whose topics are there."""
    with Log(f"file://{tmp_path}/log") as log:
        log.create_topic("in", partitions=1)
        log.create_topic("out", partitions=1)
    path = tmp_path / "pipe.toml"
    path.write_text(f"""
        name = "first"
        store = "sqlite:///{tmp_path}/pipe.db"
        [input]
        topic = "in"
        log = "{tmp_path}/log"
        [output]
        topic = "out"
        log = "{tmp_path}/log"
    """)
    return path


def test_pipe_that_can_run(doctor: Doctor, config: Path) -> None:
    found = doctor("--pipe", str(config), "--timeout", "30")
    assert {part for part, each in found.items() if each["state"] == "problem"} == set()
    assert {"pipe", "pipe's store", "input", "output", "Java", "Spark"} <= found.keys()
    assert "settings" not in found  # of a node, which nobody asked for
    assert not (config.parent / "pipe.db").exists()


def test_missing_topic_says_how_to_create_it(doctor: Doctor, config: Path) -> None:
    config.write_text(config.read_text().replace('"out"', '"missing"'))
    assert "chronoline log create missing" in doctor("--pipe", str(config))["output"]["words"]


def test_missing_kafka_library_is_one_line(
    doctor: Doctor, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = f'log = "{config.parent}/log"'
    text = config.read_text().replace(log, 'kafka = {"bootstrap.servers" = "127.0.0.1:1"}', 1)
    config.write_text(text)
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    found = doctor("--pipe", str(config), "--timeout", "1")["pipe"]
    assert found["words"] == "a topic is on Kafka, and confluent_kafka is not installed"
    assert found["remedy"] == "pip install 'chronoline[kafka]'"


def test_kafka_has_time_to_say_why_it_cannot_be_reached() -> None:
    assert CHECK_S >= DEFAULT_TIMEOUT_S + 2


def test_missing_extras_are_one_command(
    doctor: Doctor, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = re.sub(
        r"(?m)^ *store = .*$", 'store = "postgresql://127.0.0.1:1/x"', config.read_text()
    )
    config.write_text(store)
    monkeypatch.setitem(sys.modules, "psycopg_pool", None)
    monkeypatch.setitem(sys.modules, "pandas", None)
    found = doctor("--pipe", str(config), "--timeout", "1")["pipe"]
    assert found["words"].endswith(
        "the store is PostgreSQL, and pandas, psycopg_pool are not installed"
    )
    assert found["remedy"] == "pip install 'chronoline[spark,postgres]'"


def test_jars_of_another_spark_are_a_problem(
    doctor: Doctor, config: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    assert "there are none" in doctor("--pipe", str(config))["Spark"]["words"]
    (tmp_path / "spark" / "jars").mkdir(parents=True)
    (tmp_path / "spark" / "jars" / "spark-core_2.13-3.5.1.jar").touch()
    found = doctor("--pipe", str(config))["Spark"]
    assert found["state"] == "problem"
    assert "pyspark==3.5.1" in found["remedy"]


def test_jars_of_the_settings_are_looked_for(doctor: Doctor, config: Path, tmp_path: Path) -> None:
    text = config.read_text()
    config.write_text(f'{text}\n[spark.conf]\n"spark.jars" = "{tmp_path}/my.jar"\n')
    assert "my.jar" in doctor("--pipe", str(config))["Spark's jars"]["words"]
    (tmp_path / "my.jar").touch()
    assert doctor("--pipe", str(config))["Spark's jars"]["state"] == "ok"
    config.write_text(f'{text}\n[spark.conf]\n"spark.jars.packages" = "a:b:1"\n')
    assert doctor("--pipe", str(config))["Spark's jars"]["state"] == "warning"


def test_wrong_settings_of_a_pipe(doctor: Doctor, config: Path) -> None:
    config.write_text("name = 7\n")
    assert doctor("--pipe", str(config))["pipe"]["state"] == "problem"
