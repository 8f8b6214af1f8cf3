"""Settings from three sources, checked once, with all that is wrong said at once."""

from __future__ import annotations

import pickle
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from chronoline.core.errors import InvalidInput
from chronoline.pipe.places import Place
from chronoline.pipe.settings import PipeSettings, PlaceTable, SparkTable

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
LEAST: dict[str, object] = {
    "name": "p",
    "input": {"topic": "in", "log": "file:///tmp/log"},
    "output": {"topic": "out", "log": "file:///tmp/log"},
}
KAFKA = {"kafka": {"bootstrap.servers": "a:1,b:2"}}


def load(**flags: object) -> PipeSettings:
    return PipeSettings.load(None, {}, {**LEAST, **flags})


def problems(**flags: object) -> list[str]:
    return problems_of({}, {**LEAST, **flags})


def problems_of(
    environ: dict[str, str], flags: dict[str, object], path: Path | None = None
) -> list[str]:
    with pytest.raises(InvalidInput) as refused:
        PipeSettings.load(path, environ, flags)
    return [line.removeprefix("- ") for line in str(refused.value).splitlines()[1:]]


def write(folder: Path, text: str) -> Path:
    path = folder / "pipe.toml"
    path.write_text(text, "utf-8")
    return path


# Sources


def test_the_least_that_has_to_be_said_is_name_input_and_output(
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


def test_the_environment_wins_over_the_file_and_flags_over_both(tmp_path: Path) -> None:
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
def test_a_file_that_cannot_be_read_is_said(
    tmp_path: Path, content: bytes | None, words: str
) -> None:
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


def test_lists_can_be_text_with_commas() -> None:
    settings = load(spark={"packages": "a:b:1, c:d:2"})
    assert settings.spark.packages == ("a:b:1", "c:d:2")


def test_settings_never_change() -> None:
    settings = load()
    with pytest.raises(ValueError, match="frozen"):
        settings.hold_ms = 1


# What is wrong


def test_everything_that_is_wrong_is_said_at_once_with_where_it_is_said(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        """
        hold_ms = "5 parsecs"
        start = "now"
        window_ms = 150
        [input]
        topic = "in"
        log = "q"
        kafka = "a:1"
        [spark]
        mastr = "x"
        """,
    )
    environ = {"CHRONOLINE_PIPE_HLOD_MS": "3s", "CHRONOLINE_PIPE_INPUT__TOPIK": "x"}
    assert problems_of(environ, {"lanes": True, "ranges": 0, "quite-another": 1}, path) == [
        'name: is missing; name the pipe, such as name = "reminders"',
        "input.kafka (pipe.toml): must be a table",
        "input.topik (CHRONOLINE_PIPE_INPUT__TOPIK): is no setting; did you mean topic?",
        "output: is missing; say where messages go: a table [output] with topic, and log or kafka",
        "hold_ms (pipe.toml): '5 parsecs' is not a duration; write 250ms, 5s, 15m or 1.5h",
        "lanes (flag lanes): must be a whole number, not True",
        "ranges (flag ranges): must be at least 1, not 0",
        "start (pipe.toml): must be 'earliest' or 'latest', not 'now'",
        "spark.mastr (pipe.toml): is no setting; did you mean master?",
        "hlod_ms (CHRONOLINE_PIPE_HLOD_MS): is no setting; did you mean hold_ms?",
        "quite_another (flag quite-another): is no setting; those of a pipe are "
        + ", ".join(names_of(PipeSettings)),
        "window_ms (pipe.toml): must be at least twice reserve_ahead_ms, 200, not 150: "
        "a task would end before what it reserved is due",
    ]


ON_KAFKA: dict[str, object] = {"topic": "t", **KAFKA}
ELSEWHERE: dict[str, object] = {"topic": "t", "kafka": {"bootstrap.servers": "c:3, B:2"}}

CROSS: list[tuple[dict[str, Any], str]] = [
    ({"delivery_timeout_ms": 5_000}, "delivery_timeout_ms .*must be below hold_ms"),
    ({"timing_advance_ms": "5s"}, "timing_advance_ms .*must be below hold_ms"),
    (
        {"timing_advance_ms": 59_999, "hold_ms": "2m"},
        "timing_advance_ms .*and reserve_ahead_ms must be at most 60000 together, not 60099",
    ),
    ({"reserve_ahead_ms": 2_001}, "window_ms: must be at least twice reserve_ahead_ms, 4002"),
    ({"hold_ms": 900}, "failure_detection_interval_ms: must be at most half of hold_ms"),
    ({"ranges": 65}, "ranges .*must be at most buckets"),
    ({"id_header": "chronosAction"}, "id_header .*three different names"),
    ({"delay": "1s", "input": {"topic": "x" * 98, "log": "l"}}, "delay .*at most 97 leave room"),
    ({"output": LEAST["input"]}, "output .*same topic as input, 'in': every message would come"),
    ({"input": ON_KAFKA, "output": ELSEWHERE}, "output .*is the same topic as input"),
    ({"dead_letters": LEAST["input"]}, "dead_letters .*is the same topic as input"),
    ({"dead_letters": LEAST["output"]}, "dead_letters .*is the same topic as output"),
    (
        {"output": ON_KAFKA | {"producer": {"acks": 1}}},
        r"output .*acks must be 'all'",
    ),
    (
        {"dead_letters": {"topic": "t", "kafka": {**KAFKA["kafka"], "delivery.timeout.ms": 4_001}}},
        r"dead_letters .*delivery\.timeout\.ms must be from 1 to delivery_timeout_ms \(4000\)",
    ),
    (
        {"spark": {"master": "spark://h:7077"}, "output": ON_KAFKA},
        r"spark .*other machines, .* files of this one: input\.log, store\. Use postgresql://",
    ),
    (
        {
            "spark": {"master": "yarn"},
            "store": "postgresql://h/d",
            "input": {"topic": "t", "log": "s3://bucket?index=sqlite%3A%2F%2F%2F%2Fi.db"},
            "output": ON_KAFKA,
        },
        r"spark .*other machines, .*: input\.log\. ",
    ),
]


@pytest.mark.parametrize(("flags", "words"), CROSS)
def test_settings_have_to_go_together(flags: dict[str, Any], words: str) -> None:
    (problem,) = problems(**flags)
    assert re.match(words, problem), problem


@pytest.mark.parametrize(
    "flags",
    [
        {"delivery_timeout_ms": 4_999},
        {"hold_ms": "2m", "timing_advance_ms": 59_900},
        {"reserve_ahead_ms": 1_000},
        {"ranges": 64},
        {"delay": "1s", "input": {"topic": "x" * 97, "log": "l"}},
        {"input": ON_KAFKA, "output": {"topic": "t", "kafka": {"bootstrap.servers": "c:3"}}},
        {"input": {"topic": "out", "log": "other"}},
        {"spark": {"master": "local[4]"}},
        {
            "spark": {"master": "spark://h:7077"},
            "store": "postgresql://h/d",
            "input": ON_KAFKA,
            "output": {"topic": "o", "log": "s3://bucket?index=postgresql%3A%2F%2Fh%2Fd"},
        },
    ],
)
def test_what_just_goes_together_is_taken(flags: dict[str, Any]) -> None:
    assert load(**flags).name == "p"


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"topic": "t"}, "give either log, a folder or a URL, or the table kafka"),
        ({"topic": "t", "log": "l", **KAFKA}, "give either log.*, not both"),
        ({"topic": "t", "kafka": {}}, "kafka needs bootstrap.servers: host:port"),
        ({"topic": "t", "kafka": {"bootstrap.servers": "a"}}, "kafka needs bootstrap.servers"),
        ({"topic": "a b", **KAFKA}, "'a b' is no name of a Kafka topic"),
        ({"topic": "", "log": "l"}, "topic name is empty"),
        (
            {"topic": "t", "log": "l", "producer": {"a": 1}},
            "is on a log and takes nothing of Kafka",
        ),
        ({"topic": "t", **KAFKA, "producer": {"transactional.id": ""}}, None),
        (
            {"topic": "t", "kafka": {**KAFKA["kafka"], "transactional.id": "x"}},
            "librdkafka, which publishes, cannot follow",
        ),
        ({"topic": "t", "log": "http://h/x"}, r"input\.log .*no log can be at http"),
        ({"topic": "t", "log": ""}, r"input\.log .*neither the URL of a log nor a folder"),
        ("t", "must be a table"),
    ],
)
def test_a_topic_is_on_kafka_or_on_a_log(table: Any, words: str | None) -> None:
    if words is None:
        assert load(input=table).input.topic == "t"
        return
    (problem,) = problems(input=table)
    assert re.search(words, problem), problem


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"name": ""}, "topic name is empty"),
        ({"name": 7}, "must be text"),
        ({"store": "memory:"}, "another store in each process"),
        ({"store": "redis://h"}, "is not the URL of a store; write sqlite:"),
        ({"store": "sqlite:///"}, "names no file"),
        ({"store": "sqlite:///:memory:"}, "names no file"),
        ({"metrics": "9400"}, "is no address; write host:port"),
        ({"metrics": "h:70000"}, "is no address"),
        ({"id_header": ""}, "is empty"),
        ({"action_header": "x" * 256}, "has 256 bytes; at most 255"),
        ({"rows_per_trigger": 1.5}, "must be a whole number, not 1.5"),
        ({"hold_ms": "2d"}, "must be at most 86400000"),
        ({"spark": {"packages": 3}}, "must be a list of texts"),
        ({"spark": {"conf": "x"}}, "must be a table"),
    ],
)
def test_what_a_setting_does_not_take_is_said(flags: dict[str, Any], words: str) -> None:
    (problem,) = problems(**flags)
    assert words in problem


