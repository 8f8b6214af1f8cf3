"""The beanstalkd server: start, stop, crash and hang on demand; and the source of its program."""

import platform
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil  # type: ignore[import-untyped]  # it ships no types
import pytest

from chronoline.core.errors import ChronolineError, MissingExtra
from chronoline_bench.servers.beanstalkd import BeanstalkdServer, find_program
from tests.conftest import running
from tests.testing.debian_programs import stand_in, write

# Starts a server, prints its address and process id, and waits to be killed.
OWNER = """
import sys
from pathlib import Path
from chronoline_bench.servers.beanstalkd import BeanstalkdServer

server = BeanstalkdServer(Path(sys.argv[1]))
server.start()
print(server.pid, flush=True)
sys.stdin.readline()
"""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BeanstalkdServer]:
    yield from running(BeanstalkdServer(tmp_path_factory.mktemp("beanstalkd") / "data"))


@pytest.fixture
def server(shared: BeanstalkdServer) -> BeanstalkdServer:
    """A running server, started again if the test before stopped it."""
    shared.resume()
    shared.start()
    return shared


def ask(server: BeanstalkdServer, *commands: bytes, patience_s: float = 30) -> list[bytes]:
    """Sends commands; returns the lines of the answers."""
    with socket.create_connection(("127.0.0.1", server.port), patience_s) as line:
        line.sendall(b"".join(command + b"\r\n" for command in (*commands, b"quit")))
        with line.makefile("rb") as answers:
            return [answer.strip() for answer in answers]


def put(server: BeanstalkdServer, body: bytes, delay_s: int = 0) -> list[bytes]:
    return ask(server, b"put 0 %d 60 %d\r\n%b" % (delay_s, len(body), body))


def take(server: BeanstalkdServer) -> bytes:
    """Takes and deletes the next job; returns its body, empty if none is ready."""
    (first, *rest) = ask(server, b"reserve-with-timeout 0")
    if first == b"TIMED_OUT":
        return b""
    assert ask(server, b"delete " + first.split()[1]) == [b"DELETED"]
    return rest[0]


def test_job_is_reserved_after_its_delay(server: BeanstalkdServer) -> None:
    put(server, b"later", delay_s=1)
    assert put(server, b"now")[0].startswith(b"INSERTED")
    assert take(server) == b"now"
    assert take(server) == b""
    give_up = time.monotonic() + 30
    while take(server) != b"later":
        assert time.monotonic() < give_up
        time.sleep(0.01)  # nothing signals it


def test_every_write_is_flushed(server: BeanstalkdServer) -> None:
    command = psutil.Process(server.pid).cmdline()
    assert command[command.index("-f") + 1] == "0"
    assert command[command.index("-b") + 1] == str(server.data_dir)


@pytest.mark.parametrize("end", [BeanstalkdServer.stop, BeanstalkdServer.kill])
def test_restart_keeps_jobs_and_port(server: BeanstalkdServer, end: object) -> None:
    assert callable(end)
    put(server, b"kept")
    pid, port = server.pid, server.port
    server.start()
    assert server.pid == pid
    end(server)
    end(server)
    assert server.pid is None
    with pytest.raises(ConnectionRefusedError):
        put(server, b"nobody there")
    server.start()
    assert server.port == port
    assert take(server) == b"kept"


def test_paused_server_answers_after_resume(server: BeanstalkdServer) -> None:
    server.pause()
    with pytest.raises(TimeoutError):
        ask(server, b"stats", patience_s=0.2)
    server.resume()
    assert ask(server, b"ignore default") == [b"NOT_IGNORED"]
    server.pause()
    server.stop()
    assert server.pid is None


def test_calls_before_the_start_are_harmless(tmp_path: Path) -> None:
    server = BeanstalkdServer(tmp_path / "data")
    server.stop()
    server.kill()
    server.pause()
    server.resume()
    assert server.pid is None
    assert not server.data_dir.exists()


def test_taken_port_is_left_to_its_owner(shared: BeanstalkdServer, tmp_path: Path) -> None:
    server = BeanstalkdServer(tmp_path / "data")
    taken = server.port
    with socket.create_server(("127.0.0.1", taken)), server:
        assert server.port != taken
        put(server, b"here")
        assert take(server) == b"here"
    with (
        socket.create_server(("127.0.0.1", server.port)),
        pytest.raises(ChronolineError, match=r"did not start(.|\n)*in use"),
    ):
        server.start()


def test_server_ends_with_its_parent(shared: BeanstalkdServer, tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path / "data")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as owner:
        assert owner.stdout
        process = psutil.Process(int(owner.stdout.readline()))
        owner.kill()
    give_up = time.monotonic() + 60
    while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < give_up, "the server outlives its owner"
        time.sleep(0.01)  # nothing signals it


# The source of the program, with programs that the tests make

APT_GET = """#!/bin/sh
echo "$@" >> "{folder}/asked"
test -e "{folder}/away" && {{ echo "E: Unable to locate package"; exit 100; }}
echo package > beanstalkd_1.deb
"""
DPKG_DEB = """#!/bin/sh
mkdir -p "$3/usr/bin" && cp "$2" "$3/usr/bin/{name}"
"""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return stand_in(
        tmp_path, monkeypatch, apt_get=APT_GET, dpkg_deb=DPKG_DEB.format(name="beanstalkd")
    )


def test_program_is_taken_from_the_path(programs: Path) -> None:
    write(programs / "beanstalkd", "")
    assert find_program() == programs / "beanstalkd"
    assert not (programs / "asked").exists()


def test_debians_package_is_fetched_once(programs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "cache" / f"beanstalkd-{platform.machine()}"
    assert find_program() == find_program() == folder / "usr/bin/beanstalkd"
    assert find_program().read_text() == "package\n"
    (asked,) = (programs / "asked").read_text().splitlines()
    assert asked.endswith("download beanstalkd")
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_first_of_concurrent_fetches_wins(programs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "cache" / f"beanstalkd-{platform.machine()}"
    # The other process is faster: its folder exists when ours is ready.
    write(
        programs / "dpkg-deb",
        DPKG_DEB.format(name="beanstalkd")
        + f'mkdir -p "{folder}/usr/bin" && echo other > "{folder}/usr/bin/beanstalkd"\n',
    )
    assert find_program().read_text() == "other\n"
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_failed_fetch_names_the_remedy(programs: Path) -> None:
    write(programs / "dpkg-deb", DPKG_DEB.format(name="another"))
    with pytest.raises(MissingExtra, match="the package has no usr/bin/beanstalkd"):
        find_program()
    (programs / "away").touch()
    with pytest.raises(MissingExtra, match="Unable to locate package; install beanstalkd"):
        find_program()
    (programs / "apt-get").unlink()
    with pytest.raises(MissingExtra, match="there is no apt-get; install beanstalkd"):
        BeanstalkdServer(programs / "data").start()
