"""`chronoline log`: topics and groups, made, listed and deleted."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from chronoline.cli.log import app
from chronoline.cli.log import topics as setup_commands
from chronoline.cli.log.topics import _hold_end  # of any moment, not of the current one
from chronoline.core.errors import InvalidInput, TopicNotFound
from chronoline.log import Log, NewEvent
from chronoline.log.factory import url_of
from chronoline.runtime.timestamps import show_moment
from tests.cli.log.command import Command

# Set-up


def test_init_prints_the_url_of_a_folder(command: Command) -> None:
    for _ in range(2):
        assert command("init", str(command.folder)) == f"file://{command.folder}\n"
    assert command("topics") == (
        "There are no topics yet: `chronoline log create TOPIC` makes one.\n"
    )


def test_init_prints_the_next_steps(command: Command) -> None:
    said = command.warning("init")
    assert f"export CHRONOLINE_LOG=file://{command.folder}\n" in said
    assert "chronoline log create orders\n" in said
    assert "A folder needs no set-up" in said


def test_init_prepares_the_given_url(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str | None]] = []

    def prepare(url: str, index: str | None) -> str:
        asked.append((url, index))
        return "s3://b/p?index=x&y=z"

    monkeypatch.setattr(setup_commands, "prepare", prepare)
    assert command("init", "s3://b/p", "--index", "dynamodb://t") == "s3://b/p?index=x&y=z\n"
    assert "export CHRONOLINE_LOG='s3://b/p?index=x&y=z'\n" in command.warning("init", "s3://b/p")
    assert asked == [("s3://b/p", "dynamodb://t"), ("s3://b/p", None)]


def test_init_template_creates_nothing(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup_commands, "template_of", lambda url, index: f"{url} {index}")
    assert command("init", "s3://b/p", "--index", "x", "--template") == "s3://b/p x\n"
    assert not command.folder.exists()


def test_folder_has_no_template(command: Command) -> None:
    assert "s3://" in command.refusal("init", "--template")
    assert not command.folder.exists()


def test_bucket_needs_an_index(command: Command) -> None:
    refusal = command.refusal("init", "s3://bucket/events")
    assert "has no index" in refusal
    assert "`chronoline log init` takes it as --index" in refusal


def test_create_makes_the_topic_and_the_folder(command: Command) -> None:
    assert command("create", "orders", "--partitions", "1") == "'orders' has 1 partition\n"
    assert command("create", "clicks") == "'clicks' has 8 partitions\n"
    with Log(command.folder.as_uri()) as log:
        assert {topic.name: topic.partitions for topic in log.topics()} == {
            "orders": 1,
            "clicks": 8,
        }


def test_existing_topic_is_refused_unless_allowed(command: Command) -> None:
    command("create", "orders", "--partitions", "2")
    assert "exists already" in command.refusal("create", "orders")
    assert command("create", "orders", "--if-missing") == "'orders' has 2 partitions\n"


def test_bad_topic_is_refused(command: Command) -> None:
    assert "a whole number from 1 to" in command.refusal("create", "t", "--partitions", "0")
    assert "empty" in command.refusal("create", "")
    assert "--partitions" in command.misuse("create", "t", "--partitions", "many")


def test_path_becomes_a_file_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/h")
    assert url_of("my log") == f"file://{tmp_path}/my%20log"
    assert url_of("~/log") == "file:///h/log"
    assert url_of("s3://bucket/p?index=dynamodb://t") == "s3://bucket/p?index=dynamodb://t"
    with pytest.raises(InvalidInput, match="neither a URL nor a folder"):
        url_of("")


def test_odd_folders_work(command: Command) -> None:
    odd = str(command.folder / "50% off? #1 ü")
    command("create", "t", "--log", odd)
    assert command("append", "t", "v", "--log", odd).endswith(", sequence 0\n")
    assert Path(odd, "objects").is_dir()


def test_default_log_is_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CHRONOLINE_LOG", raising=False)
    assert CliRunner().invoke(app, ["create", "t"]).exit_code == 0
    assert (tmp_path / "chronoline-log" / "index.db").exists()


def test_reading_commands_create_no_log(command: Command) -> None:
    for arguments in (["topics"], ["read", "t"], ["append", "t", "v"], ["sweep"]):
        assert "there is no log in the folder" in command.refusal(*arguments)
    assert not command.folder.exists()


def test_folder_without_its_objects_is_refused(command: Command) -> None:
    command("create", "t")
    (command.folder / "objects").rename(command.folder / "moved")
    for arguments in (["topics"], ["create", "u"], ["init"]):
        assert "are gone" in command.refusal(*arguments)
    assert not (command.folder / "objects").exists()


def test_malformed_url_is_refused(command: Command) -> None:
    assert "this URL cannot be read" in command.refusal("topics", "--log", "file://[x")


def test_folder_may_have_its_index_elsewhere(command: Command, tmp_path: Path) -> None:
    index = f"sqlite:///{tmp_path / 'index.db'}"
    name = command("init", str(command.folder), "--index", index).strip()
    command("create", "t", "--log", name)
    assert command("append", "t", "v", "--log", name).endswith(", sequence 0\n")
    assert (tmp_path / "index.db").exists()


def test_unsupported_url_is_refused(command: Command) -> None:
    for url in ("ftp://x", "memory:", "file://host/x"):
        assert "file:///folder" in command.refusal("topics", "--log", url)


# Lists


def cells(printed: str) -> list[list[str]]:
    """The rows of a table."""
    rows = [line for line in printed.splitlines() if line.startswith("│")]
    return [[cell.strip() for cell in row.strip("│").split("│")] for row in rows]


def test_topics_are_listed(command: Command, log: Log) -> None:
    log.create_topic("[bold]odd", partitions=1)
    log.append_many("t", [NewEvent(value=b"%d" % number, partition=0) for number in range(1_200)])
    log.append("t", value=b"newest", partition=0)
    log.retain("t", max_bytes=1)
    assert sorted(cells(command("topics"))) == [
        ["[bold]odd", "1", "0", "0", "0"],
        ["t", "4", "1", "1,200", "1,201"],
    ]


def test_topics_as_json(command: Command, log: Log) -> None:
    log.append("t", value=b"v", partition=2)
    (topic,) = json.loads(command("topics", "--json"))
    assert topic["topic"] == "t"
    assert topic["events"] == 1
    assert topic["partitions"][2] == {"partition": 2, "first_sequence": 0, "next_sequence": 1}
    assert len(topic["partitions"]) == 4


def test_groups_are_listed(command: Command, log: Log) -> None:
    log.append("t", value=b"a", partition=1)
    log.append("t", value=b"b", partition=1)
    log.seek("t", "idle", "latest", partition=1)
    reader = log.read("t", group="busy")
    assert next(reader).value == b"a"
    rows = cells(command("groups", "t"))
    assert [row[:4] for row in rows] == [
        ["busy", "0", "0", "0"],
        ["busy", "1", "0", "2"],
        ["busy", "2", "0", "0"],
        ["busy", "3", "0", "0"],
        ["idle", "1", "2", "0"],
    ]
    *busy, idle = rows
    assert all(row[4] and row[5].endswith("Z") for row in busy)
    assert idle[4:] == ["", ""]


@pytest.mark.parametrize("terminal", [False, True], ids=["pipe", "terminal"])
def test_narrow_table_loses_nothing(command: Command, log: Log, terminal: bool) -> None:
    reader = log.read("t", group="a-group-of-a-long-name")
    log.append("t", value=b"a", partition=1)
    next(reader)
    env = {"CHRONOLINE_LOG": str(command.folder), "COLUMNS": "80", "TTY_COMPATIBLE": "0"}
    env |= {"TTY_COMPATIBLE": "1", "NO_COLOR": "1"} if terminal else {}
    printed = CliRunner().invoke(app, ["groups", "t"], env=env).stdout
    held = log.groups("t")[0]
    assert held.holder is not None
    assert held.until_ms is not None
    first = cells(printed)[:1]
    if terminal:
        assert len(printed.splitlines()[0]) <= 80
        first = list(itertools.takewhile(lambda row: row[1] in ("0", ""), cells(printed)))
    texts = ["".join(row[place] for row in first) for place in (0, 4, 5)]
    assert texts[:2] == ["a-group-of-a-long-name", held.holder]
    assert texts[2].endswith("Z")
    assert len(texts[2]) == len(show_moment(held.until_ms))


def test_groups_as_json(command: Command, log: Log) -> None:
    log.append("t", value=b"a", partition=1)
    log.seek("t", "g", "earliest", partition=1)
    assert json.loads(command("groups", "t", "--json")) == [
        {"group": "g", "partition": 1, "sequence": 0, "lag": 1, "holder": None, "until": None}
    ]
    reader = log.read("t", group="g")
    next(reader)
    held = json.loads(command("groups", "t", "--json"))[1]
    assert held["holder"]
    assert held["until"].endswith("Z")


def test_missing_groups_are_reported(command: Command, log: Log) -> None:
    assert command("groups", "t") == (
        "No group reads 't' yet: `chronoline log read t --group G` makes one.\n"
    )
    assert json.loads(command("groups", "t", "--json")) == []
    assert "no topic named 'x'" in command.refusal("groups", "x")


def test_ended_hold_is_marked() -> None:
    assert _hold_end(None, 5) == ""
    assert _hold_end(6, 5) == "1970-01-01T00:00:00.006Z"
    assert _hold_end(5, 5) == "over since 1970-01-01T00:00:00.005Z"


# Deletion


def test_delete_removes_a_topic(command: Command, log: Log) -> None:
    log.append("t", value=b"")
    assert command("delete", "t", "--yes") == "deleted topic 't' with 1 event\n"
    assert command("topics").startswith("There are no topics yet")
    with pytest.raises(TopicNotFound):
        log.append("t", value=b"")


def test_delete_asks_for_confirmation(command: Command, log: Log) -> None:
    list(log.read("t", group="g", follow=False))
    for arguments in (["delete", "t"], ["delete-group", "t", "g"]):
        for answer in ("n\n", ""):
            refused = command.invoke(arguments, answer).exception
            assert str(refused) == "nothing was done: answer y, or use --yes"
    assert [topic.name for topic in log.topics()] == ["t"]
    assert len(log.groups("t")) == 4
    assert "deleted group 'g' of 't'\n" in command("delete-group", "t", "g", input="y\n")
    assert "deleted topic 't' with 0 events\n" in command("delete", "t", input="y\n")


def test_missing_topic_is_refused_without_confirmation(command: Command, log: Log) -> None:
    assert "no topic named 'never'" in command.refusal("delete", "never")
    assert "no group named 'g' reads 't'" in command.refusal("delete-group", "t", "g")
