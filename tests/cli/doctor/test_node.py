"""`chronoline doctor` on the settings of a node, with real stores, an etcd, certificates and tokens."""

from __future__ import annotations

import asyncio
import json
import socket
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm
from typer.testing import CliRunner

from chronoline.broker.tokens import Tokens
from chronoline.cli.main import command_line
from chronoline.coordination.cluster_store import name_store
from chronoline.coordination.factory import open_coordination
from chronoline.core.errors import InvalidInput
from chronoline.node.logs import audit_to_file
from chronoline.node.settings import NodeSettings
from chronoline.runtime.child_process import free_addresses
from chronoline.runtime.clock import SystemClock
from chronoline.stores.factory import open_store
from chronoline.testing.etcd import EtcdServer
from chronoline.testing.postgres import PostgresServer
from tests.certificates import Authority, make_certificate
from tests.cli.doctor.conftest import Doctor

_DAY_MS = 86_400_000


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a server that accepts connections, and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def sqlite(tmp_path: Path) -> Path:
    """A store in a file."""
    path = tmp_path / "data" / "timeline.db"
    open_store(f"sqlite:///{path}").close()
    return path


def _change(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(statement)


def test_new_node_is_fine_and_nothing_is_made(doctor: Doctor, tmp_path: Path) -> None:
    found = doctor()
    wrong = {part: each for part, each in found.items() if each["state"] == "problem"}
    assert wrong == {}
    assert {"installation", "clock", "data folder", "settings", "store", "access"} <= found.keys()
    assert list(tmp_path.iterdir()) == []


def test_output_for_people_has_a_line_for_each_check(doctor: Doctor, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "timeline.db").write_bytes(b"no database at all" * 100)
    result = CliRunner().invoke(command_line(["doctor"]), ["doctor"])
    lines = result.stdout.splitlines()
    assert result.exit_code == 1
    assert len(lines) == len(doctor()) + 1
    (store,) = [line for line in lines if line[1:].startswith(" store: ")]
    assert store.startswith("✗ store: ")
    assert lines[-1].startswith(f"{len(lines) - 1} checks: 1 problem, ")


@pytest.mark.parametrize("file", ["missing/audit.log", "."])
def test_audit_file_that_cannot_be_written(doctor: Doctor, tmp_path: Path, file: str) -> None:
    given = tmp_path / file
    settings = NodeSettings(audit_file=str(given))
    with pytest.raises(InvalidInput, match="cannot be written"):  # so `up` does not start
        audit_to_file(settings)
    assert doctor("--set", f"audit_file={given}")["audit_file"]["state"] == "problem"


@pytest.mark.parametrize(
    ("listed", "state", "words"),
    [
        (None, "problem", "cannot be read"),
        ('staying = ["127.0.0.1:7001"]', "problem", "does not name this node"),
        ('staying = ["127.0.0.1:7000", "127.0.0.1:7001"]', "ok", "names 2 nodes"),
    ],
)
def test_list_of_nodes(
    doctor: Doctor, tmp_path: Path, listed: str | None, state: str, words: str
) -> None:
    nodes = tmp_path / "nodes.toml"
    if listed is not None:
        nodes.write_text(listed)
    given = ("roles=timers", "timers=127.0.0.1:7000", f"replication.nodes={nodes}")
    found = doctor(*(f"--set={each}" for each in given))["replication.nodes"]
    assert found["state"] == state
    assert words in found["words"]


def test_audit_file_is_not_made(doctor: Doctor, tmp_path: Path) -> None:
    file = tmp_path / "audit.log"
    assert doctor("--set", f"audit_file={file}")["audit_file"]["state"] == "ok"
    assert list(tmp_path.iterdir()) == []


def test_wrong_settings_are_one_line_each_and_the_machine_is_looked_at(doctor: Doctor) -> None:
    found = doctor("--set", "limits.connections=many")
    assert found["settings"]["state"] == "problem"
    assert "limits.connections (flag limits.connections)" in found["settings"]["words"]
    assert "clock" in found


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["insecure=true"], "insecure"),
        (["roles=timers", "replication.copies=2"], "replication.copies"),
        (["patience_ms=500"], "patience_ms"),
        (["clock=store"], "clock is store"),
    ],
)
def test_contradictions_are_warned_of(doctor: Doctor, settings: list[str], words: str) -> None:
    found = doctor(*(part for each in settings for part in ("--set", each)))["settings"]
    assert found["state"] == "warning"
    assert words in found["words"]
    assert found["remedy"]


def test_settings_that_need_more_descriptors_than_there_are(doctor: Doctor) -> None:
    found = doctor("--set", "limits.connections=100000", "--set", "callbacks.in_all=100000")
    if found["descriptors"]["state"] == "ok":  # pragma: no cover
        pytest.skip("this machine allows so many")
    assert found["descriptors"]["state"] == "problem"
    assert "ulimit" in found["descriptors"]["remedy"]


