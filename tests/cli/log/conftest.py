"""A log in a folder, and the command that works on it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from chronoline.log import Log
from tests.cli.log.command import Command


@pytest.fixture
def command(tmp_path: Path) -> Command:
    return Command(tmp_path / "log")


@pytest.fixture
def log(command: Command) -> Iterator[Log]:
    """The same log, with a topic of four partitions."""
    with Log(command.folder.as_uri()) as log:
        log.create_topic("t", partitions=4)
        yield log
