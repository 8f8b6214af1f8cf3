"""The state of a pipe, whether or not any of it runs."""

from __future__ import annotations

from pathlib import Path

from chronoline.core.message import NewMessage
from chronoline.log import Log, NewEvent
from chronoline.pipe.claims import source_name
from chronoline.pipe.counters import Counters
from chronoline.pipe.settings import PipeSettings
from chronoline.pipe.status import read_status
from chronoline.stores.factory import open_store
from chronoline.stores.inputs import InputRecord, Intake, Tally
from chronoline.stores.members import pipe_group

NOW = 1_000_000


def settings(folder: Path) -> PipeSettings:
    log = str(folder / "log")
    flags = {
        "name": "p",
        "input": {"topic": "in", "log": log},
        "output": {"topic": "out", "log": log},
    }
    return PipeSettings.load(None, {}, flags)


def test_status_of_a_new_pipe_names_the_missing_input(tmp_path: Path) -> None:
    with open_store("memory:") as store:
        found = read_status(settings(tmp_path), store, NOW)
    assert found.on_timeline.total == found.dead_letters == 0
    assert found.nodes == ()
    assert found.partitions == ()
    assert found.tally == Tally()
    assert found.lag is None
    assert found.input_problem is not None
    assert "there is no topic 'in' in the log; create it" in found.input_problem
    assert list(tmp_path.iterdir()) == []  # reading a mistyped log does not create it


def test_status_shows_messages_intake_and_nodes(tmp_path: Path) -> None:
    chosen = settings(tmp_path)
    with Log(chosen.input.log) as log:
        identity = str(log.create_topic("in", partitions=2).uid)
        log.append_many("in", [NewEvent(value=None, partition=each % 2) for each in range(10)])
    with open_store("memory:") as store:
        topic = store.create_topic("p", now_ms=NOW)
        claims = store.claim_inputs(
            source_name(chosen, identity), {0: 0, 1: 0}, "a", until_ms=NOW + 1_000, now_ms=NOW
        )
        due_ms = {"late": NOW - 1, "first": NOW + 1, "second": NOW + 1}
        records = [
            InputRecord(place, NewMessage(id=each, due=due))
            for place, (each, due) in enumerate(due_ms.items())
        ]
        store.take_in(topic.uid, [Intake(claims[0], records, 0, 3)], producer_group="p", now_ms=NOW)
        for node, until_ms in (("a", NOW + 1_000), ("b", NOW - 1)):
            details = Counters(fired=3, lag=1).to_json()
            store.beat(
                pipe_group(topic), node, until_ms=until_ms, details=details, now_ms=NOW - 2_000
            )
        store.ask_to_stop(pipe_group(topic), "b")
        found = read_status(chosen, store, NOW)
    assert (found.on_timeline.waiting, found.on_timeline.available) == (2, 1)
    assert found.tally == Tally(accepted=3)
    assert [each.lag for each in found.partitions] == [2, 5]
    assert found.lag == 7
    assert [each.account.holder for each in found.partitions] == ["a", "a"]
    assert [(each.name, each.alive, each.stopping) for each in found.nodes] == [
        ("a", True, False),
        ("b", False, True),
    ]
    assert found.total.fired == 6
