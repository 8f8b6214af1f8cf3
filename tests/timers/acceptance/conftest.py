"""One cluster for the tests that break it: starting nodes takes longer than most of what is done to them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.timers.acceptance.processes import ProcessCluster


@pytest.fixture(scope="package")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    with ProcessCluster(tmp_path_factory.mktemp("nodes"), 3, spare=1) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared_cluster: ProcessCluster) -> ProcessCluster:
    """A complete cluster, repaired after the test before."""
    shared_cluster.mend()
    return shared_cluster
