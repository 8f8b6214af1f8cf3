"""The pages of the handbook: each program and command runs as it is written, and prints the text below it.

A page is played from top to bottom. Its Python shares one set of names. A block with a file name as its title
is saved; a block titled "… terminal" runs in the background, and replaces the earlier one of that terminal by
SIGKILL. A block of `text` holds lines of the output before it, with … for any characters. Days pass at once:
`Worker.run` moves the broker's clock on while nothing is under way, until every topic is empty.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from chronoline import Worker
from chronoline.broker.auth import Door, ServerTls
from chronoline.broker.tokens import Tokens
from chronoline.client import Client, Forecast
from chronoline.core.errors import Forbidden, Unauthenticated
from chronoline.log.log import Log
from chronoline.pipe.settings import PipeSettings
from chronoline.runtime.child_process import free_ports
from chronoline.stores.memory import MemoryStore
from chronoline.testing.broker import LocalBroker
from chronoline.testing.postgres import PostgresServer
from chronoline_bench.servers.aws import DynamoDBServer, S3Server
from tests.broker.clocks import MovableClock
from tests.certificates import make_certificate

DOCS = Path(__file__).parents[2] / "docs"
GUIDES = [
    path
    for folder in ("guides", "coming-from")
    for path in sorted((DOCS / folder).glob("*.md"))
    if path.stem not in ("index", "chronos")  # they have no programs
]
README = DOCS.parent / "README.md"
TUTORIAL = DOCS / "start" / "tutorial.md"
ON_THEIR_OWN = {"kafka-delay", "session-timers", "log-on-s3"}
"""Guides with other servers than a broker; each has a test below, or in tests/spark/pipes/test_pages.py."""
BLOCK = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.M | re.S)
DAY_MS = 24 * 3600 * 1000
PIPE = """
name = "first"
store = "sqlite:///pipe.db"
input = {topic = "in", log = "chronoline-log"}
output = {topic = "out", log = "chronoline-log"}
"""
PARSED_ONLY = {
    "pg_dump --format=custom --schema=chronoline --file=monday.dump postgresql://…": (
        "its database has no name; tests/upgrade/test_restore.py runs it"
    ),
    "python3 -m venv .venv": "installs; tests/project/test_release.py does it",
    ". .venv/bin/activate": "the tests run in an environment and a folder of their own",
    "chronoline doctor --pipe pipe.toml            # store, topics, rights, Java": (
        "one of them runs until Ctrl-C; tests/cli/pipe calls each"
    ),
    "make demo                     # sends 5,000 messages through a pipe, prints a table of lateness": (
        "the checks themselves; tests/cli/test_demo.py has the demo"
    ),
    "chronoline token create billing --right 'produce:orders-*:billing' > billing.token": (
        "its node is node.example, with a certificate; tests/node/test_process.py has tokens and TLS"
    ),
    "chronoline token create mailer --certificate mailer.example --right consume": (
        "needs the certificates of an authority; tests/node/test_process.py has some"
    ),
}
"""Blocks of played pages that are not played, by their first line, and why."""


class Block(NamedTuple):
    language: str
    title: str
    body: str


def blocks(page: Path, until: str | None = None, since: str = "") -> list[Block]:
    """The blocks of a page, or of its part between two headings."""
    text = page.read_text("utf-8")
    assert until is None or f"\n{until}\n" in text
    return [
        Block(*found)
        for found in BLOCK.findall(text.partition(f"\n{until}\n")[0][text.index(since) :])
    ]


class Player:
    """Plays a page against a broker whose clock it moves."""

    def __init__(self, folder: Path, address: str, places: dict[str, str] | None = None) -> None:
        """`places` are names of the page, such as addresses, with those of this test."""
        self.folder = folder
        self.address = address
        self.places = places or {}
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self.said = ""
        self._terminals: dict[str, subprocess.Popen[bytes]] = {}

    def play_commands(self, page: Path, until: str | None = None, since: str = "") -> None:
        """Plays the `sh` blocks alone."""
        for block in blocks(page, until, since):
            if block.language == "sh" and block.body.partition("\n")[0] not in PARSED_ONLY:
                self._commands(block.title, self._local(block.body))

    def play_row(self, page: Path, name: str) -> None:
        """Plays the commands of a table's row, which begins with a link of this name."""
        (row,) = re.findall(rf"^\| \*\*\[{name}\].*", page.read_text("utf-8"), re.M)
        self._sh("\n".join(re.findall(r"`(chronoline [^`]+)`", row)))

    def _commands(self, title: str, body: str) -> None:
        if title.endswith("terminal"):
            self.open(title, body)
        else:
            self._sh(body)

    def play(self, page: Path, until: str | None = None) -> int:
        """Returns the number of checked lines of output."""
        checked = 0
        for block in blocks(page, until):
            body = self._local(block.body)
            if block.language == "text":
                checked += self._check(block)
            elif block.language == "sh":
                if block.body.partition("\n")[0] not in PARSED_ONLY:
                    self._commands(block.title, body)
            elif block.title:
                (self.folder / block.title).write_text(body)
            elif block.language == "python":
                self._python(block.body, page.name)
        return checked

    def wait(self, title: str) -> None:
        """Waits until the program in a terminal ends."""
        assert self._terminals.pop(title).wait(60) == 0

    def close(self) -> None:
        for terminal in self._terminals.values():
            terminal.kill()
            terminal.wait()

    def _check(self, block: Block) -> int:
        lines = block.body.splitlines()
        for line in lines:
            pattern = ".*".join(re.escape(part) for part in line.split("…"))
            if block.title:
                wait_for_line(self.folder / block.title, rf"^{pattern}$")
            else:
                assert re.search(rf"^{pattern}$", self.said, re.M), f"{line!r} not in {self.said!r}"
        return len(lines)

    def _local(self, body: str) -> str:
        for stated, here in self.places.items():
            body = body.replace(stated, here)
        return body

    def open(self, title: str, body: str) -> None:
        """Runs a program in the background. SIGKILL ends the one that ran in this terminal."""
        if (earlier := self._terminals.pop(title, None)) is not None:
            earlier.kill()
            earlier.wait()
        with (self.folder / title).open("wb") as out:
            self._terminals[title] = subprocess.Popen(
                ["bash", "-c", f"exec {body}"], cwd=self.folder, env=self._environment(), stdout=out
            )
        if body.startswith("chronoline up"):
            wait_for_line(self.folder / title, r"^.*\d:\d")  # its addresses

    def _python(self, body: str, name: str) -> None:
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(compile(body, name, "exec"), self.names)
        self.said = out.getvalue()

    def _environment(self) -> dict[str, str]:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        return {
            **os.environ,
            "PATH": path,
            "COLUMNS": "100",
            "PYTHONUNBUFFERED": "1",
            "CHRONOLINE_ADDRESS": self.address,
            "CHRONOLINE_NODE_GRPC": self.address,
        }

    def _sh(self, body: str) -> None:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", body],
            cwd=self.folder,
            env=self._environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        self.said = done.stdout


