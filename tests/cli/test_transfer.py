"""`chronoline export` and `chronoline import`."""

from __future__ import annotations

import json
import random
import resource
from dataclasses import replace
from pathlib import Path

import pytest

from chronoline.cli.export_files import export_file, format_of
from chronoline.client import Client, TopicSettings
from chronoline.client.aio import ToSend
from chronoline.core.errors import InvalidInput
from chronoline.core.topic import Topic
from chronoline.stores.factory import open_store
from tests.cli.command import Command
from tests.stores.line import NOW
from tests.stores.test_conformance_restore import MESSAGES, exported


def saved_at(client: Client, topic: str) -> list[object]:
    found: list[object] = []
    for dead_letters in (False, True):
        page, after = client.export_page(topic, dead_letters=dead_letters)
        assert after == ""
        found += page
    return found


@pytest.mark.parametrize("name", ["t.jsonl", "t.parquet"])
def test_topic_goes_through_a_file_whole(
    command: Command, client: Client, topic: str, tmp_path: Path, name: str
) -> None:
    assert len(client.import_messages(topic, MESSAGES)) == len(MESSAGES)
    file = str(tmp_path / name)
    said = command.result("export", topic, file, "--dead-letters")
    assert said.stderr == f"exported {len(MESSAGES)} messages\n"
    assert [each.name for each in tmp_path.iterdir()] == [name]
    other = f"{topic} copy {name}"
    client.create_topic(other, TopicSettings(buckets=5))
    assert command.result("import", other, file).stderr == f"imported {len(MESSAGES)} messages\n"
    whole = sorted(saved_at(client, other), key=str)
    assert whole == sorted(MESSAGES, key=str)
    again = command.result("import", other, file).stderr
    assert again == f"imported 0 messages; {len(MESSAGES)} existed already\n"
    assert sorted(saved_at(client, other), key=str) == whole


def test_store_is_exported_and_imported_without_a_broker(command: Command, tmp_path: Path) -> None:
    url, file = f"sqlite:///{tmp_path / 'timeline.db'}", str(tmp_path / "x")
    with open_store(url) as store:
        topics = [store.create_topic(name, now_ms=NOW) for name in ("from", "to")]
        store.restore(topics[0].uid, MESSAGES, now_ms=NOW)
    options = ("--store", url, "--format", "parquet")
    assert "exported 8" in command.result("export", "from", file, *options).stderr
    command("export", "from", file, "--dead-letters", *options)
    assert "imported 11" in command.result("import", "to", file, *options).stderr
    with open_store(url) as store:
        before, after = (exported(store, _uid(store.find_topic(each))) for each in ("from", "to"))
    assert before == after
    assert "no topic 'none' in this store" in command.refusal("export", "none", file, *options)


def _uid(topic: Topic | None) -> int:
    assert topic is not None
    return topic.uid


def test_stdout_has_the_lines_alone(command: Command, client: Client, topic: str) -> None:
    client.send_many(topic, [ToSend(id=each, delay=60) for each in "ab"])
    lines = command("export", topic, "-").splitlines()
    assert sorted(json.loads(each)["id"] for each in lines) == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "line 1: no JSON"),
        ("[]", "line 1: no JSON object"),
        ('{"id": "a"}', "line 1: no field 'due_ms'"),
        ('{"id": 5, "due_ms": 1, "producer_group": "g"}', "line 1: id must be text"),
        ('{"id": "a", "due_ms": 1, "producer_group": "g", "body": 5}', "body must be text"),
        ('{"id": "\\ud800", "due_ms": 1, "producer_group": "g"}', "id is not valid UTF-8"),
        ('{"id": "a", "due_ms": 9223372036854775808, "producer_group": "g"}', "line 1: due 9223"),
        (
            '{"id": "a", "due_ms": 1, "producer_group": "g", "attempts": -1}',
            "line 1: attempts must",
        ),
        ("[" * 9_999, "line 1: no JSON"),
    ],
)
def test_bad_line_is_named(
    command: Command, topic: str, tmp_path: Path, text: str, problem: str
) -> None:
    file = tmp_path / "t.jsonl"
    file.write_text(text)
    assert problem in command.refusal("import", topic, str(file))


def test_refused_messages_are_named_and_the_others_come(
    command: Command, client: Client, tmp_path: Path
) -> None:
    client.create_topic("small", TopicSettings(largest_body_bytes=1))
    file = tmp_path / "t.jsonl"
    rows = [
        {"id": each, "due_ms": NOW, "producer_group": "g", "body": each} for each in ("a", "bb")
    ]
    file.write_text("\n".join(map(json.dumps, rows)))
    failed = command.failed("import", "small", str(file))
    assert str(failed.exception) == "1 message refused"
    assert "imported 1 message\n" in failed.stderr
    assert "'bb' refused" in failed.stderr
    assert "cannot be read" in command.refusal("import", "small", str(tmp_path / "none"))
    assert "cannot be read as Parquet" in command.refusal(
        "import", "small", str(file), "--format=parquet"
    )


@pytest.mark.parametrize("name", ["t.jsonl", "t.parquet"])
def test_export_without_room_leaves_the_file_of_before(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text("whole", "utf-8")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    message = replace(MESSAGES[0], body=random.Random(1).randbytes(1_000))
    file = export_file(str(path), format_of(name, None)).__enter__()
    file.write([message])
    resource.setrlimit(resource.RLIMIT_FSIZE, (500, before[1]))
    try:
        with pytest.raises(InvalidInput, match="cannot be written: File too large"):
            file.__exit__(None, None, None)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [each.name for each in tmp_path.iterdir()] == [name]
    assert path.read_text("utf-8") == "whole"


def test_failed_export_leaves_no_file(command: Command, tmp_path: Path) -> None:
    refused = command.refusal("export", "no such topic", str(tmp_path / "t.jsonl"))
    assert "chronoline topic create" in refused
    assert list(tmp_path.iterdir()) == []
