"""A timeline in a store that Spark's tasks can reach, on each such engine."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from chronoline.core.topic import TopicSettings
from chronoline.stores.factory import open_store
from chronoline.testing.postgres import PostgresServer
from tests.spark.formats.timelines import Timeline


@pytest.fixture(scope="session")
def spark_postgres_url(postgres_server: PostgresServer) -> str:
    return postgres_server.create_database("formats")


@pytest.fixture
def timeline(tmp_path: Path) -> Iterator[Timeline]:
    """On SQLite."""
    yield from made(f"sqlite:///{tmp_path}/timeline.db")


@pytest.fixture
def spark_postgres_timeline(spark_postgres_url: str) -> Iterator[Timeline]:
    yield from made(spark_postgres_url)


@pytest.fixture(params=["sqlite", "postgres"])
def any_timeline(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Timeline]:
    """On SQLite, and on PostgreSQL."""
    if request.param == "sqlite":
        yield from made(f"sqlite:///{tmp_path}/timeline.db")
    else:
        yield from made(request.getfixturevalue("spark_postgres_url"))


def made(url: str) -> Iterator[Timeline]:
    now_ms = time.time_ns() // 1_000_000
    with open_store(url) as store:
        topic = store.create_topic(f"t{time.time_ns()}", TopicSettings(buckets=64), now_ms=now_ms)
        yield Timeline(url=url, topic=topic, store=store, now=now_ms)
