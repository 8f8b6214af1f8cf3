"""Logs on every pair of engines."""

import itertools

import pytest

from chronoline.log.factory import prepare

PLACES = [("folder", "sqlite"), ("folder", "postgres"), ("s3", "postgres"), ("s3", "dynamodb")]

_numbers = itertools.count()


def place(request: pytest.FixtureRequest, objects: str, index: str) -> str:
    """Returns the connection string of an empty log."""
    number = next(_numbers)
    return prepare(_objects_at(request, objects, number), _index_at(request, index, number))


def _objects_at(request: pytest.FixtureRequest, engine: str, number: int) -> str:
    if engine == "folder":
        return f"file://{request.getfixturevalue('tmp_path')}/log"
    request.getfixturevalue("aws")
    url: str = request.getfixturevalue("s3_server").url("events", f"log-{number}")
    return url


def _index_at(request: pytest.FixtureRequest, engine: str, number: int) -> str | None:
    url: str
    if engine == "sqlite":
        return None
    if engine == "postgres":
        url = request.getfixturevalue("postgres_server").create_database(f"log-{number}")
    else:
        request.getfixturevalue("aws")
        url = request.getfixturevalue("dynamodb_server").url(f"log-{number}")
    return url
