"""A log in a folder."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from chronoline.log import Log


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path / 'log'}"


@pytest.fixture
def log(url: str) -> Iterator[Log]:
    with Log(url, hold_ms=60_000) as log:
        log.create_topic("t", partitions=4)
        yield log
