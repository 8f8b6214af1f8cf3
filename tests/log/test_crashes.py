"""Killed writers: answered appends exist; unanswered ones exist as a whole or not at all."""

import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from chronoline.log import Log
from tests.log.places import place

ROOT = Path(__file__).parents[2]
KILLS = 20


def test_killed_writers_leave_a_valid_log(url: str) -> None:
    chance = random.Random(4)
    answered: list[str] = []
    with Log(url) as log:
        log.create_topic("t", partitions=3)
    for kill in range(KILLS):
        command = [sys.executable, "-m", "tests.log.writer", url, str(kill)]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            for _ in range(chance.randrange(1, 30)):
                answered += writer.stdout.readline().split()
            writer.kill()
            answered += [
                word for line in writer.stdout if line.endswith("\n") for word in line.split()
            ]
    check(url, answered)


def test_writers_killed_at_every_step_leave_a_valid_log(url: str) -> None:
    kill_step_by_step(url)


@pytest.mark.parametrize("index", ["postgres", "dynamodb"])
def test_bucket_writers_killed_between_steps_leave_a_valid_log(
    request: pytest.FixtureRequest, index: str
) -> None:
    # Clients of servers run many more lines: not at each of them.
    kill_step_by_step(place(request, "s3", index), kills=KILLS // 3)


def kill_step_by_step(url: str, *, kills: int = 0) -> None:
    with Log(url) as log:
        log.create_topic("t", partitions=3)
    command = [sys.executable, "-m", "tests.log.step_killer", url, str(kills)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    answered, killed = json.loads(done.stdout)
    assert killed >= KILLS // 4  # a writer may have fewer lines than the first one
    assert len(answered) == 2 * 7  # the first and the last writer, which came to their ends
    check(url, answered)


def check(url: str, answered: list[str]) -> None:
    with Log(url) as log:
        found: Counter[str] = Counter()
        for partition in range(3):
            events = list(log.read("t", partition=partition, follow=False))
            assert [event.sequence for event in events] == list(range(len(events)))
            found.update((event.value or b"").decode() for event in events)
        assert set(answered) <= found.keys()
        assert set(found.values()) == {1}
        whole = Counter((kill, int(n) // 7) for kill, n in (each.split("-") for each in found))
        assert set(whole.values()) == {7}
        log.sweep(grace_ms=0)
        assert sum(1 for _ in log.read("t", follow=False)) == found.total()
