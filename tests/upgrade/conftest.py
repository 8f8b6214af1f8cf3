"""The previous release, unpacked once."""

from __future__ import annotations

import pytest

from tests.upgrade.previous import unpack


@pytest.fixture(scope="session")
def previous(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment in which the interpreter imports the previous release."""
    return unpack(tmp_path_factory.mktemp("previous"))
