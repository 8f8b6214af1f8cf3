"""Objects in a folder, on a real S3 server, and on what speaks like Google's."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from chronoline.log.contract import Objects
from chronoline.log.objects.local import LocalObjects
from chronoline.log.objects.remote import RemoteObjects
from tests.log.objects.bucket import s3, s3_url
from tests.log.objects.google import gs_url

__all__ = ["gs_url", "s3", "s3_url"]  # fixtures

ENGINES = ("local", "s3", "gs")


@pytest.fixture(params=ENGINES)
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Objects]:
    """An engine with nothing in it."""
    made: Objects
    if request.param == "local":
        made = LocalObjects(tmp_path / "objects")
    else:
        made = RemoteObjects(request.getfixturevalue(f"{request.param}_url"))
    yield made
    made.close()
