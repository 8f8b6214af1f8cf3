"""`chronoline timers reload`, `resync`, `scale-up` and `scale-down`."""

from __future__ import annotations

import signal

from chronoline.node.local_nodes import free_addresses
from tests.cli.client.command import Command
from tests.cli.timers.several import Several
from tests.waiting import run_scene, until


def test_a_cluster_grows_and_shrinks_again_in_three_steps_each(
    cluster: Several, command: Command
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
    assert moved.count("asked 3 nodes and was told of ") == 4
    nodes.write([*old, new])
    command("timers", "reload")
    assert _listed(Command(new)) & ids
    nodes.write(old, leaving=[new])
    command("timers", "reload")
    assert "leaving" in command("timers", "nodes")
    moved = command("timers", "scale-down")
    assert moved.count("asked 3 nodes and was told of ") == 3
    assert not _listed(Command(new)) & ids
    nodes.write(old)
    assert command("timers", "reload").count(" reads 3 nodes, ") == 3
    assert nodes.stop(new) == 0
    assert ids <= {each for address in old for each in _listed(Command(address))}


def _listed(command: Command) -> set[str]:
    """By their first halves: the other one says where they are."""
    return {each["id"][:16] for each in command.json("timers", "list", "--limit=1000")}


def test_resync_may_be_done_at_any_time(cluster: Several, command: Command) -> None:
    assert command("timers", "resync").count("asked 2 nodes and was told of 0 timers") == 3


def test_signals_are_for_all_of_them(cluster: Several, command: Command) -> None:
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

    try:
        run_scene(scene)
    finally:
        cluster.nodes.write(cluster.addresses)
        command("timers", "reload")


def _names(command: Command) -> list[str]:
    return [each["address"] for each in command.json("timers", "nodes")["nodes"]]


def test_that_there_is_nothing_to_do_is_said(cluster: Several, command: Command) -> None:
    assert "no node is joining" in command.refusal("timers", "scale-up")
    assert "no node is leaving" in command.refusal("timers", "scale-down")


def test_a_list_that_is_wrong_is_refused_and_the_old_one_stays(
    cluster: Several, command: Command
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


def test_a_node_of_the_list_that_is_not_there_is_said(cluster: Several, command: Command) -> None:
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
