"""Agents: processes that execute commands."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from chronoline.core.errors import ChronolineError
from chronoline_bench.broker import agent
from chronoline_bench.broker.stage import Crowd
from chronoline_bench.harness.agent import AgentProcess


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentProcess]:
    with AgentProcess(agent, tmp_path_factory.mktemp("agent") / "log") as process:
        yield process


def test_failed_command_is_answered_and_the_next_one_works(process: AgentProcess) -> None:
    nowhere = {"kind": "beanstalk", "port": 9, "tube": "t"}
    for do in ("consume", "singles"):
        with pytest.raises(ChronolineError, match="ConnectionRefusedError"):
            process.ask(do, line=nowhere)
    with pytest.raises(ChronolineError, match=r"AttributeError.*'dance'"):
        process.ask("dance")
    assert process.ask("count") == {"settled": 0}


def test_consumer_that_never_began_has_no_arrivals(process: AgentProcess, tmp_path: Path) -> None:
    assert process.ask("stop", path=str(tmp_path / "pairs")) == {"refused": 0, "last_ack_us": 0}
    assert (tmp_path / "pairs").read_bytes() == b""


def test_failed_crowd_leaves_no_answer_behind(process: AgentProcess) -> None:
    crowd = Crowd([process, process])
    with pytest.raises(ChronolineError, match="ConnectionRefusedError"):
        crowd.start({"kind": "beanstalk", "port": 9, "tube": "t"})
    assert process.ask("count") == {"settled": 0}


def test_answer_is_not_awaited_forever(process: AgentProcess) -> None:
    with pytest.raises(ChronolineError, match=r"broker\.agent took more than 0\.01 s"):
        process.answer(0.01)


def test_agent_ends_with_its_input_during_a_command(tmp_path: Path) -> None:
    process = AgentProcess(agent, tmp_path / "log")
    process.start()
    assert process.ask("count") == {"settled": 0}
    # No server answers at this address, and the agent does not give up soon.
    process.begin("consume", line={"kind": "sdk", "address": "127.0.0.1:9", "topic": "t"})
    process.stop()
    assert process.wait() == 0


def test_killed_agent_is_reported_with_its_log(tmp_path: Path) -> None:
    log_path = tmp_path / "log"
    with AgentProcess(agent, log_path) as process:
        log_path.write_text("no luck today")
        process.kill()
        with pytest.raises(ChronolineError, match=r"ended(?s:.*)no luck today"):
            process.answer(30)
        with pytest.raises(ChronolineError, match="ended"):
            process.begin("count")
