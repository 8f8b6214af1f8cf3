"""The command on a bucket, by the one string that `init` prints."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from chronoline_bench.servers.aws import S3Server
from tests.cli.log.command import Command


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with S3Server() as server:
        yield server


def test_commands_work_with_the_printed_url(
    server: S3Server, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    index = f"sqlite:///{tmp_path / 'index.db'}"
    printed = command("init", server.url("bucket", "events"), "--index", index)
    assert command("init", printed.strip()) == printed
    place = ("--log", printed.strip())
    assert command("create", "t", "--partitions", "1", *place) == "'t' has 1 partition\n"
    assert command("append", "t", "v", *place) == "partition 0, sequence 0\n"
    assert command("read", "t", "--group", "g", "--format", "values", *place) == "v\n"
    assert not command.folder.exists()


def test_template_needs_no_server(command: Command) -> None:
    printed = command(
        "init",
        "s3://bucket/events?region=eu-central-1",
        "--index",
        "dynamodb://events?region=eu-central-1",
        "--template",
    )
    assert '"AWS::S3::Bucket"' in printed
    assert '"AWS::DynamoDB::Table"' in printed
    assert "ConnectionString" in printed
