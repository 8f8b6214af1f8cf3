"""Purging deleted topics: what a round costs, and when a topic is forgotten."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from chronoline.core.limits import SETTLED_AFTER_MS
from chronoline.core.topic import TopicSettings
from chronoline.databases.postgres import Row
from chronoline.stores.postgres import PostgresStore
from tests.stores.line import NOW, Line, MakeLine

HOUR_MS = 3_600_000
LATE = (
    "INSERT INTO chronoline.messages (topic, bucket, stripe, id, ts, due, version, producer_group) "
    "SELECT %s, n, 0, 'late' || n, %s, %s, %s, 'owners' FROM generate_series(1, 3) AS n"
)


class CountedStore(PostgresStore):
    """A store that counts its statements."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.statements = 0
        database = self.engine.database
        self._run, self._read = database.run, database.read
        database.run = self._count_run  # type: ignore[method-assign]  # before the real one
        database.read = self._count_read  # type: ignore[method-assign]

    def _count_run(self, query: str, values: dict[str, Any], **bounds: int | None) -> list[Row]:
        self.statements += 1
        return self._run(query, values, **bounds)

    def _count_read(self, query: str, values: dict[str, Any]) -> list[Row]:
        self.statements += 1
        return self._read(query, values)

    def purge_statements(self, now_ms: int) -> int:
        """Returns the number of statements of one purge."""
        before = self.statements
        self.purge(now_ms=now_ms)
        return self.statements - before


@pytest.fixture
def counted(new_url: str) -> Iterator[CountedStore]:
    with CountedStore(new_url) as store:
        yield store


def test_deleted_topics_are_emptied_and_forgotten_together(counted: CountedStore) -> None:
    make_line = MakeLine(counted)
    idle = counted.purge_statements(NOW)
    for line in [make_line() for _ in range(20)]:
        line.put("a")
        line.drop()
    assert counted.purge_statements(NOW) <= idle + 3  # the last one for their schedules
    assert counted.purge_statements(NOW) == idle  # they are empty, and wait to be forgotten
    assert counted.purge_statements(NOW + HOUR_MS) <= idle + 3
    assert topics(counted) == []


def test_purge_of_discarding_topics_is_free_without_dead_letters(
    counted: CountedStore,
) -> None:
    make_line = MakeLine(counted)
    idle = counted.purge_statements(NOW)
    lines = [make_line(dead_letters=False, max_attempts=1) for _ in range(5)]
    assert counted.purge_statements(NOW) == idle
    lines[3].put("a")
    lines[3].bury(lines[3].take(), "no use")
    assert counted.purge_statements(NOW + 2 * SETTLED_AFTER_MS) == idle + 1
    assert lines[3].dead() == []


def test_late_messages_go_with_their_topic(counted: CountedStore) -> None:
    line = Line(counted, counted.create_topic("t", TopicSettings(), now_ms=NOW))
    line.drop()
    line.purge()
    with psycopg.connect(counted.engine.database.url, autocommit=True) as connection:
        connection.execute(
            LATE, [line.uid, NOW, NOW, NOW]
        )  # a statement that was under way for long
    line.now += HOUR_MS - 1
    assert line.purge() == 0
    line.now += 1
    assert line.purge(limit=2) == 2
    assert topics(counted) == [line.uid]  # else the third would never be found
    assert line.purge() == 1
    assert topics(counted) == []


def topics(store: PostgresStore) -> list[int]:
    with psycopg.connect(store.engine.database.url) as connection:
        return [uid for (uid,) in connection.execute("SELECT uid FROM chronoline.topics")]