# What is not looked at


REMOTE = {
    "CHRONOLINE_PIPE_SPARK__MASTER": "spark://h:7077",
    "CHRONOLINE_PIPE_STORE": "postgresql://h/d",
}
HALF = {"CHRONOLINE_PIPE_INPUT__KAFKA__SASL_JAAS_CONFIG": "x"}


@pytest.mark.parametrize(
    "environ", [{}, REMOTE, HALF, {"CHRONOLINE_PIPE_INPUT": "x", "CHRONOLINE_PIPE_SPARK__X": "x"}]
)
def test_a_table_that_is_not_needed_may_be_missing_or_anything(environ: dict[str, str]) -> None:
    unneeded = ("input", "output", "dead_letters", "spark")
    settings = PipeSettings.load(None, environ, {"name": "p"}, unneeded=unneeded)
    assert settings.name == "p"
    assert settings.left_out >= {"input", "output"}


def test_what_is_wrong_elsewhere_is_said_all_the_same() -> None:
    with pytest.raises(InvalidInput) as refused:
        PipeSettings.load(None, HALF, {"hold_ms": 900, "lanes": 0}, unneeded=("input", "output"))
    assert [line.partition(":")[0] for line in str(refused.value).splitlines()] == [
        "3 settings are wrong",
        "- name",
        "- lanes (flag lanes)",
        "- failure_detection_interval_ms",
    ]


