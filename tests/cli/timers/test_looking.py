"""`chronoline timers list`, `show` and `nodes`."""

from __future__ import annotations

from pathlib import Path

import pytest

from chronoline.node.local_nodes import free_addresses
from chronoline.timers.membership import replicas_of
from tests.cli.client.command import Command
from tests.cli.timers.several import Several


def test_list(cluster: Several, command: Command) -> None:
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


def test_show_asks_the_nodes_that_keep_it(cluster: Several, command: Command) -> None:
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
def test_what_is_no_timer_is_said(command: Command, name: str, words: str) -> None:
    assert words in command.refusal("timers", "show", name)


def test_nodes(cluster: Several, command: Command) -> None:
    seen = command.json("timers", "nodes")
    assert seen["ready"]
    assert [each["address"] for each in seen["nodes"]] == sorted(cluster.addresses)
    shown = command("timers", "nodes")
    assert f"The list of nodes is {seen['view']}." in shown
    assert shown.count("this one") == 1
    assert shown.count("there") == 2
    assert shown.count("staying") == 3


@pytest.mark.parametrize("words", [["list"], ["show", "00000000000004d2-2"], ["nodes"], ["reload"]])
def test_that_nobody_is_there_is_said(words: list[str]) -> None:
    (nobody,) = free_addresses(1)
    said = Command(nobody).refusal("timers", *words)
    assert said.startswith(f"no timers at {nobody}: ")
    assert "chronoline up --roles timers" in said


def test_what_is_wrong_with_the_options_is_said(command: Command, tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("")
    assert "--address" in command.refusal("timers", "nodes", "--address=nowhere")
    assert "holds no token" in command.refusal("timers", "nodes", f"--token-file={tmp_path}/empty")
    assert "cannot be read" in command.refusal("timers", "nodes", f"--token-file={tmp_path}/no")
    assert "is no certificate" in command.refusal("timers", "nodes", f"--ca={tmp_path}/empty")
    assert "does not speak TLS" in command.refusal("timers", "nodes", "--tls")
    assert "--limit" in command.misuse("timers", "list", "--limit=0")
