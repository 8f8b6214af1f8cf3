"""`init`, `create`, and which log a command works on."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from chronoline.cli.log import app
from chronoline.cli.log import setup as setup_commands
from chronoline.cli.log.place import url_of
from chronoline.core.errors import InvalidInput
from chronoline.log import Log
from tests.cli.log.command import Command


def test_init_makes_a_folder_and_prints_its_name(command: Command) -> None:
    for _ in range(2):
        assert command("init", str(command.folder)) == f"file://{command.folder}\n"
    assert command("topics") == (
        "There are no topics yet: `chronoline log create TOPIC` makes one.\n"
    )


def test_init_says_what_to_do_next(command: Command) -> None:
    said = command.warning("init")
    assert f"export CHRONOLINE_LOG=file://{command.folder}\n" in said
    assert "chronoline log create orders\n" in said
    assert "A folder needs no set-up" in said


def test_init_makes_what_is_named(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str | None]] = []

    def prepare(url: str, index: str | None) -> str:
        asked.append((url, index))
        return "s3://b/p?index=x&y=z"

    monkeypatch.setattr(setup_commands, "prepare", prepare)
    assert command("init", "s3://b/p", "--index", "dynamodb://t") == "s3://b/p?index=x&y=z\n"
    assert "export CHRONOLINE_LOG='s3://b/p?index=x&y=z'\n" in command.warning("init", "s3://b/p")
    assert asked == [("s3://b/p", "dynamodb://t"), ("s3://b/p", None)]


def test_init_prints_a_template_and_makes_nothing(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(setup_commands, "template_of", lambda url, index: f"{url} {index}")
    assert command("init", "s3://b/p", "--index", "x", "--template") == "s3://b/p x\n"
    assert not command.folder.exists()


def test_a_folder_has_no_template(command: Command) -> None:
    assert "s3://" in command.refusal("init", "--template")
    assert not command.folder.exists()


def test_a_bucket_needs_an_index(command: Command) -> None:
    refusal = command.refusal("init", "s3://bucket/events")
    assert "has no index" in refusal
    assert "`chronoline log init` takes it as --index" in refusal


def test_create_makes_a_topic_and_the_folder(command: Command) -> None:
    assert command("create", "orders", "--partitions", "1") == "'orders' has 1 partition\n"
    assert command("create", "clicks") == "'clicks' has 8 partitions\n"
    with Log(command.folder.as_uri()) as log:
        assert {topic.name: topic.partitions for topic in log.topics()} == {
            "orders": 1,
            "clicks": 8,
        }


def test_a_topic_is_made_once(command: Command) -> None:
    command("create", "orders", "--partitions", "2")
    assert "exists already" in command.refusal("create", "orders")
    assert command("create", "orders", "--if-missing") == "'orders' has 2 partitions\n"


def test_a_bad_topic_is_refused(command: Command) -> None:
    assert "a whole number from 1 to" in command.refusal("create", "t", "--partitions", "0")
    assert "empty" in command.refusal("create", "")
    assert "--partitions" in command.misuse("create", "t", "--partitions", "many")


def test_a_path_is_a_folder_and_a_url_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_without_a_name_it_is_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CHRONOLINE_LOG", raising=False)
    assert CliRunner().invoke(app, ["create", "t"]).exit_code == 0
    assert (tmp_path / "chronoline-log" / "index.db").exists()


def test_looking_at_a_folder_does_not_make_a_log(command: Command) -> None:
    for arguments in (["topics"], ["read", "t"], ["append", "t", "v"], ["sweep"]):
        assert "there is no log in the folder" in command.refusal(*arguments)
    assert not command.folder.exists()


def test_a_folder_whose_objects_are_gone_is_told_apart(command: Command) -> None:
    command("create", "t")
    (command.folder / "objects").rename(command.folder / "moved")
    for arguments in (["topics"], ["create", "u"], ["init"]):
        assert "are gone" in command.refusal(*arguments)
    assert not (command.folder / "objects").exists()


def test_a_url_that_cannot_be_read_is_refused(command: Command) -> None:
    assert "this URL cannot be read" in command.refusal("topics", "--log", "file://[x")


def test_a_folder_may_have_its_index_elsewhere(command: Command, tmp_path: Path) -> None:
    index = f"sqlite:///{tmp_path / 'index.db'}"
    name = command("init", str(command.folder), "--index", index).strip()
    command("create", "t", "--log", name)
    assert command("append", "t", "v", "--log", name).endswith(", sequence 0\n")
    assert (tmp_path / "index.db").exists()


def test_a_url_that_names_no_log_is_refused(command: Command) -> None:
    for url in ("ftp://x", "memory:", "file://host/x"):
        assert "file:///folder" in command.refusal("topics", "--log", url)
