"""Settings from three sources, and tables that a command does not need."""

from __future__ import annotations

from pathlib import Path

import pytest

from chronoline.core.errors import InvalidInput
from chronoline.pipe.places import Place
from chronoline.pipe.settings import PipeSettings, SparkTable
from tests.pipe.given_settings import KAFKA, LEAST, ON_KAFKA, load, problems, write


def test_name_input_and_output_are_sufficient(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = load()
    assert settings.store == f"sqlite:///{tmp_path}/chronoline-data/pipe.db"
    assert settings.input == Place.of_log("in", "file:///tmp/log")
    assert settings.dead_letters is None
    assert (settings.timing_advance_ms, settings.hold_ms, settings.poll_interval_ms) == (
        0,
        5_000,
        100,
    )
    assert (settings.failure_detection_interval_ms, settings.delivery_timeout_ms) == (500, 4_000)
    assert (settings.delay_ms, settings.dedupe_ms) == (None, 0)
    assert settings.spark == SparkTable()


def test_flags_win_over_environment_over_file(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        """
        name = "p"
        hold_ms = 6000
        window_ms = "1s"
        lanes = 3
        [input]
        topic = "in"
        [input.kafka]
        "bootstrap.servers" = "a:1"
        "client.id" = "x"
        [output]
        topic = "out"
        [output.kafka]
        "bootstrap.servers" = "a:1"
        """,
    )
    environ = {
        "CHRONOLINE_PIPE_HOLD_MS": "7s",
        "CHRONOLINE_PIPE_LANES": "4",
        "CHRONOLINE_PIPE_INPUT__KAFKA__BOOTSTRAP_SERVERS": "b:2",
        "CHRONOLINE_PIPE_OUTPUT__TOPIC": "elsewhere",
        "CHRONOLINE_PIPE_SPARK__CONF": '{"spark.driver.memory" = "2g"}',
        "CHRONOLINE_PIPE_CONFIG": "not looked at",
        "CHRONOLINE_LOG": "not ours",
    }
    flags = {"lanes": "5", "input.topic": "other", "ranges": None}
    settings = PipeSettings.load(path, environ, flags)
    assert (settings.window_ms, settings.hold_ms, settings.lanes, settings.ranges) == (
        1_000,
        7_000,
        5,
        1,
    )
    assert settings.input.java() == {"bootstrap.servers": "b:2", "client.id": "x"}
    assert (settings.input.topic, settings.output.topic) == ("other", "elsewhere")
    assert settings.spark.conf == {"spark.driver.memory": "2g"}


def test_the_environment_can_name_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, "lanes = 3")
    settings = PipeSettings.load(None, {"CHRONOLINE_PIPE_CONFIG": str(path)}, LEAST)
    assert settings.lanes == 3


def test_an_empty_variable_takes_an_optional_setting_away(tmp_path: Path) -> None:
    path = write(tmp_path, 'delay = "5s"\nreceipts = "folder"\n[spark]\nmaster = "local[9]"')
    names = ("DELAY", "RECEIPTS", "SPARK__MASTER")
    environ = dict.fromkeys((f"CHRONOLINE_PIPE_{name}" for name in names), "")
    settings = PipeSettings.load(path, environ, LEAST)
    assert (settings.delay_ms, settings.receipts, settings.spark.master) == (None, None, None)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "cannot be read: No such file"),
        (b"x = = 1", "are no TOML: .* line 1"),
        (b"\xff", "UTF-8"),
    ],
)
def test_unreadable_file_is_reported(tmp_path: Path, content: bytes | None, words: str) -> None:
    path = tmp_path / "pipe.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidInput, match=words):
        PipeSettings.load(path, {}, {})