def test_a_place_that_is_optional_is_kept_if_it_is_complete() -> None:
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


# Secrets

SECRET = "hunter2"
JAAS = f'x.PlainLoginModule required username="u" password="{SECRET}";'


def test_no_secret_is_shown() -> None:
    settings = load(
        store=f"postgresql://u:{SECRET}@/x@h/d?sslpassword={SECRET}",
        input={"topic": "in", "kafka": {**KAFKA["kafka"], "sasl.jaas.config": JAAS}},
        output={"topic": "out", **KAFKA, "producer": {"sasl.password": SECRET}},
        dead_letters={
            "topic": "d",
            "log": f"s3://bucket?index=postgresql%3A%2F%2Fu%3A{SECRET}%40h%2Fd",
        },
        spark={"conf": {"spark.hadoop.fs.s3a.secret.key": SECRET}},
    )
    for shown in (repr(settings), str(settings), repr(settings.input), repr(settings.spark)):
        assert SECRET not in shown
    assert "store='postgresql://…@h/d?sslpassword=…'" in repr(settings)
    assert SECRET in settings.store


@pytest.mark.parametrize(
    "flags",
    [
        {"store": f"redis://u:{SECRET}@h"},
        {"store": {"password": SECRET}},
        {"store": [SECRET]},
        {"input": {"topic": "t", "kafka": {"sasl.jaas.config": JAAS}}},
        {"input": {"topic": "t", "kafka": JAAS}},
        {"input": {"topic": "t", "kafka": {**KAFKA["kafka"], "sasl.jaas.config": f"odd {SECRET}"}}},
        {"input": {"topic": "t", "kafka": {**KAFKA["kafka"], "sasl.password": [SECRET, 1]}}},
        {"input": {"topic": "t", "log": f"s3://u:{SECRET}@b?index=x"}},
        {"input": {"topic": "t", "log": f"http://u:{SECRET}@b"}},
        {"input": f"{SECRET}"},
        {"spark": {"conf": f"spark.password={SECRET}"}},
        {"pasword": SECRET},
    ],
)
def test_no_error_shows_a_secret(flags: dict[str, Any]) -> None:
    found = problems(**flags)
    assert found
    assert SECRET not in "\n".join(found)


