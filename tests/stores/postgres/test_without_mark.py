"""A database in which no transaction can write to the log alone: some speak PostgreSQL's protocol only."""

from __future__ import annotations

import psycopg
import pytest

from chronoline.core.errors import StoreError, TopicExists
from chronoline.log.index.postgres.index import PostgresIndex
from chronoline.stores.postgres import PostgresStore
from chronoline.testing.postgres import PostgresServer
from tests.stores.line import NOW, MakeLine
from tests.stores.postgres.without_mark import forbid_mark, take_mark_away

_SEND = "SELECT chronoline.send(%s, 'sent', %s, 'body', %s)"


@pytest.fixture
def without(mortal_server: PostgresServer, request: pytest.FixtureRequest) -> str:
    url = mortal_server.create_database(request.node.name)
    take_mark_away(url)
    return url


def test_answers_by_a_look_are_given_without_a_mark(without: str) -> None:
    with PostgresStore(without) as store:
        line = MakeLine(store)()
        line.put("a")
        held = line.take()
        assert line.ack(held) == ["done"]
        assert line.ack(held) == ["done"]  # it was done before
        assert store.ensure_topic(line.topic.name, now_ms=NOW) == line.topic
        with pytest.raises(TopicExists):
            store.create_topic(line.topic.name, now_ms=NOW)
        store.await_durable()


def test_send_finds_a_sent_id_without_a_mark(without: str) -> None:
    with PostgresStore(without) as store, psycopg.connect(without) as caller:
        line = MakeLine(store)()
        values = [line.topic.name, NOW, NOW]
        assert caller.execute(_SEND, values).fetchone() != (None,)
        assert caller.execute(_SEND, values).fetchone() == (None,)
        caller.commit()
        assert "sent" in line


def test_index_of_a_log_works_without_a_mark(without: str) -> None:
    index = PostgresIndex(without)
    try:
        assert index.tie("log") == "log"
        assert not index.delete_topic(1)
        assert index.was_committed("none") is None
    finally:
        index.close()


def test_role_that_may_write_no_mark_is_told_so(mortal_server: PostgresServer) -> None:
    url = mortal_server.create_database("forbidden_mark")
    forbid_mark(url, "barred")
    with pytest.raises(StoreError, match="grant EXECUTE"):
        PostgresStore(url.replace("postgres@", "barred@", 1))