@pytest.mark.parametrize(
    "table",
    [
        '"bootstrap.servers" = "a:1,b:2"',
        '"bootstrap.servers" = ["a:1", "b:2"]',
        '"kafka.bootstrap.servers" = "a:1, b:2"',
        'bootstrap.servers = "a:1,b:2"',
        'kafka.bootstrap.servers = ["a:1", "b:2"]',
    ],
)
def test_kafka_is_named_in_any_of_its_ways(tmp_path: Path, table: str) -> None:
    path = write(
        tmp_path,
        f"""
        [input]
        topic = "in"
        [input.kafka]
        {table}
        "enable.metrics.push" = false
        "request.timeout.ms" = 1000
        """,
    )
    flags = {name: value for name, value in LEAST.items() if name != "input"}
    settings = PipeSettings.load(path, {}, flags)
    assert settings.input.java() == {
        "bootstrap.servers": "a:1,b:2",
        "enable.metrics.push": "false",
        "request.timeout.ms": "1000",
    }


def test_properties_of_the_producer_win(tmp_path: Path) -> None:
    settings = load(output={"topic": "out", **KAFKA, "producer": {"linger.ms": 7}})
    assert settings.output.librdkafka()["linger.ms"] == "7"


def test_a_log_is_a_folder_or_a_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = load(input={"topic": "in", "log": "data/log"})
    assert settings.input.log == (tmp_path / "data" / "log").as_uri()


@pytest.mark.parametrize(
    ("given", "ms"), [(250, 250), ("251", 251), ("250ms", 250), ("1.5s", 1_500), (" 2 S ", 2_000)]
)
def test_times_are_milliseconds_or_have_a_unit(given: object, ms: int) -> None:
    assert load(reserve_ahead_ms=given, window_ms="1m").reserve_ahead_ms == ms


def test_a_delay_needs_a_unit() -> None:
    settings = load(delay="5s", dedupe="1h")
    assert (settings.delay_ms, settings.dedupe_ms) == (5_000, 3_600_000)
    assert problems(delay=5, dedupe="60") == [
        "delay (flag delay): 5 has no unit; write 250ms, 5s, 15m or 1.5h",
        "dedupe (flag dedupe): '60' has no unit; write 250ms, 5s, 15m or 1.5h",
    ]


def test_settings_never_change() -> None:
    settings = load()
    with pytest.raises(ValueError, match="frozen"):
        settings.hold_ms = 1


# Unneeded tables

REMOTE = {
    "CHRONOLINE_PIPE_SPARK__MASTER": "spark://h:7077",
    "CHRONOLINE_PIPE_STORE": "postgresql://h/d",
}
HALF = {"CHRONOLINE_PIPE_INPUT__KAFKA__SASL_JAAS_CONFIG": "x"}


@pytest.mark.parametrize(
    "environ", [{}, REMOTE, HALF, {"CHRONOLINE_PIPE_INPUT": "x", "CHRONOLINE_PIPE_SPARK__X": "x"}]
)
def test_unneeded_table_is_not_checked(environ: dict[str, str]) -> None:
    unneeded = ("input", "output", "dead_letters", "spark")
    settings = PipeSettings.load(None, environ, {"name": "p"}, unneeded=unneeded)
    assert settings.name == "p"
    assert settings.left_out >= {"input", "output"}


def test_problems_beside_unneeded_tables_are_reported() -> None:
    with pytest.raises(InvalidInput) as refused:
        PipeSettings.load(None, HALF, {"hold_ms": 900, "lanes": 0}, unneeded=("input", "output"))
    assert [line.partition(":")[0] for line in str(refused.value).splitlines()] == [
        "3 settings are wrong",
        "- name",
        "- lanes (flag lanes)",
        "- failure_detection_interval_ms",
    ]


def test_complete_optional_place_is_kept() -> None:
    def load_some(environ: dict[str, str], **flags: object) -> PipeSettings:
        given = {"name": "p", "input": ON_KAFKA, **flags}
        return PipeSettings.load(None, environ, given, optional=("output", "dead_letters"))

    whole = load_some({}, output=LEAST["output"])
    assert (whole.output.topic, whole.left_out) == ("out", frozenset())
    assert load_some(REMOTE).left_out == {"output"}
    half = load_some({}, output={"topic": "out"}, dead_letters={"topic": "d"})
    assert half.left_out == {"output", "dead_letters"}
    assert half.dead_letters is None
    with pytest.raises(InvalidInput, match="is the same topic as input"):
        load_some({}, output=ON_KAFKA)
