"""The probe of a PostgreSQL store: whether it takes changes, and not only answers."""

from __future__ import annotations

import psycopg
import pytest

from chronoline.core.errors import StoreUnavailable
from chronoline.stores.contract import Reach
from chronoline.stores.postgres import PostgresStore
from chronoline.testing.postgres import PostgresServer
from tests.stores.postgres.absent_standby import absent_standby, commits_that_wait
from tests.stores.postgres.without_mark import take_mark_away

_PATIENCE_S = 60.0
_SHORT_S = 0.1


def reaches(store: PostgresStore, wanted: Reach) -> None:
    """Asks until the probe gets this far."""
    while store.probe(patience_s=_SHORT_S) is not wanted:
        pass


def test_store_takes_changes(pg: PostgresStore) -> None:
    assert pg.probe(patience_s=_PATIENCE_S) is Reach.CHANGES


def test_probe_leaves_no_row_behind(new_url: str) -> None:
    def rows() -> object:
        counted = "SELECT sum(n_tup_ins + n_tup_upd + n_tup_del) FROM pg_stat_user_tables"
        return connection.execute(counted).fetchone()

    with PostgresStore(new_url) as store, psycopg.connect(new_url, autocommit=True) as connection:
        before = rows()
        for _ in range(10):
            assert store.probe(patience_s=_PATIENCE_S) is Reach.CHANGES
        assert rows() == before


def test_store_whose_standby_is_away_takes_no_changes(mortal_server: PostgresServer) -> None:
    url = mortal_server.create_database("standby-away")
    with PostgresStore(url) as store:
        assert store.probe(patience_s=_PATIENCE_S) is Reach.CHANGES
        with absent_standby(url):
            reaches(store, Reach.READS)
            assert store.list_topics() == []
            for _ in range(5):
                assert store.probe(patience_s=_SHORT_S) is Reach.READS
            assert commits_that_wait(url) == 1  # it waits for the same commit all the time
        reaches(store, Reach.CHANGES)


def test_silent_server_is_noticed_and_found_again(mortal_server: PostgresServer) -> None:
    with PostgresStore(mortal_server.create_database("silent")) as store:
        assert store.probe(patience_s=_PATIENCE_S) is Reach.CHANGES
        mortal_server.pause()
        try:
            assert store.probe(patience_s=_SHORT_S) is Reach.NOTHING
            with pytest.raises(StoreUnavailable):  # no new connection is made
                store.probe(patience_s=_SHORT_S)
        finally:
            mortal_server.resume()
        assert store.probe(patience_s=_PATIENCE_S) is Reach.CHANGES


def test_restarted_server_is_found_at_once(mortal_server: PostgresServer) -> None:
    with PostgresStore(mortal_server.create_database("restarted")) as store:
        assert store.probe(patience_s=_PATIENCE_S) is Reach.CHANGES
        mortal_server.kill()
        try:
            with pytest.raises(StoreUnavailable):
                store.probe(patience_s=_PATIENCE_S)
        finally:
            mortal_server.start()
        assert store.probe(patience_s=_PATIENCE_S) is Reach.CHANGES


def test_server_without_the_function_is_asked_by_a_read(mortal_server: PostgresServer) -> None:
    url = mortal_server.create_database("without-function")
    take_mark_away(url)
    with PostgresStore(url) as store:
        assert store.probe(patience_s=_PATIENCE_S) is Reach.CHANGES
        assert store.probe(patience_s=_PATIENCE_S) is Reach.CHANGES
