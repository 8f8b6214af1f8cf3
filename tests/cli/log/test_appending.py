"""`append`: one event, and as many as there are lines."""

import json
from types import SimpleNamespace

import pytest

from chronoline.log import Event, Log, NewEvent
from tests.cli.log.command import Command

ODD = [
    NewEvent(value=None, ts=0),
    NewEvent(value=b"", key=b"", ts=1),
    NewEvent(value=bytes(range(256)), key=b"\xff\x00", ts=253_402_300_799_999),
    NewEvent(
        value='"\\\n\r\t\u2028\x85\x7f\0{"base64":"AA=="}'.encode(), key="ключ".encode(), ts=7
    ),
    NewEvent(
        value=b"v",
        headers=(("a", b"1"), ("a", None), ("", b"\x80"), ("ü", b"\n")),
        partition=3,
        ts=8,
    ),
]


def everything(log: Log, topic: str) -> list[Event]:
    found = log.read(topic, follow=False)
    return sorted(found, key=lambda event: (event.partition, event.sequence))


def test_one_event(command: Command, log: Log) -> None:
    arguments = ("--key", "k", "--header", "a=1", "--header", "b=x=y", "--partition", "2")
    assert command("append", "t", "hello", *arguments) == "partition 2, sequence 0\n"
    assert command("append", "t", "again", "--partition", "2") == "partition 2, sequence 1\n"
    first, second = everything(log, "t")
    assert (first.key, first.value, first.headers) == (b"k", b"hello", (("a", b"1"), ("b", b"x=y")))
    assert (second.key, second.value, second.headers) == (None, b"again", ())


def test_the_key_decides_the_partition(command: Command, log: Log) -> None:
    command("append", "t", "one", "--key", "user-1")
    command("append", "t", "two", "--key", "user-1")
    assert [event.sequence for event in everything(log, "t")] == [0, 1]


def test_an_argument_that_is_not_utf_8_is_kept(command: Command, log: Log) -> None:
    command("append", "t", "\udcff", "--key", "\udcfe")
    (event,) = everything(log, "t")
    assert (event.key, event.value) == (b"\xfe", b"\xff")


def test_plain_lines(command: Command, log: Log) -> None:
    lines = b"one\n\n\xff\r\nfour"
    arguments = ("-", "--format", "lines", "--partition", "1", "--key", "k", "--header", "a=1")
    assert command("append", "t", *arguments, input=lines) == "appended 4 events\n"
    found = everything(log, "t")
    assert [event.value for event in found] == [b"one", b"", b"\xff\r", b"four"]
    assert {(each.partition, each.key, each.headers) for each in found} == {
        (1, b"k", (("a", b"1"),))
    }


def test_lines_of_json(command: Command, log: Log) -> None:
    lines = [
        {"value": "one", "key": "k", "headers": [["a", "1"]], "partition": 3, "ts": 7},
        {"value": None},
    ]
    text = "\n\n".join(map(json.dumps, lines))
    assert command("append", "t", input=text) == "appended 2 events\n"
    by_value = {event.value: event for event in everything(log, "t")}
    one = by_value[b"one"]
    assert (one.partition, one.ts, one.key, one.headers) == (3, 7, b"k", (("a", b"1"),))
    assert None in by_value


def test_options_stand_for_what_a_line_does_not_say(command: Command, log: Log) -> None:
    lines = '{"value": "1"}\n{"value": "2", "key": "own", "headers": [["b", ""]], "partition": 0}\n'
    options = ("--key", "k", "--header", "a=1", "--partition", "3")
    command("append", "t", "-", *options, input=lines)
    own, given = everything(log, "t")
    assert (own.partition, own.key, own.headers) == (0, b"own", (("b", b""),))
    assert (given.partition, given.key, given.headers) == (3, b"k", (("a", b"1"),))


def test_what_is_read_is_appended_byte_for_byte(command: Command, log: Log) -> None:
    log.create_topic("copy", partitions=4)
    log.append_many("t", ODD)
    assert command("append", "copy", input=command.raw("read", "t")) == "appended 5 events\n"
    copied = [
        (each.partition, each.sequence, each.ts, each.key, each.value, each.headers)
        for each in everything(log, "copy")
    ]
    assert copied == [
        (each.partition, each.sequence, each.ts, each.key, each.value, each.headers)
        for each in everything(log, "t")
    ]


def test_a_copy_may_have_other_partitions(command: Command, log: Log) -> None:
    log.create_topic("one", partitions=1)
    log.append_many("t", ODD)
    lines = command.raw("read", "t", "--partition", "3")
    assert "line 1: partition 3 is not one of 0 to 0" in command.refusal(
        "append", "one", input=lines
    )
    command("append", "one", "--repartition", input=lines)
    assert {event.partition for event in everything(log, "one")} == {0}


def test_plain_values_come_back_as_lines(command: Command, log: Log) -> None:
    log.create_topic("copy", partitions=1)
    log.append_many("t", [NewEvent(value=value, partition=0) for value in (b"a", b"\xff", b"")])
    lines = command.raw("read", "t", "--format", "values")
    assert lines == b"a\n\xff\n\n"
    command("append", "copy", "--format", "lines", input=lines)
    assert [event.value for event in everything(log, "copy")] == [b"a", b"\xff", b""]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("nonsense", "not JSON: expecting value at character 1;"),
        ('{"value": 7}', "value must be text, null, or"),
        ('{"value": "v", "partition": 4}', "partition 4 is not one of 0 to 3"),
        ('{"value": "v", "partition": "0"}', "partition '0' is not one of 0 to 3"),
        ('{"value": "v", "ts": -1}', "ts -1 is not between 1970 and the year 9999"),
        ('{"value": "v", "ts": 1.5}', "ts must be whole milliseconds since 1970, not float"),
        (json.dumps({"value": "v", "key": "k" * 65_537}), "key has 65537 bytes"),
    ],
)
def test_a_bad_line_ends_it_after_those_before(
    command: Command, log: Log, line: str, said: str
) -> None:
    lines = f'{{"value": "1"}}\n\n{{"value": "3"}}\n{line}\n{{"value": "5"}}\n'
    refusal = command.refusal("append", "t", input=lines)
    assert refusal.startswith(f"line 4: {said}")
    assert refusal.endswith("; before it 2 events went into the log")
    assert {event.value for event in everything(log, "t")} == {b"1", b"3"}


def test_bad_options_are_refused_before_anything_is_read(command: Command, log: Log) -> None:
    assert "not of the form name=value" in command.refusal("append", "t", "v", "--header", "x")
    assert "partition 4" in command.refusal("append", "t", "v", "--partition", "4")
    assert "partition 4" in command.refusal("append", "t", "--partition", "4", input="{")
    assert "no topic named 'x'" in command.refusal("append", "x", "v")
    assert "no topic named 'x'" in command.refusal("append", "x", input="{")
    assert "'xml' is not" in command.misuse("append", "t", "-", "--format", "xml")
    assert everything(log, "t") == []


def test_at_a_terminal_a_value_is_asked_for(
    command: Command, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("chronoline.cli.log.appending.sys", terminal)
    assert command.refusal("append", "t") == "give a value, or - to append the lines of stdin"


def test_many_lines(command: Command, log: Log) -> None:
    lines = "".join(f"{number}\n" for number in range(30_000))
    assert command("append", "t", "-", "--format", "lines", input=lines) == (
        "appended 30,000 events\n"
    )
    assert {int(event.value or b"") for event in log.read("t", follow=False)} == set(range(30_000))
