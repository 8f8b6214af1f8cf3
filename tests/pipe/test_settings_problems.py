"""All problems of settings are reported at once, without secrets."""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any

import pytest

from chronoline.core.errors import InvalidInput
from chronoline.pipe.settings import PipeSettings
from tests.pipe.given_settings import (
    KAFKA,
    LEAST,
    ON_KAFKA,
    load,
    names_of,
    problems,
    problems_of,
    write,
)

ELSEWHERE: dict[str, object] = {"topic": "t", "kafka": {"bootstrap.servers": "c:3, B:2"}}


def test_all_problems_are_reported_with_their_origin(tmp_path: Path) -> None:
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
        "quite_another (flag quite-another): is no setting; the settings of a pipe are "
        + ", ".join(names_of(PipeSettings)),
        "window_ms (pipe.toml): must be at least twice reserve_ahead_ms, 200, not 150: "
        "a task would end before what it reserved is due",
    ]


CROSS: list[tuple[dict[str, Any], str]] = [
    ({"delivery_timeout_ms": 5_000}, "delivery_timeout_ms .*must be below hold_ms"),
    ({"timing_advance_ms": "5s"}, "timing_advance_ms .*must be below hold_ms"),
    (
        {"timing_advance_ms": 59_999, "hold_ms": "2m"},
        "timing_advance_ms .*and reserve_ahead_ms must be at most 60000 together, not 60099",
    ),
    ({"reserve_ahead_ms": 30_001}, "window_ms: must be at least twice reserve_ahead_ms, 60002"),
    ({"hold_ms": 900}, "failure_detection_interval_ms: must be at most half of hold_ms"),
    ({"ranges": 65}, "ranges .*must be at most buckets"),
    ({"id_header": "chronosAction"}, "id_header .*three different names"),
    ({"delay": "1s", "input": {"topic": "x" * 98, "log": "l"}}, "delay .*at most 97 leave room"),
    ({"output": LEAST["input"]}, "output .*same topic as input, 'in': every message would be"),
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
def test_settings_at_their_mutual_bounds_are_accepted(flags: dict[str, Any]) -> None:
    assert load(**flags).name == "p"


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"topic": "t"}, "give either log, a folder or a URL, or the table kafka"),
        ({"topic": "t", "log": "l", **KAFKA}, "give either log.*, not both"),
        ({"topic": "t", "kafka": {}}, "kafka needs bootstrap.servers: host:port"),
        ({"topic": "t", "kafka": {"bootstrap.servers": "a"}}, "kafka needs bootstrap.servers"),
        ({"topic": "a b", **KAFKA}, "'a b' is not a name of a Kafka topic"),
        ({"topic": "", "log": "l"}, "topic name is empty"),
        (
            {"topic": "t", "log": "l", "producer": {"a": 1}},
            "is on a log and takes nothing of Kafka",
        ),
        ({"topic": "t", **KAFKA, "producer": {"transactional.id": ""}}, None),
        (
            {"topic": "t", "kafka": {**KAFKA["kafka"], "transactional.id": "x"}},
            "librdkafka cannot follow",
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
        ({"intake_records": 1.5}, "must be a whole number, not 1.5"),
        ({"hold_ms": "2d"}, "must be at most 86400000"),
        ({"spark": {"conf": "x"}}, "must be a table"),
    ],
)
def test_invalid_value_is_reported(flags: dict[str, Any], words: str) -> None:
    (problem,) = problems(**flags)
    assert words in problem


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


def test_no_chained_error_shows_a_secret() -> None:
    with pytest.raises(InvalidInput) as refused:
        load(store=f"redis://u:{SECRET}@h")
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__
    assert SECRET not in repr(pickle.loads(pickle.dumps(refused.value)))
