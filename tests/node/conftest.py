"""One cluster for all tests of a module that only look at it, or leave it as it was."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cli.command import Command
from tests.node.several import Several, several


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Several]:
    with several(tmp_path_factory.mktemp("several")) as found:
        yield found


@pytest.fixture
def command(cluster: Several) -> Command:
    return Command(cluster.addresses[0])
