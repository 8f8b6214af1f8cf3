"""`chronoline log append`: events from options and lines, into a log that may fail."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import cast

import pytest

from chronoline.cli.lines import LineSource
from chronoline.cli.log import events
from chronoline.cli.log.events import Appends, append_lines, event_batches
from chronoline.core.errors import ChronolineError, InvalidInput, StoreBusy, StoreUnavailable
from chronoline.log import Event, Log, NewEvent, Position
from tests.cli.log.command import Command

# The command


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


def test_event_is_appended_with_its_options(command: Command, log: Log) -> None:
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


def test_argument_outside_utf_8_is_kept(command: Command, log: Log) -> None:
    command("append", "t", "\udcff", "--key", "\udcfe")
    (event,) = everything(log, "t")
    assert (event.key, event.value) == (b"\xfe", b"\xff")


def test_plain_lines_are_appended_as_values(command: Command, log: Log) -> None:
    lines = b"one\n\n\xff\r\nfour"
    arguments = ("-", "--format", "lines", "--partition", "1", "--key", "k", "--header", "a=1")
    assert command("append", "t", *arguments, input=lines) == "appended 4 events\n"
    found = everything(log, "t")
    assert [event.value for event in found] == [b"one", b"", b"\xff\r", b"four"]
    assert {(each.partition, each.key, each.headers) for each in found} == {
        (1, b"k", (("a", b"1"),))
    }


def test_json_lines_are_appended_as_events(command: Command, log: Log) -> None:
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


def test_options_fill_missing_fields_of_a_line(command: Command, log: Log) -> None:
    lines = '{"value": "1"}\n{"value": "2", "key": "own", "headers": [["b", ""]], "partition": 0}\n'
    options = ("--key", "k", "--header", "a=1", "--partition", "3")
    command("append", "t", "-", *options, input=lines)
    own, given = everything(log, "t")
    assert (own.partition, own.key, own.headers) == (0, b"own", (("b", b""),))
    assert (given.partition, given.key, given.headers) == (3, b"k", (("a", b"1"),))


def test_output_of_read_is_appended_byte_for_byte(command: Command, log: Log) -> None:
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


def test_copy_may_have_other_partitions(command: Command, log: Log) -> None:
    log.create_topic("one", partitions=1)
    log.append_many("t", ODD)
    lines = command.raw("read", "t", "--partition", "3")
    assert "line 1: partition 3 is not one of 0 to 0" in command.refusal(
        "append", "one", input=lines
    )
    command("append", "one", "--repartition", input=lines)
    assert {event.partition for event in everything(log, "one")} == {0}


def test_plain_values_round_trip_as_lines(command: Command, log: Log) -> None:
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
def test_bad_line_ends_the_append_after_earlier_lines(
    command: Command, log: Log, line: str, said: str
) -> None:
    lines = f'{{"value": "1"}}\n\n{{"value": "3"}}\n{line}\n{{"value": "5"}}\n'
    refusal = command.refusal("append", "t", input=lines)
    assert refusal.startswith(f"line 4: {said}")
    assert refusal.endswith("; before it 2 events went into the log")
    assert {event.value for event in everything(log, "t")} == {b"1", b"3"}


def test_bad_options_are_refused_before_reading(command: Command, log: Log) -> None:
    assert "not of the form name=value" in command.refusal("append", "t", "v", "--header", "x")
    assert "partition 4" in command.refusal("append", "t", "v", "--partition", "4")
    assert "partition 4" in command.refusal("append", "t", "--partition", "4", input="{")
    assert "no topic named 'x'" in command.refusal("append", "x", "v")
    assert "no topic named 'x'" in command.refusal("append", "x", input="{")
    assert "'xml' is not" in command.misuse("append", "t", "-", "--format", "xml")
    assert everything(log, "t") == []


def test_terminal_input_asks_for_a_value(
    command: Command, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("chronoline.cli.log.events.sys", terminal)
    assert command.refusal("append", "t") == "give a value, or - to append the lines of stdin"


def test_many_lines_are_appended_once(command: Command, log: Log) -> None:
    lines = "".join(f"{number}\n" for number in range(30_000))
    assert command("append", "t", "-", "--format", "lines", input=lines) == (
        "appended 30,000 events\n"
    )
    assert {int(event.value or b"") for event in log.read("t", follow=False)} == set(range(30_000))


# Batches


class Slowly:
    """A stream that answers as much as came at a time."""

    def __init__(self, *parts: bytes) -> None:
        self._parts = list(parts)

    def read1(self, size: int, /) -> bytes:
        return self._parts.pop(0) if self._parts else b""


def take(line: bytes) -> NewEvent | None:
    if line == b"bad":
        raise InvalidInput("it is bad")
    return NewEvent(value=line) if line else None


def values(source: LineSource) -> list[tuple[int, list[bytes | None]]]:
    return [
        (each.first_line, [event.value for event in each.items])
        for each in event_batches(source, take)
    ]


def test_lines_read_together_are_a_batch() -> None:
    source = Slowly(b"a\nb\nc", b"c", b"\n", b"d\n", b"\n\ne")
    assert values(source) == [
        (1, [b"a", b"b"]),
        (3, [b"cc"]),
        (4, [b"d"]),
        (5, []),
        (7, [b"e"]),
    ]


def test_empty_input_has_no_batch() -> None:
    assert values(Slowly()) == []


def test_line_numbers_continue_across_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    # No setting: a small bound is reached soon.
    monkeypatch.setattr(events, "_BATCH_BYTES", 402)
    assert values(io.BytesIO(b"a\nb\nc\nd\ne")) == [
        (1, [b"a", b"b"]),
        (3, [b"c", b"d"]),
        (5, [b"e"]),
    ]


def test_bad_line_is_named_after_earlier_batches() -> None:
    found = event_batches(Slowly(b"a\n", b"b\n\nbad\nc\n"), take)
    assert [event.value for event in next(found).items] == [b"a"]
    assert [event.value for event in next(found).items] == [b"b"]
    with pytest.raises(InvalidInput, match=r"^line 4: it is bad$"):
        next(found)


def test_endless_line_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MAX_LINE_BYTES", 10)
    found = event_batches(Slowly(b"a\n", b"123456", b"789012", b"3\n"), take)
    assert next(found).first_line == 1
    with pytest.raises(InvalidInput, match=r"^line 2: it has more than 10 bytes$"):
        next(found)


class FakeLog:
    """Counts what is on its way, and settles a batch when it is waited for."""

    def __init__(self, fail: dict[bytes, Exception] | None = None) -> None:
        self.appended: list[bytes | None] = []
        self.most_on_their_way = 0
        self._fail = fail or {}
        self._on_their_way = 0

    def append_later(self, topic: str, events: Sequence[NewEvent]) -> Future[list[Position]]:
        if isinstance(self._fail.get(events[0].value or b""), StoreBusy):
            raise self._fail[events[0].value or b""]
        self._on_their_way += 1
        self.most_on_their_way = max(self.most_on_their_way, self._on_their_way)
        return _Waiting(self, events)

    def settle(self, events: Sequence[NewEvent]) -> list[Position]:
        self._on_their_way -= 1
        if error := self._fail.get(events[0].value or b""):
            raise error
        self.appended += [event.value for event in events]
        return [Position(partition=0, sequence=0) for _ in events]


class _Waiting(Future[list[Position]]):
    def __init__(self, log: FakeLog, events: Sequence[NewEvent]) -> None:
        super().__init__()
        self._log = log
        self._events = events

    def result(self, timeout: float | None = None) -> list[Position]:
        return self._log.settle(self._events)


def append(log: FakeLog, source: LineSource) -> str:
    return append_lines(cast(Log, log), "t", source, take, lambda done: None)


def test_pending_bytes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Appends, "most_bytes", 3 * 1_200)
    log = FakeLog()
    assert append(log, Slowly(*(b"%1000d\n" % number for number in range(20)))) == "20 events"
    assert log.most_on_their_way <= 4
    assert log.appended == [b"%1000d" % number for number in range(20)]


def test_bad_line_waits_for_earlier_batches() -> None:
    log = FakeLog()
    with pytest.raises(
        InvalidInput, match=r"^line 3: it is bad; before it 2 events went into the log$"
    ):
        append(log, Slowly(b"a\nb\n", b"bad\n", b"c\n"))
    assert log.appended == [b"a", b"b"]


def test_failed_batch_is_named_and_others_counted() -> None:
    log = FakeLog({b"b": StoreUnavailable("the disk is gone")})
    with pytest.raises(
        ChronolineError,
        match=r"^lines 2 to 3: the disk is gone; of other lines 2 events went into the log$",
    ):
        append(log, Slowly(b"a\n", b"b\nbb\n", b"c\n"))
    assert log.appended == [b"a", b"c"]


def test_refused_batch_ends_the_append() -> None:
    log = FakeLog({b"b": StoreBusy("too much waits")})
    with pytest.raises(ChronolineError, match=r"^lines 2 to 2: too much waits; of other lines 1 "):
        append(log, Slowly(b"a\n", b"b\n", b"c\n"))
    assert log.appended == [b"a"]


def test_interrupt_waits_for_pending_batches(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Interrupted(Slowly):
        def read1(self, size: int, /) -> bytes:
            if data := super().read1(size):
                return data
            raise KeyboardInterrupt

    log = FakeLog()
    with pytest.raises(KeyboardInterrupt):
        append(log, Interrupted(b"a\n", b"b\nno end"))
    assert log.appended == [b"a", b"b"]
    assert capsys.readouterr().err == "chronoline: ended; appended 2 events\n"
