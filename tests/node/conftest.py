"""One cluster for all tests of a module that only look at it, or leave it as it was."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cli.command import Command
from tests.node.cluster_process import ClusterProcess, cluster_process


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcess]:
    with cluster_process(tmp_path_factory.mktemp("several")) as found:
        yield found


@pytest.fixture
def command(cluster: ClusterProcess) -> Command:
    return Command(cluster.addresses[0])