def test_no_error_brings_another_that_shows_a_secret() -> None:
    with pytest.raises(InvalidInput) as refused:
        load(store=f"redis://u:{SECRET}@h")
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__
    assert SECRET not in repr(pickle.loads(pickle.dumps(refused.value)))


# Examples and documentation


def names_of(table: type[PipeSettings | PlaceTable | SparkTable]) -> list[str]:
    return [info.alias or name for name, info in table.model_fields.items()]


def uncommented(text: str) -> str:
    """With every setting that is commented out."""
    return re.sub(r'^#(?=[\w"]+(?:\.[\w"]+)* = |"[^"]+" = |\[)', "", text, flags=re.M)


@pytest.mark.parametrize("name", ["pipe-kafka.toml", "pipe-embedded.toml"])
def test_the_examples_load_with_and_without_what_is_commented_out(
    tmp_path: Path, name: str
) -> None:
    settings = PipeSettings.load(EXAMPLES / name, {}, {})
    assert settings.input.topic != settings.output.topic
    full = write(tmp_path, uncommented((EXAMPLES / name).read_text("utf-8")))
    assert PipeSettings.load(full, {}, {}).dead_letters is not None


def test_the_example_of_kafka_teaches_every_setting_with_its_default() -> None:
    text = (EXAMPLES / "pipe-kafka.toml").read_text("utf-8")
    said = tomllib.loads(uncommented(text))
    assert said.keys() == set(names_of(PipeSettings))
    assert said["spark"].keys() == set(names_of(SparkTable))
    assert said["output"].keys() | {"log"} == set(names_of(PlaceTable))
    # What is commented out and not said to be something else is a default.
    without = {"name", "store", "input", "output", "dead_letters", "spark"}
    without |= {"delay", "receipts", "metrics"}
    told = load(**{name: value for name, value in said.items() if name not in without})
    assert told == load()


def test_the_table_of_the_documentation_has_every_setting() -> None:
    page = (ROOT / "docs" / "pipe.md").read_text("utf-8")
    rows = re.findall(r"^\| `([\w.]+)`", page.partition("## Settings")[2], re.M)
    expected = [
        *(
            name
            for name in names_of(PipeSettings)
            if name not in ("input", "output", "dead_letters", "spark")
        ),
        *(f"input.{name}" for name in names_of(PlaceTable)),
        *(f"spark.{name}" for name in names_of(SparkTable)),
    ]
    assert sorted(rows) == sorted(expected)
