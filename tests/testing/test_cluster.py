"""The tools for a cluster on this machine; `tests/cli/test_demo_cluster.py` starts one."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from chronoline.cli.node import load
from chronoline.testing.cluster import BrokerPlan, BrokerProcess
from chronoline.testing.cluster_load import ClusterDelivery, ClusterLoad, ClusterTally


def plan(folder: Path) -> BrokerPlan:
    return BrokerPlan(
        name="broker-1",
        grpc="127.0.0.1:7401",
        http="127.0.0.1:7481",
        data=folder,
        store="postgresql://postgres@127.0.0.1:5432/cluster",
        coordination="etcd://127.0.0.1:2379/",
        settings=["rack=a"],
    )


def test_planned_broker_is_a_member_under_its_name(tmp_path: Path) -> None:
    command = plan(tmp_path).command
    options = command[command.index("--until-eof") + 1 :]
    given = {
        option.removeprefix("--"): value
        for option, value in zip(options[::2], options[1::2], strict=True)
        if option != "--set"
    }
    set_ones = [value for option, value in pairwise(options) if option == "--set"]
    settings = load(setting=set_ones, **{**given, "data": tmp_path})  # type: ignore[arg-type]
    assert settings.is_clustered
    assert (settings.name, settings.rack) == ("broker-1", "a")
    assert settings.grpc == "127.0.0.1:7401"


def test_broker_that_does_not_run_has_no_consumers(tmp_path: Path) -> None:
    assert BrokerProcess(plan(tmp_path)).consumers() == []


@pytest.fixture
def load_of_two() -> ClusterLoad:
    """Two messages were sent; the first was delivered, and acked a second later."""
    found = ClusterLoad(["127.0.0.1:1"], topic="t", consumers=["a", "b"], per_s=1)
    found.note_sent("m1", 0)
    found.note_sent("m2", 0)
    found.note_delivery(ClusterDelivery("m1", "a", 10.0, 1.0))
    found.acked_s = {"m1": 11.0}
    return found


def test_undelivered_message_is_lost(load_of_two: ClusterLoad) -> None:
    assert load_of_two.tally() == ClusterTally(
        sent=2, delivered=1, lost=1, early=0, double=0, again=0
    )
    assert not load_of_two.is_complete


def test_delivery_after_the_ack_is_double(load_of_two: ClusterLoad) -> None:
    for each in (
        ClusterDelivery("m1", "b", 10.5, 1.0),
        ClusterDelivery("m1", "b", 11.5, 1.0),
        ClusterDelivery("m2", "b", 11.6, -1.0),
    ):
        load_of_two.note_delivery(each)
    tally = load_of_two.tally()
    assert (tally.double, tally.again, tally.early, tally.lost) == (1, 1, 1, 0)
    assert load_of_two.is_complete


def test_gap_ends_with_the_next_message(load_of_two: ClusterLoad) -> None:
    for each in (
        ClusterDelivery("m2", "b", 12.0, 1.0),
        ClusterDelivery("m1", "b", 14.0, 1.0),
    ):
        load_of_two.note_delivery(each)
    assert load_of_two.gaps_s(["a", "b"], 11.0) == {"b": 1.0}
    assert load_of_two.served == {"a", "b"}
    assert load_of_two.were_served(["b"], 11.0)
    assert not load_of_two.were_served(["a", "b"], 11.0)