def test_address_in_use_is_named(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch, silent: str
) -> None:
    monkeypatch.setenv("CHRONOLINE_NODE_GRPC", silent)
    assert silent in doctor()["addresses"]["words"]


def test_missing_library_is_one_line_with_its_extra(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg_pool", None)
    found = doctor("--store", "postgresql://127.0.0.1:1/x")["settings"]
    assert found["words"] == "the store is PostgreSQL, and psycopg_pool is not installed"
    assert found["remedy"] == "pip install 'chronoline[postgres]'"


def test_bytecode_that_is_forbidden_is_named(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path / "elsewhere"))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    found = doctor()["bytecode"]
    assert found["state"] == "warning"
    assert "PYTHONDONTWRITEBYTECODE" in found["remedy"]


def test_folder_that_cannot_be_written(doctor: Doctor, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    found = doctor("--store", f"sqlite:///{tmp_path}/file/timeline.db")["disk of the store"]
    assert found["state"] == "problem"


def test_folder_of_a_broker_without_files_need_not_be_writable(doctor: Doctor) -> None:
    options = ["--data", "/proc/none", "--store", "postgresql://127.0.0.1:1/x"]
    assert doctor(*options)["data folder"]["state"] == "ok"
    timers = "roles=overseer,carrier,timers"
    assert doctor(*options, "--set", timers)["data folder"]["state"] == "problem"


# Access


def test_certificate_about_to_expire_is_warned_of(doctor: Doctor, tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)  # for a day
    set_tls = ["--set", f"tls_certificate={certificate}", "--set", f"tls_key={key}"]
    found = doctor(*set_tls)["certificate"]
    assert found["state"] == "warning"
    assert "node.pem: valid until" in found["words"]


def test_tokens_that_expire_or_others_can_read(doctor: Doctor, tmp_path: Path) -> None:
    now_ms = SystemClock().now_ms()
    tokens = Tokens(tmp_path / "data" / "tokens.json", lambda: now_ms - 2 * _DAY_MS)
    tokens.create("ops")
    assert doctor()["access"]["state"] == "ok"
    tokens.create("old", expires_ms=now_ms - _DAY_MS)
    assert "'old'" in doctor()["access"]["words"]
    tokens.create("young", expires_ms=now_ms + _DAY_MS)
    assert "'young'" in doctor()["access"]["words"]
    (tmp_path / "data" / "tokens.json").chmod(0o640)
    assert "chmod 600" in doctor()["access"]["remedy"]


def test_tokens_of_another_owner_are_read_by_the_group(
    doctor: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Tokens(tmp_path / "data" / "tokens.json").create("ops")
    (tmp_path / "data" / "tokens.json").chmod(0o440)  # a Secret of Kubernetes
    monkeypatch.setattr("os.geteuid", lambda: 10_001)
    assert doctor()["access"]["state"] == "ok"
    (tmp_path / "data" / "tokens.json").chmod(0o444)
    assert doctor()["access"]["state"] == "problem"


def test_access_by_other_proofs_than_tokens_is_told(doctor: Doctor, tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    public = ec.generate_private_key(ec.SECP256R1()).public_key()
    keys.write_text(json.dumps({"keys": [ECAlgorithm.to_jwk(public, as_dict=True)]}))
    jwt = ("--set=jwt.issuer=https://login.example", "--set=jwt.audience=chronoline")
    by_file = doctor(*jwt, f"--set=jwt.keys={keys}")["access"]
    assert (by_file["state"], "need a JWT of https://login.example" in by_file["words"]) == (
        "ok",
        True,
    )
    away = doctor(*jwt, f"--set=jwt.keys=https://{free_addresses(1)[0]}/keys")["access"]
    assert (away["state"], "could not be fetched" in away["words"]) == ("problem", True)
    authority = Authority(tmp_path)
    certificate, key = authority.issue("node")
    files = (f"--set=tls_certificate={certificate}", f"--set=tls_key={key}")
    by_certificate = doctor(*files, f"--set=tls_client_ca={authority.file}")["access"]
    assert "every client with a certificate" in by_certificate["words"]


# SQLite


def test_sqlite_store_is_checked_while_it_is_used(doctor: Doctor, sqlite: Path) -> None:
    with open_store(f"sqlite:///{sqlite}"):
        assert "no damage found" in doctor()["store"]["words"]


def test_store_that_every_user_can_read_is_warned_of(doctor: Doctor, sqlite: Path) -> None:
    assert sqlite.parent.stat().st_mode & 0o777 == 0o700
    sqlite.parent.chmod(0o755)
    sqlite.chmod(0o644)
    found = doctor()["store"]
    assert found["state"] == "warning"
    assert found["remedy"].startswith(f"chmod 600 {sqlite}")
    folder = doctor()["data folder"]
    assert (folder["state"], folder["remedy"]) == ("warning", f"chmod 700 {sqlite.parent}")


def test_files_beside_the_store_that_every_user_can_read_are_warned_of(
    doctor: Doctor, tmp_path: Path
) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o755)
    audit, log = folder / "audit.log", folder / "log"
    audit.touch(0o644)
    log.mkdir()
    log.chmod(0o755)
    (log / "index.db").touch(0o644)
    found = doctor(f"--set=audit_file={audit}", f"--set=logs={log}")
    assert found["audit_file"]["remedy"] == f"chmod 600 {audit}"
    assert found["log"]["remedy"] == f"chmod 700 {log}"
    audit.chmod(0o600)
    log.chmod(0o700)
    found = doctor(f"--set=audit_file={audit}", f"--set=logs={log.as_uri()}")
    assert (found["audit_file"]["state"], found["log"]["state"]) == ("ok", "ok")


def test_older_schema_is_reported_and_not_migrated(doctor: Doctor, sqlite: Path) -> None:
    _change(sqlite, "PRAGMA user_version = 1")
    found = doctor()["store"]
    assert found["state"] == "warning"
    assert "backup" in found["remedy"]
    with closing(sqlite3.connect(sqlite)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (1,)


def test_newer_schema_is_a_problem(doctor: Doctor, sqlite: Path) -> None:
    _change(sqlite, "PRAGMA user_version = 999")
    assert "upgrade Chronoline" in doctor()["store"]["remedy"]


def test_damaged_file_is_a_problem(doctor: Doctor, sqlite: Path) -> None:
    with sqlite.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 4096)
    assert doctor()["store"]["state"] == "problem"
    sqlite.write_bytes(b"\xff" * 4096)
    found = doctor()["store"]
    assert (found["state"], "restore a backup" in found["remedy"]) == ("problem", True)


def test_file_of_another_program_is_a_problem(doctor: Doctor, tmp_path: Path) -> None:
    _change(tmp_path / "other.db", "CREATE TABLE theirs (id)")
    found = doctor("--store", f"sqlite:///{tmp_path}/other.db")["store"]
    assert "another program" in found["words"]


# PostgreSQL and etcd


def test_postgres_store_before_and_after_its_tables(
    doctor: Doctor, postgres_server: PostgresServer
) -> None:
    url = postgres_server.create_database(f"doctor-{uuid4()}")
    assert "no tables yet" in doctor("--store", url)["store"]["words"]
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT to_regclass('chronoline.messages')").fetchone() == (None,)
    open_store(url).close()
    assert doctor("--store", url)["store"]["state"] == "ok"
    with psycopg.connect(url) as connection:
        connection.execute("UPDATE chronoline.schema_version SET version = 1")
    assert doctor("--store", url)["store"]["state"] == "warning"
    with psycopg.connect(url) as connection:
        connection.execute("UPDATE chronoline.schema_version SET version = 999")
    assert doctor("--store", url)["store"]["state"] == "problem"


def test_missing_index_is_a_problem(doctor: Doctor, postgres_server: PostgresServer) -> None:
    url = postgres_server.create_database(f"doctor-{uuid4()}")
    open_store(url).close()
    with psycopg.connect(url) as connection:
        connection.execute("DROP INDEX chronoline.messages_due")
    found = doctor("--store", url)["store"]
    assert found["state"] == "problem"
    assert "messages_due" in found["words"]


def test_postgres_server_that_does_not_answer(
    doctor: Doctor, silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHRONOLINE_NODE_STORE", f"postgresql://me:secret@{silent}/x")
    found = doctor("--timeout", "1.5")
    assert found["store"]["words"] == "no answer within 1.5 s"
    assert "secret" not in str(found)


def test_etcd_of_another_store_is_a_problem(
    doctor: Doctor, postgres_server: PostgresServer, etcd_server: EtcdServer
) -> None:
    url = postgres_server.create_database(f"doctor-{uuid4()}")
    cluster = etcd_server.url(f"doctor-{uuid4()}")
    with open_store(url) as store:
        identity = store.identity()

    async def name(identity: str) -> None:
        async with open_coordination(cluster) as coordination:
            await name_store(coordination, identity)

    options = ["--store", url, "--set", f"coordination={cluster}", "--timeout", "30"]
    assert doctor(*options)["etcd"]["state"] == "ok"
    asyncio.run(name(f"not {identity}"))
    found = doctor(*options)["etcd"]
    assert (found["state"], "another store" in found["words"]) == ("problem", True)


def test_etcd_that_is_away_is_a_problem(doctor: Doctor, silent: str) -> None:
    store = "postgresql://127.0.0.1:1/x"
    options = ["--set", f"coordination=etcd://{silent}/p", "--store", store, "--timeout", "1"]
    found = doctor(*options)
    assert (found["etcd"]["state"], found["store"]["state"]) == ("problem", "problem")
    assert "127.0.0.1:1" not in found["etcd"]["words"]
    assert "address is right" in found["store"]["remedy"]


def test_etcd_that_is_not_there_has_a_remedy(doctor: Doctor) -> None:
    store = "postgresql://127.0.0.1:1/x"
    found = doctor("--set", "coordination=etcd://127.0.0.1:1/p", "--store", store)["etcd"]
    assert (found["state"], "it runs" in found["remedy"]) == ("problem", True)
