from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest

# Many durations; the command shows the current one alone.
from chronoline.cli.receive import _late
from chronoline.client import Client, Message
from chronoline.runtime.timestamps import show_moment
from tests.cli.command import Command
from tests.deadline import until


def test_message_is_printed_and_released(command: Command, client: Client, topic: str) -> None:
    client.send(topic, b"hello", id="i", delay=0.2)
    shown = command.result("receive", topic)
    assert shown.stdout == "hello\n"
    detail, given_back = shown.stderr.splitlines()
    assert re.fullmatch(r"  i: due 20\d\d-\S+Z, [\d.]+ m?s late", detail)
    assert given_back == "it was only shown, and given back: --ack takes a message for good"
    assert client.count(topic).total == 1
    assert command("receive", topic) == "hello\n"


def _unlocked(client: Client, topic: str) -> Message:
    """The message, when no consumer that has left still holds it: a broker gives back after it answered."""
    found: list[Message] = []

    def is_unlocked() -> bool:
        message = client.lookup(topic, "i")
        assert message is not None
        found[:] = [message]
        return message.lock_consumer is None

    asyncio.run(until(is_unlocked))
    return found[0]


@pytest.mark.parametrize("attempts", [0, 1])
def test_printed_message_stays_unchanged(
    command: Command, client: Client, topic: str, attempts: int
) -> None:
    """Its due, its order, its lateness and `max_lateness` are those of before."""
    topic = f"{topic}, tried {attempts}"
    client.create_topic(topic)
    due = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=5)
    client.send(topic, b"hello", id="i", due=due)
    for lease in islice(client.consume(topic), attempts):
        lease.retry()
    before = _unlocked(client, topic)
    shown = json.loads(command("receive", topic, "--json"))
    assert (shown["due"], shown["attempts"]) == (show_moment(before.due), attempts)
    after = _unlocked(client, topic)
    assert after == replace(before, version=after.version)
    assert json.loads(command("receive", topic, "--json"))["due"] == shown["due"]


def test_ack_option_acks_the_message(command: Command, client: Client, topic: str) -> None:
    client.send(topic, b"hello", id="i")
    taken = command.result("receive", topic, "--ack")
    assert taken.stdout == "hello\n"
    assert len(taken.stderr.splitlines()) == 1
    assert client.count(topic).total == 0


@pytest.mark.parametrize("arguments", [[], ["--ack"]])
def test_receive_leases_only_the_wanted_count(
    command: Command, client: Client, topic: str, arguments: list[str]
) -> None:
    for number in range(3):
        client.send(topic, id=str(number))
    before = {each: client.lookup(topic, each) for each in "012"}
    found = json.loads(command("receive", topic, "--json", *arguments))
    untouched = [each for each in "012" if client.lookup(topic, each) == before[each]]
    assert untouched == [each for each in "012" if each != found["id"]]


def test_messages_are_held_until_the_end(command: Command, client: Client, topic: str) -> None:
    for number in range(5):
        client.send(topic, str(number))
    shown = command.result("receive", topic, "--count=5", "--no-ack")
    assert sorted(shown.stdout.split()) == ["0", "1", "2", "3", "4"]
    assert "5 messages were only shown, and given back" in shown.stderr
    assert client.count(topic).total == 5


def test_held_leases_are_renewed_while_waiting(
    command: Command, client: Client, topic: str
) -> None:
    client.send(topic, b"now", id="now")
    client.send(topic, b"later", id="later", delay=2.5)
    shown = command("receive", topic, "--count=2", "--lease=1500ms")
    assert shown == "now\nlater\n"
    message = client.lookup(topic, "now")
    assert message is not None
    assert message.attempts == 0


