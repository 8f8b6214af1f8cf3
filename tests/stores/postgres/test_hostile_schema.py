"""Others may create in a schema that is searched first: nothing of theirs is called."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

from chronoline.stores.postgres import PostgresStore
from tests.stores.line import NOW, Line, MakeLine, new

Connection = psycopg.Connection[tuple[Any, ...]]
_PATH = "hostile, pg_catalog"
_FIRST = "hostile"
"""The server's own names come first by themselves, but a better match of types wins."""
_HOSTILE = """
    DROP SCHEMA IF EXISTS hostile CASCADE;
    CREATE SCHEMA hostile;
    CREATE TABLE hostile.seen (what text);
    CREATE FUNCTION hostile.octet_length(bytea) RETURNS integer LANGUAGE sql AS $$
        INSERT INTO hostile.seen VALUES ('octet_length'); SELECT pg_catalog.octet_length($1) $$;
    CREATE FUNCTION hostile.unnest(bytea[]) RETURNS SETOF bytea LANGUAGE sql AS $$
        INSERT INTO hostile.seen VALUES ('unnest'); SELECT pg_catalog.unnest($1) $$;
    CREATE FUNCTION hostile.joined(bigint, text) RETURNS text LANGUAGE sql AS $$
        INSERT INTO hostile.seen VALUES ('||'); SELECT pg_catalog.concat($1, $2) $$;
    CREATE OPERATOR hostile.|| (LEFTARG = bigint, RIGHTARG = text, FUNCTION = hostile.joined);
    CREATE FUNCTION hostile.current_setting(text) RETURNS text LANGUAGE sql AS $$
        INSERT INTO hostile.seen VALUES ('current_setting'); SELECT pg_catalog.current_setting($1) $$;
"""


@pytest.fixture
def hostile(postgres_url: str) -> Iterator[Connection]:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(_HOSTILE)
        yield connection
        connection.execute("DROP SCHEMA hostile CASCADE")


def _seen(hostile: Connection) -> list[str]:
    return [what for (what,) in hostile.execute("SELECT DISTINCT what FROM hostile.seen")]


def test_the_schema_is_hostile(hostile: Connection) -> None:
    hostile.execute(f"SET search_path = {_PATH}".encode())
    hostile.execute("SELECT octet_length(''::bytea), 1::bigint || 'x', current_setting('port')")
    hostile.execute("SELECT unnest(ARRAY[''::bytea])")
    assert sorted(_seen(hostile)) == ["current_setting", "octet_length", "unnest", "||"]


@pytest.mark.parametrize("path", [_PATH, _FIRST])
def test_send_calls_nothing_of_a_caller_s_schema(
    hostile: Connection, pg_line: Line, postgres_url: str, path: str
) -> None:
    with psycopg.connect(postgres_url) as caller:
        caller.execute(f"SET search_path = {path}".encode())
        caller.execute(
            "SELECT chronoline.send(%s, 'a', %s, 'body', %s)", [pg_line.topic.name, NOW, NOW]
        )
        found = caller.execute("SHOW search_path").fetchone()
    assert found == (path,)
    assert "a" in pg_line
    assert _seen(hostile) == []


def test_create_in_calls_nothing_of_a_caller_s_schema(
    hostile: Connection, pg: PostgresStore, pg_line: Line, postgres_url: str
) -> None:
    with psycopg.connect(postgres_url) as caller:
        caller.execute(f"SET search_path = {_PATH}".encode())
        for _ in range(2):
            pg.create_in(caller, pg_line.uid, [new("a")], now_ms=NOW)
        found = caller.execute("SHOW search_path").fetchone()
    assert found == (_PATH,)
    assert "a" in pg_line
    assert _seen(hostile) == []


def test_failed_create_in_leaves_the_caller_s_path(
    hostile: Connection, pg: PostgresStore, postgres_url: str
) -> None:
    with psycopg.connect(postgres_url) as caller:
        caller.execute(f"SET search_path = {_PATH}".encode())
        with pytest.raises(LookupError):
            pg.create_in(caller, 1, [new("a")], now_ms=NOW)
        assert caller.execute("SHOW search_path").fetchone() == (_PATH,)


def test_store_calls_nothing_of_a_schema_of_its_role(
    hostile: Connection, postgres_url: str
) -> None:
    mark = "&" if "?" in postgres_url else "?"
    path = quote(f"-csearch_path={_PATH.replace(' ', '')}")
    with PostgresStore(f"{postgres_url}{mark}options={path}") as store:
        line = MakeLine(store)()
        line.put("a")
        assert line.take().id == "a"
    assert _seen(hostile) == []
