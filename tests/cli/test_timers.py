"""`chronoline timers`: a cluster, listed, grown and shrunk."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from chronoline.runtime.child_process import free_addresses
from chronoline.timers.membership import replicas_of
from tests.cli.command import Command
from tests.deadline import run_scene, until
from tests.node.cluster_process import ClusterProcess, cluster_process


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcess]:
    """One cluster for all tests that only look at it, or leave it as it was."""
    with cluster_process(tmp_path_factory.mktemp("several")) as found:
        yield found


@pytest.fixture
def command(cluster: ClusterProcess) -> Command:
    return Command(cluster.addresses[0])


# Lists


def test_timers_of_a_node_are_listed(cluster: ClusterProcess, command: Command) -> None:
    ids = {cluster.make(number % 3) for number in range(30)}
    here = {
        each
        for each in ids
        if cluster.addresses[0] in replicas_of(int(each[:16], 16), 2, cluster.addresses)
    }
    listed = {each["id"]: each for each in command.json("timers", "list", "--limit=1000")}
    assert here <= set(listed)
    shown = command("timers", "list", "--limit=1000")
    for timer_id in here:
        each = listed[timer_id]
        (line,) = (line for line in shown.splitlines() if timer_id in line)
        assert ("first" if each["level"] == 0 else "backup 1") in line
        assert "0 of 1" in line
        assert "http://127.0.0.1:9/" in line
    assert len(command.json("timers", "list", "--limit=1")) == 1
    assert "There are more than 1; --limit shows them." in command("timers", "list", "--limit=1")


def test_show_asks_the_replicas_of_a_timer(cluster: ClusterProcess, command: Command) -> None:
    for number in range(3):
        timer_id = cluster.make(number)
        for name in (timer_id, f"/timers/{timer_id}", f"{timer_id[:16]}-2"):
            shown = command("timers", "show", name)
            assert f'"id": "{timer_id}"' in shown
            assert '"state": "waiting"' in shown


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("xyz", "'xyz' is no timer"),
        ("00000000000004d2-2", "no node knows the timer"),
        ("../v1/nodes", "'nodes' is no timer"),
    ],
)
def test_bad_timer_id_is_refused(command: Command, name: str, words: str) -> None:
    assert words in command.refusal("timers", "show", name)


def test_nodes_are_listed(cluster: ClusterProcess, command: Command) -> None:
    seen = command.json("timers", "nodes")
    assert seen["ready"]
    assert [each["address"] for each in seen["nodes"]] == sorted(cluster.addresses)
    shown = command("timers", "nodes")
    assert f"The list of nodes is {seen['view']}." in shown
    assert shown.count("this one") == 1
    assert shown.count(" up ") == 2
    assert shown.count("staying") == 3


@pytest.mark.parametrize("words", [["list"], ["show", "00000000000004d2-2"], ["nodes"], ["reload"]])
def test_unreachable_node_is_reported(words: list[str]) -> None:
    (nobody,) = free_addresses(1)
    said = Command(nobody).refusal("timers", *words)
    assert said.startswith(f"no timers at {nobody}: ")
    assert "chronoline up --roles timers" in said


def test_bad_options_are_refused(command: Command, tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("")
    assert "--address" in command.refusal("timers", "nodes", "--address=nowhere")
    assert "holds no token" in command.refusal("timers", "nodes", f"--token-file={tmp_path}/empty")
    assert "cannot be read" in command.refusal("timers", "nodes", f"--token-file={tmp_path}/no")
    assert "is no certificate" in command.refusal("timers", "nodes", f"--ca={tmp_path}/empty")
    assert "does not speak TLS" in command.refusal("timers", "nodes", "--tls")
    assert "--limit" in command.misuse("timers", "list", "--limit=0")


# Changes


def test_cluster_grows_and_shrinks_in_three_steps(
    cluster: ClusterProcess, command: Command
) -> None:
    ids = {cluster.make(number % 3)[:16] for number in range(20)}
    (new,) = free_addresses(1)
    nodes, old = cluster.nodes, cluster.addresses
    nodes.write(old, joining=[new])
    nodes.start(new)
    reloaded = command("timers", "reload").splitlines()
    assert [line.partition(" reads ")[0] for line in reloaded] == [old[0], *sorted({*old[1:], new})]
    assert all(" reads 4 nodes, list " in line for line in reloaded)
    assert "joining" in command("timers", "nodes")
    moved = command("timers", "scale-up")
    assert moved.count("asked 3 nodes and was offered ") == 4
    nodes.write([*old, new])
    command("timers", "reload")
    assert _listed(Command(new)) & ids
    nodes.write(old, leaving=[new])
    command("timers", "reload")
    assert "leaving" in command("timers", "nodes")
    moved = command("timers", "scale-down")
    assert moved.count("asked 3 nodes and was offered ") == 3
    assert not _listed(Command(new)) & ids
    nodes.write(old)
    assert command("timers", "reload").count(" reads 3 nodes, ") == 3
    assert nodes.stop(new) == 0
    assert ids <= {each for address in old for each in _listed(Command(address))}


def _listed(command: Command) -> set[str]:
    """By their first halves: the other one says where they are."""
    return {each["id"][:16] for each in command.json("timers", "list", "--limit=1000")}


def test_resync_works_at_any_time(cluster: ClusterProcess, command: Command) -> None:
    assert command("timers", "resync").count("asked 2 nodes and was offered 0 timers") == 3


def test_signals_reach_every_node(cluster: ClusterProcess, command: Command) -> None:
    (new,) = free_addresses(1)

    async def reloaded(wanted: list[str]) -> bool:
        return all(_names(Command(each)) == sorted(wanted) for each in cluster.addresses)

    async def resynced() -> bool:
        asked = [cluster.nodes.ask(each, "/v1/resync")["nodes"] for each in cluster.addresses]
        return asked == [3, 3, 3]

    async def scene() -> None:
        cluster.nodes.write(cluster.addresses, joining=[new])
        cluster.process.send_signal(signal.SIGHUP)
        await until(lambda: reloaded([*cluster.addresses, new]))
        cluster.process.send_signal(signal.SIGUSR1)
        await until(resynced)
        assert await reloaded([*cluster.addresses, new])

    try:
        run_scene(scene)
    finally:
        cluster.nodes.write(cluster.addresses)
        command("timers", "reload")


def _names(command: Command) -> list[str]:
    return [each["address"] for each in command.json("timers", "nodes")["nodes"]]


def test_scaling_without_changes_is_refused(cluster: ClusterProcess, command: Command) -> None:
    assert "no node is joining" in command.refusal("timers", "scale-up")
    assert "no node is leaving" in command.refusal("timers", "scale-down")


def test_bad_node_list_is_refused_and_the_old_stays(
    cluster: ClusterProcess, command: Command
) -> None:
    before = command.json("timers", "nodes")["view"]
    try:
        for text, words in [
            ("staying = [", "is not TOML"),
            ('staying = ["127.0.0.1:1"]', "does not name this node"),
            (f'staying = ["{cluster.addresses[0]}"]\nleft = []', "has 'left'"),
        ]:
            cluster.nodes.nodes_file.write_text(text)
            assert words in command.refusal("timers", "reload")
            assert command.json("timers", "nodes")["view"] == before
    finally:
        cluster.nodes.write(cluster.addresses)


def test_unreachable_node_of_the_list_is_reported(
    cluster: ClusterProcess, command: Command
) -> None:
    (nobody,) = free_addresses(1)
    try:
        cluster.nodes.write(cluster.addresses, joining=[nobody])
        said = command.refusal("timers", "reload")
        assert said.startswith(f"{nobody} cannot be reached")
        said = command.refusal("timers", "scale-up")
        assert f"{nobody} cannot be reached" in said
        assert "Try again: what is done stays done" in said
        for _ in range(30):
            cluster.make()
        assert "away" in command("timers", "nodes")
    finally:
        cluster.nodes.write(cluster.addresses)
        command("timers", "reload")
