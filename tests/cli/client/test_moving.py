from __future__ import annotations

from chronoline.client import Client
from tests.cli.client.command import Command


def test_a_message_is_cancelled_by_its_group(command: Command, client: Client, topic: str) -> None:
    client.send(topic, id="i", delay=3_600)
    refused = command.refusal("cancel", topic, "i", "--group=g")
    assert refused == "refused: 'i': the message belongs to another producer group"
    assert command("cancel", topic, "i") == "cancelled 'i'\n"
    assert client.lookup(topic, "i") is None
    assert "there is no message with this id" in command.refusal("cancel", topic, "j")


def test_several_messages_are_cancelled_at_once(
    command: Command, client: Client, topic: str
) -> None:
    for each in "abc":
        client.send(topic, id=each, delay=3_600)
    assert command("cancel", topic, "a", "b") == "cancelled 'a'\ncancelled 'b'\n"
    failed = command.failed("cancel", topic, "missing", "c")
    assert failed.stdout == "cancelled 'c'\n"
    assert str(failed.exception) == "refused: 'missing': there is no message with this id"
    assert client.count(topic).total == 0


def test_a_message_is_moved_to_a_moment_or_by_a_duration(
    command: Command, client: Client, topic: str
) -> None:
    client.send(topic, id="i", delay=3_600)
    moved = command("reschedule", topic, "i", "--due=2100-01-01T00:00:00.25Z")
    assert moved == "moved 'i': due 2100-01-01T00:00:00.250Z\n"
    before = client.lookup(topic, "i")
    command("reschedule", topic, "i", "--in=2h")
    after = client.lookup(topic, "i")
    assert before is not None
    assert after is not None
    assert after.due < before.due
    assert command.refusal("reschedule", topic, "i") == "say when: --due or --in"


def test_a_message_is_shown(command: Command, client: Client, topic: str) -> None:
    headers = [("h", b"\x1bv"), ("h", None)]
    client.send(topic, b"b", id="i", delay=3_600, key=b"k", headers=headers)
    shown = command.json("show", topic, "i")
    assert (shown["id"], shown["status"], shown["group"]) == ("i", "waiting", "default")
    assert (shown["key"], shown["headers"]) == ("k", [["h", "\x1bv"], ["h", None]])
    assert shown["due"] == shown["ts"]
    assert "body" not in shown
    assert command.json("show", topic, "i", "--body") == {**shown, "body": "b"}
    lines = [line.split(maxsplit=1) for line in command("show", topic, "i").splitlines()]
    rows = [(name, rest.strip()) for name, rest in lines]
    assert ("status", "waiting") in rows
    assert ("due", shown["due"]) in rows
    assert [value for name, value in rows if name == "header"] == ["h=�v", "h=–"]


def test_who_has_a_message_is_shown(command: Command, client: Client, topic: str) -> None:
    client.send(topic, b"b", id="i")
    leases = client.consume(topic, consumer="me", lease=3_600)
    next(iter(leases))
    shown = command("show", topic, "i")
    assert "processing" in shown
    assert "of me, until 2" in shown
    assert command.json("show", topic, "i")["consumer"] == "me"


def test_a_body_is_shown_byte_for_byte_to_its_group_alone(
    command: Command, client: Client, topic: str
) -> None:
    client.send(topic, b"\x00\xff\n", id="i", delay=3_600)
    assert command.result("show", topic, "i", "--body").stdout_bytes == b"\x00\xff\n"
    assert "another producer group" in command.refusal("show", topic, "i", "--body", "--group=g")


def test_of_what_is_not_there_it_is_said_where_it_may_be(command: Command, topic: str) -> None:
    refused = command.refusal("show", topic, "i")
    assert refused.startswith(f"there is no message 'i' on topic '{topic}'")
    assert f"`chronoline dead list {topic}`" in refused
