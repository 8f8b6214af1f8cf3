"""Agents: processes that do what they are told."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from chronoline.core.errors import ChronolineError
from chronoline_bench.brokers import agent
from chronoline_bench.brokers.agents import AgentProcess
from chronoline_bench.brokers.stage import Crowd


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentProcess]:
    with AgentProcess(tmp_path_factory.mktemp("agent") / "said") as agent:
        yield agent


def test_what_went_wrong_is_told_and_it_goes_on(process: AgentProcess) -> None:
    nowhere = {"kind": "beanstalk", "port": 9, "tube": "t"}
    for do in ("consume", "singles"):
        with pytest.raises(ChronolineError, match="ConnectionRefusedError"):
            process.ask(do, line=nowhere)
    with pytest.raises(ChronolineError, match="KeyError: 'dance'"):
        process.ask("dance")
    assert process.ask("count") == {"settled": 0}


def test_who_never_consumed_has_nothing_to_tell(process: AgentProcess, tmp_path: Path) -> None:
    assert process.ask("stop", path=str(tmp_path / "pairs")) == {"refused": 0, "last_ack_us": 0}
    assert (tmp_path / "pairs").read_bytes() == b""


def test_of_several_every_answer_is_taken(process: AgentProcess) -> None:
    """One that fails leaves no answer behind for the next command."""
    crowd = Crowd([process, process])
    with pytest.raises(ChronolineError, match="ConnectionRefusedError"):
        crowd.start({"kind": "beanstalk", "port": 9, "tube": "t"})
    assert process.ask("count") == {"settled": 0}


def test_patience_ends(process: AgentProcess) -> None:
    with pytest.raises(ChronolineError, match=r"took more than 0\.01 s"):
        process.answer(0.01)


def test_it_ends_with_its_input_whatever_it_does() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", agent.__name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin
        assert process.stdout
        # There is nobody at this address, which it does not give up soon.
        line = {"kind": "sdk", "address": "127.0.0.1:9", "topic": "t"}
        process.stdin.write(json.dumps({"do": "count"}) + "\n")
        process.stdin.write(json.dumps({"do": "consume", "line": line}) + "\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline()) == {"done": {"settled": 0}}
        process.stdin.close()
        assert process.wait(30) == 0


def test_one_that_ended_is_told_with_its_last_words(tmp_path: Path) -> None:
    said_path = tmp_path / "said"
    with AgentProcess(said_path) as process:
        said_path.write_text("no luck today")
        process.kill()
        with pytest.raises(ChronolineError, match=r"ended(?s:.*)no luck today"):
            process.answer(30)
        with pytest.raises(ChronolineError, match="ended"):
            process.begin("count")
