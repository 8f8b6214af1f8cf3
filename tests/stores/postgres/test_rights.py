"""The rights of roles in the database, as the page on the library says them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest

from chronoline.core.topic import TopicSettings
from chronoline.databases.postgres_facts import read_facts
from chronoline.stores.postgres import PostgresStore
from chronoline.testing.postgres import PostgresServer
from tests.stores.line import NOW, MakeLine

_PAGE = Path("docs/library.md").read_text()
_ROLES = ("chronoline", "billing")


def _sql(beginning: str) -> str:
    """The block of the page that begins like this."""
    (found,) = re.findall(rf"```sql\n({re.escape(beginning)}.*?)```", _PAGE, re.DOTALL)
    return str(found)


@pytest.fixture
def database(postgres_server: PostgresServer, request: pytest.FixtureRequest) -> Iterator[str]:
    """A database whose role `chronoline` has the rights of the page, and `billing` none yet."""
    name = f"rights_{len(request.node.name)}"
    url = postgres_server.create_database(name)
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(f"REVOKE CREATE, TEMPORARY ON DATABASE {name} FROM PUBLIC".encode())
        admin.execute("CREATE ROLE billing")
        admin.execute(_sql("CREATE ROLE").encode())
        yield url
    with psycopg.connect(url, autocommit=True) as admin:
        for role in _ROLES:
            admin.execute(f"DROP OWNED BY {role} CASCADE".encode())
            admin.execute(f"DROP ROLE {role}".encode())


def _as_chronoline(url: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}options={quote('-crole=chronoline')}"


def test_owner_of_the_schema_needs_no_right_to_the_database(database: str) -> None:
    url = _as_chronoline(database)
    assert read_facts(url, schema="chronoline", timeout_s=5).may_create
    with PostgresStore(url) as store:
        line = MakeLine(store)()
        line.put("a")
        assert line.take().id == "a"
    with psycopg.connect(database) as admin:
        owners = "SELECT DISTINCT tableowner FROM pg_tables WHERE schemaname = 'chronoline'"
        assert admin.execute(owners).fetchall() == [("chronoline",)]


def test_function_of_the_owner_lets_a_role_send_to_one_topic_and_see_nothing(database: str) -> None:
    with PostgresStore(_as_chronoline(database)) as store:
        topic = store.create_topic("reminders", TopicSettings(), now_ms=NOW)
        with psycopg.connect(database, autocommit=True) as admin:
            admin.execute(_sql("CREATE SCHEMA reminders").encode())
        with psycopg.connect(database) as caller:
            caller.execute("SET ROLE billing")
            sent = "SELECT reminders.send('a', %s, 'body', %s)"
            assert caller.execute(sent.encode(), [NOW, NOW]).fetchone() == (NOW,)
        found = store.lookup(topic.uid, ["a"])
        assert found["a"].producer_group == "billing"
        for refused in ("TABLE chronoline.messages", "SELECT chronoline.send('t', 'a', 0, '', 0)"):
            with psycopg.connect(database) as caller:
                caller.execute("SET ROLE billing")
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    caller.execute(refused.encode())
