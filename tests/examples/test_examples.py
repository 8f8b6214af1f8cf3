"""The examples run unchanged, and print the output in their comments."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from chronoline.log import Log
from chronoline.store import SystemClock, open_store
from chronoline.testing import scheduled
from chronoline.testing.postgres import PostgresServer

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name: str, folder: Path, *arguments: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.fixture
def postgres_url(tmp_path: Path) -> Iterator[str]:
    with PostgresServer(tmp_path / "postgres") as server:
        yield server.create_database("example")


def test_every_example_has_a_test() -> None:
    tested = {
        "reminders.py",
        "by_hand.py",
        "postgres_outbox.py",
        "log_producer.py",
        "log_consumer.py",
    }
    # The tests of the Spark features run the Spark examples; test_broker_examples runs those of the broker,
    # test_webhook_receiver that of a receiver.
    elsewhere = ("spark_", "pipe_", "broker_", "webhook_")
    shown = {path.name for path in EXAMPLES.glob("*.py") if not path.name.startswith(elsewhere)}
    assert shown == tested


def test_reminders_are_served_in_order_each_time(tmp_path: Path) -> None:
    for _ in range(2):
        lines = run("reminders.py", tmp_path)
        shown = [re.sub(r", \d+\.\d ms late$", "", line) for line in lines]
        assert shown == ["remember the milk", "remember the bread", "remember the cake"]


def test_by_hand_prints_its_comments(tmp_path: Path) -> None:
    source = (EXAMPLES / "by_hand.py").read_text()
    said = re.findall(r"print\(.*\)  # ([^:\n]+)", source)
    assert len(said) == source.count("print(")
    assert run("by_hand.py", tmp_path) == said


def test_outbox_keeps_committed_messages(tmp_path: Path, postgres_url: str) -> None:
    assert run("postgres_outbox.py", tmp_path, postgres_url) == [
        "rolled back: the payment was declined",
        "['welcome-ada']",
    ]


def test_log_producer_and_consumer(tmp_path: Path) -> None:
    assert run("log_producer.py", tmp_path, "40") == ["40 orders are durable"]
    first = run("log_consumer.py", tmp_path, "--limit", "5")
    rest = run("log_consumer.py", tmp_path, "--once")
    billed = [line for line in first + rest if line.startswith("billed")]
    assert len(first) == 5
    assert sorted(int(line.split()[2]) for line in billed) == [
        number for number in range(1, 41) if number % 14
    ]
    failed = [line for line in rest if not line.startswith("billed")]
    assert sum("attempt 3: order 14 has a negative amount" in line for line in failed) == 1
    with Log((tmp_path / "orders-log").as_uri()) as log:
        dead = [json.loads(event.value or b"") for event in log.read("unbillable", follow=False)]
        assert sorted(order["number"] for order in dead) == [14, 28]
        assert sum(each.lag for each in log.groups("orders")) == 0


def test_log_consumer_without_topic_prints_a_hint(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "log_consumer.py")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == "there are no orders yet: start examples/log_producer.py first\n"


def test_log_consumer_ends_by_sigterm(tmp_path: Path) -> None:
    run("log_producer.py", tmp_path, "4")
    with subprocess.Popen(
        [sys.executable, str(EXAMPLES / "log_consumer.py")], cwd=tmp_path, stdout=subprocess.PIPE
    ) as consumer:
        assert consumer.stdout
        billed = {consumer.stdout.readline() for _ in range(4)}
        consumer.send_signal(signal.SIGTERM)
        assert consumer.wait() == 0
        assert consumer.stdout.read() == b""
    assert len(billed) == 4
    with Log((tmp_path / "orders-log").as_uri()) as log:
        assert all(each.holder is None for each in log.groups("orders"))


def blocks_of(page: str, language: str) -> list[str]:
    guide = (EXAMPLES.parent / "docs" / page).read_text("utf-8")
    return re.findall(rf"```{language}\n(.*?)```", guide, re.DOTALL)


def test_programs_of_the_library_guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for block in blocks_of("library.md", "python"):
        exec(block, names)
    with names["store"] as store:
        assert [topic.name for topic in store.list_topics()] == ["reminders"]


def test_statements_of_the_library_guide(postgres_url: str) -> None:
    now_ms = SystemClock().now_ms()
    with open_store(postgres_url) as store:
        topic = store.create_topic("reminders", now_ms=now_ms)
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute("CREATE ROLE app")
            # tests/stores/postgres/test_rights.py plays those that make schemas.
            blocks = [
                block for block in blocks_of("library.md", "sql") if "CREATE SCHEMA" not in block
            ]
            for block in blocks:
                statement = block.replace("due_ms", str(now_ms + 1)).replace("now_ms", str(now_ms))
                connection.execute(statement.encode())
                connection.execute("SET ROLE app")  # the second one has the rights of the first
        (message,) = scheduled(store, topic)
        assert (message.id, message.body) == ("user-1", b"body")


def blocks_of_the_guide_to_the_log(language: str, folder: Path) -> list[str]:
    blocks = blocks_of("log.md", language)
    return [block.replace("/tmp/chronoline-log", str(folder)) for block in blocks]


def test_first_program_of_the_log_guide(tmp_path: Path) -> None:
    program = blocks_of_the_guide_to_the_log("python", tmp_path / "log")[0]
    (tmp_path / "first.py").write_text(program)
    lines = run(str(tmp_path / "first.py"), tmp_path)
    assert sorted(line.split()[-1] for line in lines) == ["b'one'", "b'two'"]
    assert run(str(tmp_path / "first.py"), tmp_path)[0].split()[1] == "1"


def test_other_programs_of_the_log_guide(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, *others = blocks_of_the_guide_to_the_log("python", tmp_path)
    names: dict[str, Any] = {}
    exec(first, names)
    with Log(tmp_path.as_uri()) as names["log"]:
        for block in others:
            exec(block, names)
        assert names["done"] == 3  # `append_once` adds its event once
        assert [event.value for event in names["log"].read("unbillable", follow=False)] == []
    assert "True" in capsys.readouterr().out


def test_commands_of_the_log_guide(tmp_path: Path) -> None:
    commands, *_ = blocks_of_the_guide_to_the_log("sh", tmp_path)
    environment = {**os.environ, "COLUMNS": "100"}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    environment.pop("CHRONOLINE_LOG", None)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "'orders' has 8 partitions"
    assert lines[2] == "appended 3 events"
    values = [json.loads(line)["value"] for line in lines[3:9]]
    assert sorted(values[:4]) == ["1", "2", "3", "a table"]
    assert sum(line.startswith("│ billing") for line in lines[9:]) == 8