def wait_for_line(output: Path, pattern: str) -> None:
    """Waits for output of another process, which can only be read again."""
    end = time.monotonic() + 60
    while not re.search(pattern, output.read_text("utf-8"), re.M):
        assert time.monotonic() < end, f"{pattern} is not in {output.read_text('utf-8')!r}"
        threading.Event().wait(0.02)


def pass_time(worker: Worker, address: str, clock: MovableClock) -> None:
    """Moves the clock on while messages only wait; stops the worker when none is left."""
    with Client(address) as client:
        topics = [topic.name for topic in client.topics()]

        def left() -> list[Forecast]:
            return [count for name in topics if (count := client.count(name)).total]

        # During one look a message can leave a topic that was not counted yet for one that was.
        while counts := left() or left():
            if all(count.waiting == count.total for count in counts):
                clock.ahead_ms += DAY_MS // 4
            threading.Event().wait(0.01)
    worker.stop()


@pytest.fixture(autouse=True)
def level_of_logs() -> Iterator[None]:
    """A program may set the level of Chronoline's log; it must not last."""
    logger = logging.getLogger("chronoline")
    before = logger.level
    yield
    logger.setLevel(before)


@pytest.fixture
def player(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Player]:
    clock = MovableClock()
    with MemoryStore() as store, LocalBroker(store, clock=clock) as broker:
        monkeypatch.setenv("CHRONOLINE_ADDRESS", broker.address)
        run = Worker.run

        def run_until_empty(worker: Worker) -> None:
            passing = threading.Thread(target=pass_time, args=(worker, broker.address, clock))
            passing.start()
            run(worker)
            passing.join()

        monkeypatch.setattr(Worker, "run", run_until_empty)
        player = Player(tmp_path, broker.address)
        yield player
        player.close()


