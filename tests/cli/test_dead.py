from __future__ import annotations

import re
from pathlib import Path

import pytest

from chronoline.broker.auth import Door
from chronoline.broker.tokens import Tokens
from chronoline.client import Client
from chronoline.core.rights import Rights
from chronoline.stores.factory import open_store
from chronoline.testing.broker import LocalBroker
from tests.cli.command import Command


@pytest.fixture
def letters(client: Client, topic: str) -> list[str]:
    """Of three messages: one with a reason of its own, and one with an id that would move the cursor."""
    ids = ["a", "b", "c\x1b"]
    leases = client.consume(topic)
    for number, each in enumerate(ids):
        client.send(topic, b"b", id=each, headers={"h": "v"})
        lease = next(iter(leases))
        if number:
            lease.retry()
        else:
            lease.bury("no such user")
    return ids


def test_letters_are_listed_with_their_reason(
    command: Command, topic: str, letters: list[str]
) -> None:
    moment = r"20\d\d-\S+Z"
    lines = command("dead", "list", topic).splitlines()
    expected = [
        rf"{moment}  a",
        rf"    no such user; due {moment}, 1 attempt failed, group default",
        rf"{moment}  b",
        rf"    attempts; due {moment}, 1 attempt failed, group default",
        rf"{moment}  c�",
        rf"    attempts; due {moment}, 1 attempt failed, group default",
    ]
    assert len(lines) == len(expected)
    assert all(map(re.fullmatch, expected, lines))
    found = command.json("dead", "list", topic)
    assert [each["id"] for each in found] == letters
    assert (found[0]["reason"], found[0]["attempts"]) == ("no such user", 1)
    assert found[0]["headers"] == [["h", "v"]]


def test_further_letters_are_reported(command: Command, topic: str, letters: list[str]) -> None:
    some = command.result("dead", "list", topic, "--limit=2")
    assert len(some.stdout.splitlines()) == 4
    assert some.stderr == "There are more than 2: --limit shows more.\n"
    assert command.result("dead", "list", topic, "--limit=3").stderr == ""


def test_missing_letters_are_reported(command: Command, topic: str) -> None:
    assert command("dead", "list", topic) == f"Topic '{topic}' has no dead letters.\n"
    assert command.json("dead", "list", topic) == []
    assert command("dead", "redrive", topic, "--all") == "put 0 messages back\n"


def test_letters_are_redriven(
    command: Command, client: Client, topic: str, letters: list[str]
) -> None:
    assert command("dead", "redrive", topic, "a", "--in=1h") == "put 1 message back\n"
    back = client.lookup(topic, "a")
    assert back is not None
    assert back.attempts == 0
    assert command("dead", "redrive", topic, "--all", "--in=1h") == "put 2 messages back\n"
    assert client.count(topic).waiting == 3
    refused = command.refusal("dead", "redrive", topic, "a", "x")
    assert refused == (
        "2 refused, 0 done. 'a': the message is not among the dead letters; look up its state; 'x': there is "
        "no message with this id; check the id and the topic"
    )


def test_letters_are_discarded(
    command: Command, client: Client, topic: str, letters: list[str]
) -> None:
    assert command("dead", "discard", topic, "a") == "discarded 1 message\n"
    refused = command.refusal("dead", "discard", topic, "--all", input="n\n")
    assert refused == "nothing was done: answer y, or use --yes"
    assert len(client.dead_letters(topic)) == 2
    assert command("dead", "discard", topic, "--all", "--yes") == "discarded 2 messages\n"
    assert client.dead_letters(topic) == []


def test_letters_must_be_named(command: Command, topic: str) -> None:
    for name in ("redrive", "discard"):
        which = "name the messages by their ids, or use --all"
        assert command.refusal("dead", name, topic) == which
        assert command.refusal("dead", name, topic, "a", "--all") == f"{which}, not both"


def test_owners_settle_their_letters_alone(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path / "tokens.json")
    ops = tokens.create("ops")
    shop = tokens.create("shop", Rights.parse(["produce:t:shop"]))
    with open_store("memory:") as store, LocalBroker(store, door=Door(tokens)) as broker:
        command = Command(broker.address)
        with Client(broker.address, token=ops) as client:
            client.create_topic("t")
            for group in ("shop", "other"):
                with Client(broker.address, token=ops, producer_group=group) as producer:
                    producer.send("t", b"", id=group)
            for _, lease in zip(range(2), client.consume("t"), strict=False):
                lease.bury("broken")
        command.token = shop
        assert "produce:t:default" in command.refusal("dead", "redrive", "t", "shop")
        assert "another producer group" in command.refusal(
            "dead", "redrive", "t", "other", "--group=shop"
        )
        assert command("dead", "redrive", "t", "shop", "--group=shop") == "put 1 message back\n"
        command.token = ops
        whose = ("dead", "discard", "t", "--all", "--yes")
        assert command(*whose, "--group=shop") == "discarded 0 messages\n"
        assert command(*whose, "--group=other") == "discarded 1 message\n"
