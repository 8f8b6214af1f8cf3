"""Checks of a store: reachable, of which schema, safe against a crash, healthy. It is not migrated."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from chronoline.cli.doctor.checks import REACH, Diagnosis, ok, problem, warning
from chronoline.cli.doctor.machine import open_finding
from chronoline.core.errors import StoreError, StoreUnavailable
from chronoline.databases.queries import load_migrations
from chronoline.databases.sqlite import TIMELINE_FILE
from chronoline.databases.sqlite_facts import SqliteFacts
from chronoline.databases.sqlite_facts import read_facts as read_sqlite
from chronoline.runtime.store_url import POSTGRES, scheme_of, sqlite_path

if TYPE_CHECKING:
    from chronoline.databases.postgres_facts import PostgresFacts

_ENDS = ("", "-wal", "-shm")
_ANSWER_S = 5.0
_CHECK_S = 5.0
_SCHEMA = "chronoline"
_HOT_INDEXES = {"messages_due", "messages_held", "messages_owned", "messages_dead"}
_MOST_SHARE = 0.8
"""Of the server's connections: above that a new node may find none."""
_OLD_TRANSACTION_S = 300
_SLOW_ANSWER_MS = 20
_MUCH_DEAD, _DEAD_ROWS = 4, 100_000
"""Dead rows that slow reads: this many times the live ones, and this many at least."""
_MUCH_LOG = 1024**3


def check_store(url: str, *, clock_bound_ms: int) -> Diagnosis:
    """Checks the store that a URL names."""
    scheme = scheme_of(url)
    if scheme == "memory":
        return warning(
            "messages are kept in memory, and lost with the process",
            "name another store, unless this is a trial",
        )
    if scheme in POSTGRES:
        return _check_postgres(url, clock_bound_ms)
    return _check_sqlite(Path(sqlite_path(url)))


def _schema_finding(found: int | None, engine: str) -> Diagnosis | None:
    """A finding for a schema that differs from the one of this version."""
    known = len(load_migrations(f"chronoline.stores.{engine}"))
    if found == known:
        return None
    if not found:
        return ok("there are no tables yet: the first node or pipe makes them")
    if found > known:
        return problem(
            f"the schema has version {found}, and this Chronoline knows up to {known}",
            "upgrade Chronoline on this machine, or name another store",
        )
    return warning(
        f"the schema has version {found}, and this Chronoline migrates it to {known} when it starts",
        "make a backup first; older processes go on, but do not start again (docs/operations.md)",
    )


# SQLite


def _check_sqlite(path: Path) -> Diagnosis:
    if not path.exists():
        return ok(f"{str(path)!r} is not there yet: the first node makes it")
    try:
        facts = read_sqlite(path, check_s=_CHECK_S)
    except StoreUnavailable:
        raise
    except StoreError as error:
        return problem(str(error), "name another file, or stop the node and restore a backup")
    return (
        _damage(path, facts)
        or _schema_finding(facts.schema_version, "sqlite")
        or open_finding(*(path.with_name(f"{path.name}{end}") for end in _ENDS))
        or _healthy(facts)
    )


def _damage(path: Path, facts: SqliteFacts) -> Diagnosis | None:
    if facts.has_tables and facts.application_id != TIMELINE_FILE:
        return problem(
            f"{str(path)!r} is a database of another program, or a log", "name another file"
        )
    if facts.damage:
        return problem(
            f"{str(path)!r} is damaged: {facts.damage}", "stop the node and restore a backup"
        )
    return None


def _healthy(facts: SqliteFacts) -> Diagnosis:
    checked = "no damage found" if facts.is_checked else "too large to look for damage here"
    words = f"SQLite, schema {facts.schema_version}, {facts.size_bytes / 1e6:,.1f} MB, {checked}"
    if facts.log_bytes > _MUCH_LOG:
        return warning(
            f"{words}; its write-ahead log has {facts.log_bytes / 1e9:,.1f} GB",
            "end the process that has read for so long that the log could not be moved into the file",
        )
    return ok(words)


# PostgreSQL


