"""Stores that the previous release made: migrated while it uses them, and used by this one."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from chronoline.databases.postgres import PostgresDatabase
from chronoline.databases.queries import load_migrations
from chronoline.runtime.child_process import LineProcess
from chronoline.runtime.clock import SystemClock
from chronoline.stores.factory import open_store
from chronoline.testing.postgres import PostgresServer
from tests.upgrade import sample
from tests.upgrade.previous import COMMIT

_ROOT = Path(__file__).parents[2]
_PATIENCE_S = 60.0


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/timeline.db"
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return server.create_database(f"upgrade-{uuid4()}")


def test_store_is_migrated_while_the_previous_release_uses_it(
    url: str, previous: dict[str, str]
) -> None:
    now_ms = SystemClock().now_ms()
    command = [sys.executable, "-P", str(Path(sample.__file__)), url, str(now_ms)]
    with LineProcess(command, environment={**os.environ, **previous}) as old:
        old.read_line("filled")
        with open_store(url) as store:
            old.write_line("go on")
            old.read_line("went on")
            assert old.wait() == 0
            topic = store.find_topic("sample")
            assert topic is not None
            late = store.lookup(topic.uid, [f"late-{number}" for number in range(3)])
            assert len(late) == 1  # two of three were acked
            sample.check(store, now_ms)


def test_released_migrations_never_change(previous: dict[str, str]) -> None:
    """A store made by an earlier release has run them: a change would never reach it."""
    folder = Path(previous["PYTHONPATH"])
    released = {path.relative_to(folder) for path in folder.glob("**/migrations/*.sql")}
    assert len(released) > 20, COMMIT
    changed = [
        str(path)
        for path in sorted(released)
        if not (_ROOT / path).exists()
        or (_ROOT / path).read_bytes() != (folder / path).read_bytes()
    ]
    assert changed == []


@pytest.fixture
def two_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """Two packages with migrations: the second has one more, which needs the table for itself."""
    monkeypatch.syspath_prepend(tmp_path)
    names = (f"first_{uuid4().hex}", f"second_{uuid4().hex}")
    for name, count in zip(names, (1, 2), strict=True):
        folder = tmp_path / name / "migrations"
        folder.mkdir(parents=True)
        (tmp_path / name / "__init__.py").touch()
        (folder / "0001_a.sql").write_text("CREATE TABLE upgraded.things (id integer)")
        if count > 1:
            (folder / "0002_b.sql").write_text("ALTER TABLE upgraded.things ADD more integer")
    return names


def test_migration_that_waits_for_a_transaction_holds_up_nobody(
    postgres_server: PostgresServer, two_versions: tuple[str, str]
) -> None:
    url = postgres_server.create_database(f"upgrade-{uuid4()}")
    PostgresDatabase(url, package=two_versions[0], schema="upgraded").close()
    done = threading.Event()

    def migrate() -> None:
        PostgresDatabase(url, package=two_versions[1], schema="upgraded").close()
        done.set()

    migration = threading.Thread(target=migrate)
    waits = (
        "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'upgraded.things'::regclass"
    )
    with psycopg.connect(url) as holder, psycopg.connect(url, autocommit=True) as other:
        holder.execute("SELECT count(*) FROM upgraded.things")
        migration.start()
        while other.execute(waits).fetchone() == (0,):
            pass  # until the migration waits for the holder
        other.execute("SET lock_timeout = '20s'")
        other.execute("INSERT INTO upgraded.things VALUES (1)")  # behind the migration
        assert not done.is_set()
        holder.rollback()
        migration.join(_PATIENCE_S)
        assert other.execute("SELECT id, more FROM upgraded.things").fetchall() == [(1, None)]
    assert done.is_set()
    assert len(load_migrations(two_versions[1])) == 2
