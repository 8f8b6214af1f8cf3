"""The topics of a scene in a log: what is sent is watched, and a load can be ended early."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from chronoline.log import Log
from chronoline_bench.harness.agent import AgentProcess
from chronoline_bench.harness.passage import take_pairs
from chronoline_bench.pipe import agent
from chronoline_bench.pipe.transport import LogPlace, Topics, open_sender


@pytest.fixture
def place(tmp_path: Path) -> LogPlace:
    found = LogPlace(tmp_path / "log")
    found.create_topic("in", 4)
    return found


@pytest.fixture
def watcher(place: LogPlace, tmp_path: Path) -> Iterator[AgentProcess]:
    with AgentProcess(agent, tmp_path / "agents.log") as process:
        process.ask("watch", place=place.url, topic="in")
        yield process


def await_all(watcher: AgentProcess, count: int) -> None:
    while watcher.ask("count")["came"] < count:
        threading.Event().wait(0.01)  # the count is polled from another process


def test_sent_messages_are_watched(place: LogPlace, watcher: AgentProcess, tmp_path: Path) -> None:
    sender = open_sender(place.url, "in")
    for number in range(30):
        sender.send(number, b"body", [("name", b"value")])
        if number % 10 == 0:
            sender.poll()
    assert sender.finish() == []
    await_all(watcher, 30)
    watcher.ask("take", path=str(tmp_path / "pairs"))
    assert sorted(number for number, _ in take_pairs(tmp_path / "pairs")) == list(range(30))
    with Log(place.url) as log:
        events = list(log.read("in", follow=False))
    assert {event.headers for event in events} == {(("name", b"value"),)}


def test_load_is_ended_early(place: LogPlace, watcher: AgentProcess, tmp_path: Path) -> None:
    with AgentProcess(agent, tmp_path / "agents.log") as loader:
        loader.begin(
            "load",
            place=place.url,
            topic="in",
            path=str(tmp_path / "load"),
            first=5,
            count=1_000_000,
            rate=200,
        )
        await_all(watcher, 10)
        loader.begin("end_load")
        figures = loader.answer() | loader.answer()
    sent = dict(take_pairs(tmp_path / "load"))
    assert 10 <= len(sent) < 1_000_000
    assert list(sent) == list(range(5, 5 + len(sent)))
    assert figures["failed"] == 0
    assert figures["started_us"] < figures["ended_us"]


@pytest.mark.parametrize(
    ("place", "setting"),
    [
        ("kafka://127.0.0.1:9092", {"kafka.bootstrap.servers": "127.0.0.1:9092"}),
        ("file:///tmp/log", {"log": "file:///tmp/log"}),
    ],
)
def test_pipe_is_told_where_its_topics_are(place: str, setting: dict[str, str]) -> None:
    flags = Topics(place=place, input="a", output="b").flags()
    wanted = {
        f"{side}.{name}": each for side in ("input", "output") for name, each in setting.items()
    }
    assert flags == {"input.topic": "a", "output.topic": "b", **wanted}
