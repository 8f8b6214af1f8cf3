"""`chronoline list`, `bulk` and `topic purge`."""

from __future__ import annotations

import json

import pytest

from chronoline.client import Client
from chronoline.client.aio import ToSend
from chronoline.client.sync import Client as SyncClient
from chronoline.core.errors import BrokerUnavailable
from tests.cli.command import Command


@pytest.fixture
def full(client: Client, topic: str) -> str:
    """Ten messages in an hour, of two kinds; one of another group."""
    client.send_many(
        topic, [ToSend(id=f"{each}-{n}", delay=3_600) for each in "ab" for n in range(5)]
    )
    with Client(client_address(client), producer_group="shop") as other:
        other.send(topic, id="c-0", delay=3_600)
    return topic


def client_address(client: Client) -> str:
    (broker,) = client.info().brokers
    return broker.address


def test_messages_are_listed_by_what_is_asked(command: Command, full: str) -> None:
    lines = command("list", full, "--prefix", "a-", "--json").splitlines()
    assert sorted(json.loads(each)["id"] for each in lines) == [f"a-{n}" for n in range(5)]
    assert json.loads(command("list", full, "--group=shop", "--json"))["id"] == "c-0"
    assert len(command("list", full, "--limit=0", "--json").splitlines()) == 11
    assert command("list", full, "--from=+2h") == f"Topic '{full}' has no such messages.\n"
    assert command("list", full, "--status=processing") == f"Topic '{full}' has no such messages.\n"
    shown = command.result("list", full, "--limit=2")
    assert "waiting" in shown.stdout
    assert "There are more than 2" in shown.stderr
    assert "available, processing, waiting" in command.refusal("list", full, "--status=asleep")


def test_bulk_cancel_takes_what_matches(command: Command, client: Client, full: str) -> None:
    dry = command("bulk", "cancel", full, "--prefix=a-", "--dry-run")
    first, second = dry.splitlines()
    assert first == "5 messages would be cancelled"
    assert sorted(second.removeprefix("such as ").split(", ")) == [f"a-{n}" for n in range(5)]
    assert client.count(full).total == 11
    assert command("bulk", "cancel", full, "--prefix=a-") == "5 messages cancelled\n"
    assert client.count(full).total == 6
    found = command.json("bulk", "cancel", full, "--group=shop", "--from=now", "--to=+2h")
    assert (found["matched"], found["done"], found["refused"]) == (1, 1, {})
    assert "name a condition" in command.refusal("bulk", "cancel", full)
    assert "not both" in command.refusal("bulk", "cancel", full, "--all", "--prefix=b")
    assert command.failed("bulk", "cancel", "none", "--prefix=b").stderr == ""
    assert command("bulk", "cancel", full, "--all", "--yes") == "5 messages cancelled\n"


def test_bulk_reschedule_moves_each_once(command: Command, client: Client, full: str) -> None:
    said = command("bulk", "reschedule", full, "--from=now", "--to=+1d", "--in=3h")
    assert said.startswith("11 messages rescheduled\ndue 2")
    dues = {each.due for each in client.list_messages(full).messages}
    assert len(dues) == 1
    assert "give --due or --in" in command.refusal("bulk", "reschedule", full, "--all")


def test_leased_messages_are_left_alone(command: Command, client: Client, topic: str) -> None:
    client.send_many(topic, [ToSend(id="held"), ToSend(id="free", delay=3_600)])
    leases = client.consume(topic)
    held = next(leases)
    said = command("topic", "purge", topic, "--yes")
    assert said == (
        "1 message removed\n"
        "1 message left alone: a consumer holds a live lease, which nobody may break; "
        "try again when it is over\n"
    )
    state = json.loads(command("show", topic, "held", "--json"))
    assert state["status"] == "processing"
    held.ack()
    leases.close()
    assert command.json("show", topic, "held")["status"] == "delivered"


def test_dead_letters_are_put_back_and_discarded_by_reason(
    command: Command, client: Client, topic: str
) -> None:
    client.send_many(topic, [ToSend(id=f"m{n}") for n in range(4)])
    for lease in client.consume(topic):
        lease.bury("odd" if lease.id in ("m1", "m3") else "even")
        if client.count(topic).total == 0:
            break
    assert command("bulk", "redrive", topic, "--reason=odd", "--in=1h").startswith(
        "2 dead letters put back\ndue 2"
    )
    assert sorted(each.id for each in client.list_messages(topic).messages) == ["m1", "m3"]
    purged = command("topic", "purge", topic, "--dead-letters", "--yes")
    assert purged == "2 messages removed\n2 dead letters removed\n"
    assert client.dead_letters(topic) == []


def test_interrupted_change_says_how_to_go_on(
    command: Command, client: Client, full: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No setting: a batch of the usual size would take all of them at once.
    monkeypatch.setattr("chronoline.broker.bulk_changes._PAGE", 3)
    whole = SyncClient.change_matching

    def interrupted(self: SyncClient, *arguments: object, **given: object) -> object:
        progress = given["progress"]
        batches = 0

        def count(result: object) -> None:
            nonlocal batches
            batches += 1
            progress(result)  # type: ignore[operator]  # the command gives one
            if batches == 2:
                raise BrokerUnavailable

        return whole(self, *arguments, **{**given, "progress": count})  # type: ignore[arg-type]  # as given

    monkeypatch.setattr(SyncClient, "change_matching", interrupted)
    result = command.failed("bulk", "cancel", full, "--all", "--yes")
    monkeypatch.setattr(SyncClient, "change_matching", whole)
    assert "ended; 6 cancelled" in result.stderr
    after = result.stderr.split("--after ")[1].split()[0]
    assert client.count(full).total == 5
    said = command("bulk", "cancel", full, "--all", "--yes", "--after", after)
    assert said == "5 messages cancelled\n"


def test_show_says_what_became_of_a_message(command: Command, client: Client, topic: str) -> None:
    client.send_many(topic, [ToSend(id="acked"), ToSend(id="dead"), ToSend(id="gone", delay=60)])
    client.cancel(topic, "gone")
    seen = set()
    for lease in client.consume(topic, consumer="worker"):
        seen.add(lease.id)
        if lease.id == "acked":
            lease.ack()
        else:
            lease.bury("no use")
        if len(seen) == 2:
            break
    assert "was delivered to worker; its id is taken until 2" in command("show", topic, "acked")
    assert "was cancelled; its id is taken until 2" in command("show", topic, "gone")
    assert "is dead since 2" in command("show", topic, "dead")
    assert command.json("show", topic, "dead")["reason"] == "no use"
    assert command.json("show", topic, "acked")["consumer"] == "worker"
    assert "nothing is known of message 'none'" in command.refusal("show", topic, "none")
    assert "its body is gone" in command.refusal("show", topic, "gone", "--body")