def test_json_line_has_every_field(command: Command, client: Client, topic: str) -> None:
    client.send(topic, b"\xff", id="i", key=b"k", headers=[("a", b"1"), ("b", None)])
    client.send(topic, "ä", id="j", delay=0.05)
    lines = command("receive", topic, "--count=2", "--ack", "--json").splitlines()
    first, second = map(json.loads, lines)
    assert first["late_ms"] >= 0
    assert {name: first[name] for name in ("topic", "id", "attempts", "redelivered", "group")} == {
        "topic": topic,
        "id": "i",
        "attempts": 0,
        "redelivered": False,
        "group": "default",
    }
    assert (first["key"], first["headers"]) == ("k", [["a", "1"], ["b", None]])
    assert (first["body"], second["body"]) == ({"base64": "/w=="}, "ä")


def test_receive_ends_at_its_timeout(command: Command, client: Client, topic: str) -> None:
    waited = ["receive", topic, "--timeout=1s"]
    assert command.refusal(*waited) == "nothing came within 1s"
    client.send(topic, b"hello")
    assert command.refusal(*waited, "--count=3") == "1 of 3 came within 1s"
    assert command(*waited, "--count=0", "--ack") == "hello\n"


def test_bad_options_are_refused(command: Command, topic: str) -> None:
    for count in ("0", "1001"):
        refused = command.refusal("receive", topic, f"--count={count}")
        assert refused.startswith("without --ack what was printed is held until the end")
    assert "--lease 'x' is not a duration" in command.refusal("receive", topic, "--lease=x")
    assert "there is no topic 'no'" in command.refusal("receive", "no")
    command.misuse("receive", topic, "--count=-1")


@pytest.mark.parametrize(
    ("late_ms", "words"),
    [
        (0.04, "0.0 ms late"),
        (999.4, "999.4 ms late"),
        (1_500, "1.5 s late"),
        (90_061_000, "1 day, 1:01:01 late"),
    ],
)
def test_lateness_in_words(late_ms: float, words: str) -> None:
    assert _late(late_ms) == words


# As a process


@contextmanager
def receiving(address: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [sys.executable, "-m", "chronoline", "receive", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "CHRONOLINE_ADDRESS": address},
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_rack_option_says_where_the_consumer_runs(address: str, client: Client, topic: str) -> None:
    def racks() -> dict[str, str]:
        return {each.consumer: each.rack for each in client.cluster().subscribers}

    with receiving(address, topic, "--consumer=racked", "--rack=r1"):
        asyncio.run(until(lambda: racks().get("racked") == "r1"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_releases_held_messages(
    address: str, client: Client, topic: str, number: signal.Signals
) -> None:
    client.send(topic, b"hello", id="i")
    with receiving(address, topic, "--count=2", "--lease=1h") as process:
        assert process.stdout
        assert process.stdout.readline() == b"hello\n"
        process.send_signal(number)
        _, err = process.communicate()
        assert process.returncode == 128 + number
    assert b"it was only shown, and given back" in err
    lease = next(iter(client.consume(topic)))
    assert (lease.id, lease.attempts, lease.redelivered) == ("i", 0, False)


def test_closed_stdout_releases_held_messages(address: str, client: Client, topic: str) -> None:
    with receiving(address, topic, "--count=0", "--ack", "--lease=1h") as process:
        assert process.stdout
        process.stdout.close()
        for number in range(3):
            client.send(topic, b"hello", id=str(number))
        assert process.wait() == 0
    ids = set()
    for lease in client.consume(topic):
        ids.add(lease.id)
        if len(ids) == 3:
            break
    assert ids == {"0", "1", "2"}


def test_error_is_one_line(address: str) -> None:
    with receiving(address, "no") as process:
        out, err = process.communicate()
        assert process.returncode == 1
    words = "chronoline: there is no topic 'no'; create it with `chronoline topic create no`\n"
    assert (out, err.decode()) == (b"", words)


def test_deleted_topic_ends_receive(address: str, client: Client, topic: str) -> None:
    client.send(topic, b"hello")
    with receiving(address, topic, "--count=2", "--ack") as process:
        assert process.stdout
        assert process.stdout.readline() == b"hello\n"
        client.delete_topic(topic)
        _, err = process.communicate()
        assert process.returncode == 1
    assert b"chronoline: " in err.splitlines()[-1]
