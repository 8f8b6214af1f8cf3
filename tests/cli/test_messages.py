"""`chronoline send`, `cancel`, `reschedule` and `show`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

import pytest

from chronoline.cli.lines import LineBatch, LineSource
from chronoline.cli.messages import line_batches
from chronoline.client import Client, Outcome, Outcomes, ToSend
from chronoline.core.errors import InvalidInput
from chronoline.core.outcome import Refusal
from chronoline.runtime.child_process import LineProcess
from tests.cli.command import Command

# Sending


NEW_YEAR = datetime(2100, 1, 1, tzinfo=UTC)


def test_send_prints_the_id(command: Command, client: Client, topic: str) -> None:
    sent = command(
        *("send", topic, "--due=2100-01-01T01:00:00+01:00", "--id=i", "--body=ä", "--key=k"),
        *("--header=a=1", "--header=b=x=y", "--header=a="),
    )
    assert sent == "i\n"
    message = client.lookup(topic, "i")
    assert message is not None
    assert message.due == NEW_YEAR
    assert (message.key, message.producer_group) == (b"k", "default")
    assert message.headers == (("a", b"1"), ("b", b"x=y"), ("a", b""))
    assert client.body(topic, "i") == "ä".encode()


def test_send_generates_an_id_and_reads_stdin(command: Command, client: Client, topic: str) -> None:
    sent = command("send", topic, "--in=1h", "--body=-", input=b"a\n\xff")
    assert client.body(topic, sent.strip()) == b"a\n\xff"


def test_missing_body_is_empty(command: Command, client: Client, topic: str) -> None:
    sent = command("send", topic, "--in=1h", input=b"not taken")
    assert client.body(topic, sent.strip()) == b""


def test_taken_id_is_refused_or_replaced(command: Command, client: Client, topic: str) -> None:
    command("send", topic, "--in=1h", "--id=i", "--body=one")
    again = ["send", topic, "--in=2h", "--id=i", "--body=two"]
    assert "a message with this id exists" in command.refusal(*again)
    assert command(*again, "--replace") == "i\n"
    assert client.body(topic, "i") == b"two"
    assert "belongs to another producer group" in command.refusal(*again, "--replace", "--group=g")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--due=2100-01-01T00:00:00Z", "--in=1s"], "give --due or --in, not both"),
        (["--due=tomorrow"], "--due 'tomorrow' is not a time with its zone"),
        (["--in=5"], "--in '5' is not a duration: write 250ms"),
        (["--header=x"], "header 'x' is not of the form name=value"),
        (["--lines", "--id=i"], "--lines takes bodies from stdin"),
    ],
)
def test_bad_options_are_refused(
    command: Command, topic: str, arguments: list[str], words: str
) -> None:
    assert words in command.refusal("send", topic, *arguments)


def test_missing_topic_error_shows_how_to_create_it(command: Command) -> None:
    words = "there is no topic 'no'; create it with `chronoline topic create no`"
    assert command.refusal("send", "no") == words
    assert command.refusal("send", "no", "--lines", input="a\n") == words


# Lines


def test_each_line_is_a_message(command: Command, client: Client, topic: str) -> None:
    given = ["send", topic, "--lines", "--in=1h", "--header=a=1", "--group=g"]
    text = b"".join(b"%d\n" % number for number in range(2_500)) + b"\n" + b"\xff"
    sent = command.result(*given, input=text)
    assert sent.stderr == "sent 2,502 messages\n"
    ids = sent.stdout.split()
    assert len(set(ids)) == 2_502
    now = datetime.now(UTC)
    assert client.count(topic).waiting == 2_502
    assert client.count(topic, now, now + timedelta(minutes=59)).total == 0


def test_lines_round_trip(command: Command, topic: str) -> None:
    command("send", topic, "--lines", "--key=k", input=b"one\n\ntwo\r\nthree")
    got = command.result("receive", topic, "--count=4", "--ack")
    assert sorted(got.stdout_bytes.split(b"\n")[:-1]) == [b"", b"one", b"three", b"two\r"]


def test_empty_input_sends_nothing(command: Command, topic: str) -> None:
    sent = command.result("send", topic, "--lines", input=b"")
    assert (sent.stdout, sent.stderr) == ("", "sent 0 messages\n")


def test_ids_are_printed_in_the_order_of_the_lines(
    command: Command, client: Client, topic: str
) -> None:
    with Client(command.address, producer_group="default") as owner:
        ids = command("send", topic, "--lines", "--in=1h", input=b"one\ntwo\n").split()
        assert [owner.body(topic, each) for each in ids] == [b"one", b"two"]
        text = command("send", topic, "--lines", "--json", "--in=1h", input=b"three\nfour\n")
        told = [json.loads(line) for line in text.splitlines()]
        assert [each.pop("line") for each in told] == [1, 2]
        assert [owner.body(topic, each["id"]) for each in told] == [b"three", b"four"]
    sent = command.json("send", topic, "--in=1h", "--id=i")
    assert sent == {"id": "i"}


def test_too_long_line_ends_send_after_earlier_lines(command: Command, client: Client) -> None:
    command("topic", "create", "short", "--largest-body=10B")
    text = b"one\n" + b"x" * 11 + b"\nthree\n"
    refused = command.refusal("send", "short", "--lines", "--in=1h", input=text)
    assert refused == (
        "line 2: it has more than 10 bytes, the limit of this topic; before it 1 message went onto "
        "the timeline"
    )
    assert client.count("short").total == 1


def test_refused_lines_are_numbered(
    command: Command, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse_some(_: object, __: str, messages: Sequence[ToSend]) -> Outcomes:
        return Outcomes(
            Outcome(id="i", refusal=Refusal.EXISTS if each.body in (b"b", b"d") else None)
            for each in messages
        )

    monkeypatch.setattr(Client, "send_many", refuse_some)
    reason = "a message with this id exists, or existed within the dedupe time; use another id, or replace it"
    refused = command.failed("send", topic, "--lines", input=b"a\nb\nc\nd\n")
    assert str(refused.exception) == "2 lines refused or failed; 2 messages sent"
    assert refused.stdout == "i\ni\n"
    assert refused.stderr == f"line 2: refused: {reason}\nline 4: refused: {reason}\n"
    refused = command.failed("send", topic, "--lines", "--json", input=b"a\nb\n")
    assert [json.loads(line) for line in refused.stdout.splitlines()] == [
        {"line": 1, "id": "i"},
        {"line": 2, "refused": "exists", "reason": reason},
    ]


def test_failed_batch_is_reported_with_its_lines(command: Command, topic: str) -> None:
    header = f"--header={'n' * 256}=1"
    reason = "header name has 256 bytes; at most 255 are allowed"
    refused = command.failed("send", topic, "--lines", header, input=b"a\nb\n")
    assert str(refused.exception) == "2 lines refused or failed; 0 messages sent"
    assert (refused.stdout, refused.stderr) == ("", f"lines 1 to 2: {reason}\n")
    refused = command.failed("send", topic, "--lines", "--json", header, input=b"a\nb\n")
    assert [json.loads(line) for line in refused.stdout.splitlines()] == [
        {"line": number, "failed": "invalid_input", "reason": reason} for number in (1, 2)
    ]


def test_id_is_printed_before_the_next_line(address: str, topic: str) -> None:
    """So that a program can write a line and wait for its id."""
    command = [sys.executable, "-m", "chronoline", "send", topic, "--lines"]
    environment = {**os.environ, "CHRONOLINE_ADDRESS": address}
    with LineProcess(command, environment=environment) as process:
        ids = set()
        for line in ("one", "two"):
            process.write_line(line)
            ids.add(process.read_line())
        assert len(ids) == 2
        process.close_input()
        assert process.wait() == 0


class Trickle:
    """A stream that answers what has come."""

    def __init__(self, *parts: bytes) -> None:
        self._parts = [*parts, b""]

    def read1(self, _: int) -> bytes:
        return self._parts.pop(0)


def portions(source: LineSource, most_bytes: int) -> Iterator[LineBatch[bytes]]:
    return line_batches(source, most_bytes, lambda line: line)


def test_slow_input_is_sent_line_by_line() -> None:
    found = portions(Trickle(b"on", b"e\ntw", b"o\nthree\n", b"four"), 100)
    assert [(each.first_line, each.items) for each in found] == [
        (1, [b"one"]),
        (2, [b"two", b"three"]),
        (4, [b"four"]),
    ]


def test_batch_is_bounded_in_lines_and_bytes() -> None:
    many = list(portions(Trickle(b"\n" * 2_500), 100))
    assert [(each.first_line, len(each.items)) for each in many] == [
        (1, 1_000),
        (1_001, 1_000),
        (2_001, 500),
    ]
    large = list(portions(Trickle(b"\n".join([b"x" * 300_000] * 3)), 300_000))
    assert [(each.first_line, len(each.items)) for each in large] == [(1, 1), (2, 1), (3, 1)]


def test_endless_line_does_not_fill_memory() -> None:
    found = portions(Trickle(b"one\n", b"x" * 60, b"x" * 60, b"never read"), 100)
    assert next(found).items == [b"one"]
    with pytest.raises(InvalidInput, match=r"^line 2: it has more than 100 bytes"):
        next(found)


# One message that waits


def test_producer_group_cancels_its_message(command: Command, client: Client, topic: str) -> None:
    client.send(topic, id="i", delay=3_600)
    refused = command.refusal("cancel", topic, "i", "--group=g")
    assert (
        refused
        == "refused: 'i': the message belongs to another producer group, which alone may change it"
    )
    assert command("cancel", topic, "i") == "cancelled 'i'\n"
    assert client.lookup(topic, "i") is None
    assert "there is no message with this id; check the id and the topic" in command.refusal(
        "cancel", topic, "j"
    )


def test_several_messages_are_cancelled_at_once(
    command: Command, client: Client, topic: str
) -> None:
    for each in "abc":
        client.send(topic, id=each, delay=3_600)
    assert command("cancel", topic, "a", "b") == "cancelled 'a'\ncancelled 'b'\n"
    failed = command.failed("cancel", topic, "missing", "c")
    assert failed.stdout == "cancelled 'c'\n"
    assert (
        "'missing' refused: there is no message with this id; check the id and the topic\n"
        in failed.stderr
    )
    assert str(failed.exception) == "1 message of 2 not cancelled"
    assert client.count(topic).total == 0


def test_cancel_as_json_has_a_line_for_each(command: Command, client: Client, topic: str) -> None:
    client.send(topic, id="a", delay=3_600)
    failed = command.failed("cancel", topic, "a", "missing", "--json")
    assert [json.loads(line) for line in failed.stdout.splitlines()] == [
        {"id": "a", "cancelled": True},
        {
            "id": "missing",
            "refused": "not_found",
            "reason": "there is no message with this id; check the id and the topic",
        },
    ]


def test_unknown_cancel_is_neither_done_nor_refused(
    command: Command, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = Outcomes([Outcome(id="a"), Outcome(id="b", unknown=True, detail="no answer")])
    monkeypatch.setattr(Client, "cancel_many", lambda *_: answers)
    failed = command.failed("cancel", topic, "a", "b")
    assert failed.stdout == "cancelled 'a'\n"
    assert "'b' unknown: " in failed.stderr
    assert str(failed.exception) == "0 messages of 2 not cancelled, 1 unknown: ask again"
    failed = command.failed("cancel", topic, "a", "b", "--json")
    done, unknown = map(json.loads, failed.stdout.splitlines())
    assert done == {"id": "a", "cancelled": True}
    assert unknown["unknown"] is True
    assert "cancelled" not in unknown


def test_reschedule_takes_a_moment_or_a_duration(
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
    assert command.refusal("reschedule", topic, "i") == "give --due or --in"


def test_reschedule_of_several_names_those_that_were_refused(
    command: Command, client: Client, topic: str
) -> None:
    for each in ("a", "b"):
        client.send(topic, id=each, delay=3_600)
    failed = command.failed("reschedule", topic, "a", "missing", "b", "--due=2100-01-01T00:00:00Z")
    assert failed.stdout == "".join(
        f"moved {each!r}: due 2100-01-01T00:00:00.000Z\n" for each in ("a", "b")
    )
    assert failed.stderr.startswith("'missing' refused: ")
    assert str(failed.exception) == "1 message of 3 not moved"


def test_reschedule_past_expires_is_refused_without_a_new_one(
    command: Command, client: Client, topic: str
) -> None:
    command("send", topic, "--id=i", "--in=1h", "--expires=+2h")
    refused = command.refusal("reschedule", topic, "i", "--in=3h")
    assert "not before the message's `expires`" in refused
    assert "moved 'i'" in command("reschedule", topic, "i", "--in=3h", "--expires=+4h")
    moved = client.lookup(topic, "i")
    assert moved is not None
    assert moved.expires is not None
    assert moved.expires > moved.due


def test_show_prints_a_message(command: Command, client: Client, topic: str) -> None:
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


def test_show_names_the_lease_holder(command: Command, client: Client, topic: str) -> None:
    client.send(topic, b"b", id="i")
    leases = client.consume(topic, consumer="me", lease=3_600)
    next(iter(leases))
    shown = command("show", topic, "i")
    assert "processing" in shown
    assert "of me, until 2" in shown
    assert command.json("show", topic, "i")["consumer"] == "me"


def test_body_is_shown_only_to_its_group(command: Command, client: Client, topic: str) -> None:
    client.send(topic, b"\x00\xff\n", id="i", delay=3_600)
    assert command.result("show", topic, "i", "--body").stdout_bytes == b"\x00\xff\n"
    assert "another producer group" in command.refusal("show", topic, "i", "--body", "--group=g")


def test_missing_message_error_says_what_can_have_been(command: Command, topic: str) -> None:
    refused = command.refusal("show", topic, "i")
    assert refused.startswith(f"nothing is known of message 'i' on topic '{topic}'")
    assert "or was acked or cancelled longer ago than the topic's dedupe time" in refused
