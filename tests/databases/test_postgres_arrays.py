"""Arrays round-trip through a real PostgreSQL."""

from collections.abc import Iterator
from enum import IntEnum, StrEnum
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronoline.databases.postgres import Connection
from chronoline.databases.postgres_arrays import ListDumper
from chronoline.testing.postgres import PostgresServer

numbers = st.integers(-(2**63), 2**63 - 1)
texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
columns = st.one_of(
    *(
        st.tuples(st.just(kind), st.lists(values | st.none()))
        for kind, values in (("bigint", numbers), ("text", texts), ("bytea", st.binary()))
    )
)


@pytest.fixture(scope="module")
def connection(postgres_server: PostgresServer) -> Iterator[Connection]:
    with psycopg.connect(postgres_server.url(), autocommit=True) as connection:
        connection.adapters.register_dumper(list, ListDumper)
        yield connection


def sent(connection: Connection, kind: str, values: list[Any]) -> list[Any]:
    rows = connection.execute(f"SELECT unnest(%b::{kind}[])".encode(), [values]).fetchall()
    return [value for (value,) in rows]


@given(column=columns)
def test_values_round_trip(connection: Connection, column: tuple[str, list[Any]]) -> None:
    kind, values = column
    assert sent(connection, kind, values) == values


@pytest.mark.parametrize("kind", ["bigint", "integer", "smallint", "text", "bytea"])
@pytest.mark.parametrize("values", [[], [None], [None, None]])
def test_an_array_without_values_is_one_of_any_type(
    connection: Connection, kind: str, values: list[None]
) -> None:
    assert sent(connection, kind, values) == values


@pytest.mark.parametrize(("kind", "bits"), [("integer", 31), ("smallint", 15)])
def test_numbers_are_cast_to_what_the_statement_says(
    connection: Connection, kind: str, bits: int
) -> None:
    fits = [-(2**bits), None, 0, 2**bits - 1]
    assert sent(connection, kind, fits) == fits
    with pytest.raises(psycopg.errors.NumericValueOutOfRange):
        sent(connection, kind, [2**bits])


class Group(StrEnum):
    BILLING = "billing"


class Number(IntEnum):
    ONE = 1


def test_subclasses_of_str_and_int_are_sent_as_such(connection: Connection) -> None:
    assert sent(connection, "text", [Group.BILLING, "other"]) == ["billing", "other"]
    assert sent(connection, "bigint", [Number.ONE, 2]) == [1, 2]


@pytest.mark.parametrize("value", [0.5, True])
def test_elements_of_another_type_are_refused(connection: Connection, value: object) -> None:
    kind = type(value).__name__
    with pytest.raises(psycopg.DataError, match=f"arrays hold numbers, texts or bytes, not {kind}"):
        sent(connection, "bigint", [value])
