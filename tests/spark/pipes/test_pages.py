"""The pages on pipes do what they say: docs/pipe.md and docs/guides/kafka-delay.md."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.examples.test_guides import DOCS, Player
from tests.spark.environment import environment, python_of_workers
from tests.spark.pipes.places import OnServers, Record
from tests.spark.pipes.scene import until

pytestmark = pytest.mark.timeout(600)


class PipePlayer(Player):
    """`pipe run` says that it runs on stderr."""

    def open(self, title: str, body: str) -> None:
        super().open(title, f"{body.rstrip()} 2>&1")


@pytest.fixture
def player(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PipePlayer]:
    given = environment(tmp_path, PYSPARK_PYTHON=python_of_workers(tmp_path))
    for name in os.environ.keys() - given.keys():
        monkeypatch.delenv(name)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    player = PipePlayer(tmp_path, "127.0.0.1:1")
    yield player
    player.close()


def stop(player: PipePlayer, page: Path) -> None:
    page.write_text("```sh\nchronoline pipe stop --config pipe.toml\n```\n")
    player.play(page)
    player.wait("First terminal")


def test_first_pipe(tmp_path: Path, player: PipePlayer) -> None:
    player.places = {"--delay 5s": "--delay 1s"}
    assert player.play(DOCS / "pipe.md", until="## The contract") == 2
    (tmp_path / "pipe.toml").write_text('name = "first"\n')
    stop(player, tmp_path / "stop.md")


def test_delay_in_kafka(tmp_path: Path, player: PipePlayer, servers: OnServers) -> None:
    servers.create_topic("orders", 2)
    servers.create_topic("orders-later", 2)
    player.places = {
        '"15m"': '"1s"',
        "kafka.example:9092": servers.table("orders")["kafka"]["bootstrap.servers"],
        "postgresql://user:password@db.example/chronoline": servers.store,
    }
    assert player.play(DOCS / "guides" / "kafka-delay.md") == 1
    servers.publish("orders", [Record(key=b"ada", value=b"one tea")])
    with servers.reader("orders-later") as reader:
        later: list[Record] = []

        def arrived() -> bool:
            later.extend(reader.poll())
            return bool(later)

        until(arrived, "the record is at the output")
    assert [(each.key, each.value) for each in later] == [(b"ada", b"one tea")]
    stop(player, tmp_path / "stop.md")