@pytest.mark.parametrize(
    "page", [each for each in GUIDES if each.stem not in ON_THEIR_OWN], ids=lambda page: page.stem
)
def test_guide_does_what_it_says(page: Path, player: Player) -> None:
    assert player.play(page) > 0


@contextlib.contextmanager
def with_places(folder: Path, **places: str) -> Iterator[Player]:
    """A player without a broker: the page starts one. `places` are added to free ports for the page's."""
    grpc, http, timers, listener = free_ports(4)
    known = {
        "127.0.0.1:7480": f"127.0.0.1:{http}",
        "127.0.0.1:7253": f"127.0.0.1:{timers}",
        "127.0.0.1:9000": f"127.0.0.1:{listener}",
        "listen 9000": f"listen {listener}",
    }
    player = Player(folder, f"127.0.0.1:{grpc}", {**known, **places})
    try:
        yield player
    finally:
        player.close()


def test_tutorial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, postgres_server: PostgresServer
) -> None:
    database = postgres_server.create_database("tutorial")
    with with_places(
        tmp_path, **{"postgresql://ada:secret@localhost/reminders": database}
    ) as player:
        monkeypatch.setenv("CHRONOLINE_NODE_HTTP", player.places["127.0.0.1:7480"])
        assert player.play(TUTORIAL) > 0


def test_session_timers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with with_places(tmp_path) as player:
        monkeypatch.setenv("CHRONOLINE_NODE_TIMERS", player.places["127.0.0.1:7253"])
        assert player.play(DOCS / "guides" / "session-timers.md") > 0


def test_timers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with with_places(tmp_path) as player:
        monkeypatch.setenv("CHRONOLINE_NODE_TIMERS", player.places["127.0.0.1:7253"])
        assert player.play(DOCS / "timers.md") > 0
    assert Tokens(tmp_path / "node-1" / "tokens.json").names() == ["cluster"]


def test_tracing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with with_places(tmp_path) as player:
        monkeypatch.setenv("CHRONOLINE_NODE_HTTP", player.places["127.0.0.1:7480"])
        player.play_commands(DOCS / "tracing.md")
        with Client(player.address) as client:
            assert client.topics() == []