def _check_postgres(url: str, clock_bound_ms: int) -> Diagnosis:
    from chronoline.databases.postgres import split_notify  # noqa: PLC0415 - its driver is optional
    from chronoline.databases.postgres_facts import read_facts  # noqa: PLC0415 - see above

    address, _ = split_notify(url)
    try:
        facts = read_facts(address, schema=_SCHEMA, timeout_s=_ANSWER_S)
    except StoreUnavailable as error:
        return problem(str(error), f"{REACH}; user and password must be right, too")
    words = f"PostgreSQL {facts.version.split()[0]}"
    for found in (*_unusable(facts, clock_bound_ms), *_unhealthy(facts)):
        return Diagnosis(found.state, f"{words}: {found.words}", found.remedy)
    return ok(
        f"{words}, schema {facts.schema_version}, {facts.size_bytes / 1e6:,.1f} MB, an answer takes "
        f"{facts.answer_ms:.1f} ms, clock {facts.clock_offset_ms:+} ms"
    )


def _unusable(facts: PostgresFacts, clock_bound_ms: int) -> Iterator[Diagnosis]:
    """Problems that keep a broker from working, or from keeping its word."""
    if facts.is_standby:
        yield problem(
            "it is a standby, which cannot be written",
            "name the primary, or add ?target_session_attrs=read-write with all hosts to the URL",
        )
    if facts.encoding != "UTF8":
        yield problem(
            f"the database is encoded as {facts.encoding}", "make one with ENCODING 'UTF8'"
        )
    if facts.schema_version is None and not facts.may_create:
        yield problem(
            f"this role may not make the schema {_SCHEMA}",
            f"grant it CREATE on the database, or make it: CREATE SCHEMA {_SCHEMA} AUTHORIZATION …",
        )
    unsafe = [name for name in ("fsync", "full_page_writes") if facts.settings[name] != "on"]
    if unsafe:
        yield problem(
            f"{' and '.join(unsafe)} is off: acknowledged messages are lost in a crash",
            f"set {' and '.join(f'{name} = on' for name in unsafe)}",
        )
    if abs(facts.clock_offset_ms) - facts.clock_error_ms > clock_bound_ms:
        yield problem(
            f"its clock is {facts.clock_offset_ms:+,} ms off this machine's, and clock_bound_ms is "
            f"{clock_bound_ms:,}",
            "set the clocks of both machines: a broker here would change nothing",
        )
    schema = _schema_finding(facts.schema_version, "postgres")
    if schema is not None:
        yield schema
    broken = [*facts.invalid_indexes, *sorted(_HOT_INDEXES - facts.indexes)]
    if broken:
        yield problem(
            f"the index {broken[0]} is missing or invalid, so that whole topics are read",
            f"REINDEX INDEX CONCURRENTLY {_SCHEMA}.{broken[0]}, or restore it from a dump of the schema",
        )


def _unhealthy(facts: PostgresFacts) -> Iterator[Diagnosis]:
    """Conditions that make it slow, or will."""
    most = int(facts.settings["max_connections"])
    if facts.connections > most * _MOST_SHARE:
        yield warning(
            f"{facts.connections} of {most} connections are taken",
            "raise max_connections: each broker takes up to 10",
        )
    if facts.settings["autovacuum"] != "on":
        yield warning("autovacuum is off", "set autovacuum = on: dead rows slow every read")
    if facts.oldest_transaction_s > _OLD_TRANSACTION_S:
        yield warning(
            f"a transaction is open for {facts.oldest_transaction_s / 60:,.0f} minutes, and no row that "
            "died since can be removed",
            "end it: SELECT pid, query FROM pg_stat_activity ORDER BY xact_start",
        )
    if facts.dead_rows > max(_DEAD_ROWS, _MUCH_DEAD * facts.live_rows):
        yield warning(
            f"{facts.dead_rows:,} dead rows beside {facts.live_rows:,} live ones",
            f"VACUUM {_SCHEMA}.messages, and look for what keeps autovacuum from it",
        )
    if facts.answer_ms > _SLOW_ANSWER_MS:
        yield warning(
            f"an answer takes {facts.answer_ms:.0f} ms",
            "bring broker and server closer together: each delivery waits for several answers",
        )