def test_doctor_backup_and_restore(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = DOCS / "operations.md"
    certificate, key = make_certificate(tmp_path)
    tokens = Tokens(tmp_path / "tokens.json")
    door = Door(tokens, ServerTls(certificate=certificate, key=key))
    monkeypatch.setenv("CHRONOLINE_TOKEN", tokens.create("ops"))
    (tmp_path / "node.toml").write_text('store = "sqlite:///other.db"\n')
    (tmp_path / "pipe.toml").write_text(PIPE)
    with Log((tmp_path / "chronoline-log").as_uri()) as log:
        log.create_topic("in", partitions=1)
        log.create_topic("out", partitions=1)
    with MemoryStore() as store, LocalBroker(store, door=door) as broker:
        tls = f"{broker.address} --ca {certificate}"
        with with_places(tmp_path, **{"b1.example:7400 --tls": tls}) as player:
            monkeypatch.setenv("CHRONOLINE_NODE_HTTP", player.places["127.0.0.1:7480"])
            player.play_commands(page, until="## Over time")
            player.open("node", "chronoline up")
            with Client(player.address) as client:
                client.create_topic("orders")
                client.send("orders", b"hello", id="before", delay=60)
                player.play_commands(page, until="## Restore", since="## Over time")
                client.send("orders", b"hello", id="after", delay=60)
            player.close()
            player.play_commands(page, since="## Restore")
            player.open("node", "chronoline up")
            with Client(player.address) as client:
                assert client.lookup("orders", "before") is not None
                assert client.lookup("orders", "after") is None


def test_tokens_open_what_the_page_says(tmp_path: Path, player: Player) -> None:
    player.play_commands(DOCS / "security.md")
    tokens = {file.stem: file.read_text().strip() for file in tmp_path.glob("*.token")}
    assert set(tokens) == {"billing", "mailer", "grafana", "ops"}
    door = Door(Tokens(tmp_path / "chronoline-data" / "tokens.json"))
    with MemoryStore() as store, LocalBroker(store, door=door) as broker:

        def client(name: str) -> Client:
            return Client(broker.address, token=tokens[name])

        with client("ops") as ops, client("mailer") as mailer, client("billing") as billing:
            ops.create_topic("orders-eu")
            ops.send("orders-eu", b"hello")
            with pytest.raises(Forbidden, match="right produce"):
                mailer.send("orders-eu", b"hello")
            with pytest.raises(Unauthenticated):
                billing.send("orders-eu", b"hello")
        with client("grafana") as grafana:
            assert grafana.count("orders-eu").total == 1
            with pytest.raises(Forbidden):
                grafana.create_topic("orders-us")


def test_commands_on_one_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each page goes on with the node that broker.md starts."""
    sooner = {"--in 5s": "--in 1s", "--in 15s": "--in 1s", "--every 10s": "--every 1s"}
    with with_places(tmp_path, **sooner) as player:
        monkeypatch.setenv("CHRONOLINE_NODE_HTTP", player.places["127.0.0.1:7480"])
        for page in (DOCS / "broker.md", README):
            player.play_commands(page)
            assert player.said.endswith("\nhello\n")
        player.play_row(README, "Log")
        assert player.said.endswith("sequence 0\n")
        for name in ("limits", "health", "targets", "schedules"):
            player.play_commands(DOCS / f"{name}.md")
        wait_for_line(tmp_path / "Second terminal", "hello")


def test_commands_for_topics(player: Player) -> None:
    with Client(player.address, producer_group="shop") as client:
        client.create_topic("reminders")
        client.create_topic("reminders-copy")
        client.send("reminders", b"hello", id="order-71", delay=1800)
        player.play_commands(DOCS / "topics.md")
        assert [each.name for each in client.topics()] == ["reminders", "reminders-copy"]
        assert client.lookup("reminders", "order-71") is None


def test_reschedule_of_the_guides(player: Player) -> None:
    with Client(player.address) as client:
        client.create_topic("onboarding")
        client.send("onboarding", b"hello", id="ada/day-1", delay=86_400)
        sent = client.lookup("onboarding", "ada/day-1")
        player.play_commands(DOCS / "guides" / "index.md")
        moved = client.lookup("onboarding", "ada/day-1")
        assert sent is not None
        assert moved is not None
        assert moved.due < sent.due


@pytest.mark.usefixtures("aws")
def test_commands_for_logs(
    tmp_path: Path,
    player: Player,
    s3_server: S3Server,
    dynamodb_server: DynamoDBServer,
    postgres_server: PostgresServer,
) -> None:
    player.places = {
        "s3://bucket/events": f"'{s3_server.url('bucket', 'events')}'",
        "s3://bucket/others": f"'{s3_server.url('bucket', 'others')}'",
        "dynamodb://events": f"'{dynamodb_server.url('events')}'",
        "postgresql://user@host:5432/database": postgres_server.create_database("log_page"),
    }
    player.play_commands(DOCS / "log.md")
    with Log((tmp_path / "chronoline-log").as_uri()) as log:
        topics = {each.name for each in log.topics()}
    assert topics == {"orders", "copies", "fewer-partitions"}


@pytest.mark.usefixtures("aws")
def test_log_on_s3(tmp_path: Path, s3_server: S3Server, dynamodb_server: DynamoDBServer) -> None:
    places = {
        "s3://events/guide": s3_server.url("events", "guide"),
        "dynamodb://guide-events": dynamodb_server.url("guide-events"),
    }
    with with_places(tmp_path, **places) as player:
        assert player.play(DOCS / "guides" / "log-on-s3.md") > 0


def test_settings_of_the_delay_in_kafka(tmp_path: Path) -> None:
    (block,) = (
        each for each in blocks(DOCS / "guides" / "kafka-delay.md") if each.language == "toml"
    )
    (tmp_path / "pipe.toml").write_text(block.body)
    settings = PipeSettings.load(tmp_path / "pipe.toml", {}, {})
    assert (settings.delay_ms, settings.input.topic, settings.output.topic) == (
        900_000,
        "orders",
        "orders-later",
    )


def test_pages_share_no_topic() -> None:
    owner: dict[str, str] = {}
    for page in [*GUIDES, TUTORIAL]:
        for name in set(
            re.findall(r"create_topic\(\s*\"([^\"]+)\"|topic create ([\w-]+)", page.read_text())
        ):
            topic = "".join(name)
            assert owner.setdefault(topic, page.name) == page.name, topic


def test_wrong_output_is_found(tmp_path: Path, player: Player) -> None:
    page = tmp_path / "page.md"
    page.write_text('```python\nprint("one 1")\n```\n```text\none …\n```\n')
    assert player.play(page) == 1
    page.write_text('```python\nprint("one 1")\n```\n```text\ntwo\n```\n')
    with pytest.raises(AssertionError, match="two"):
        player.play(page)
