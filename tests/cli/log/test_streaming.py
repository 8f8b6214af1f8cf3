"""Lines into batches, and batches into a log, which may fail."""

from __future__ import annotations

import io
from collections.abc import Sequence
from concurrent.futures import Future
from typing import cast

import pytest

from chronoline.cli.log import streaming
from chronoline.cli.log.streaming import append_lines, batches
from chronoline.core.errors import ChronolineError, InvalidInput, StoreBusy, StoreUnavailable
from chronoline.log import Log, NewEvent, Position


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


def values(source: streaming.Source) -> list[tuple[int, list[bytes | None]]]:
    return [
        (each.first_line, [event.value for event in each.events]) for each in batches(source, take)
    ]


def test_what_came_together_is_a_batch() -> None:
    source = Slowly(b"a\nb\nc", b"c", b"\n", b"d\n", b"\n\ne")
    assert values(source) == [
        (1, [b"a", b"b"]),
        (3, [b"cc"]),
        (4, [b"d"]),
        (5, []),
        (7, [b"e"]),
    ]


def test_nothing_is_no_batch() -> None:
    assert values(Slowly()) == []


def test_line_numbers_go_on_where_a_batch_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "_BATCH_BYTES", 400)
    assert values(io.BytesIO(b"a\nb\nc\nd\ne")) == [
        (1, [b"a", b"b"]),
        (3, [b"c", b"d"]),
        (5, []),
        (5, [b"e"]),
    ]


def test_a_bad_line_is_named_after_what_is_before_it() -> None:
    found = batches(Slowly(b"a\n", b"b\n\nbad\nc\n"), take)
    assert [event.value for event in next(found).events] == [b"a"]
    assert [event.value for event in next(found).events] == [b"b"]
    with pytest.raises(InvalidInput, match=r"^line 4: it is bad$"):
        next(found)


def test_a_line_without_an_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "MAX_LINE_BYTES", 10)
    found = batches(Slowly(b"a\n", b"123456", b"789012", b"3\n"), take)
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


def append(log: FakeLog, source: streaming.Source) -> int:
    return append_lines(cast(Log, log), "t", source, take, lambda done: None)


def test_a_bounded_number_of_bytes_is_on_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "_BYTES_ON_THEIR_WAY", 3 * 1_200)
    log = FakeLog()
    assert append(log, Slowly(*(b"%1000d\n" % number for number in range(20)))) == 20
    assert log.most_on_their_way <= 4
    assert log.appended == [b"%1000d" % number for number in range(20)]


def test_a_bad_line_ends_it_when_what_is_before_it_is_appended() -> None:
    log = FakeLog()
    with pytest.raises(
        InvalidInput, match=r"^line 3: it is bad; before it 2 events went into the log$"
    ):
        append(log, Slowly(b"a\nb\n", b"bad\n", b"c\n"))
    assert log.appended == [b"a", b"b"]


def test_a_batch_that_fails_is_named_and_the_others_are_counted() -> None:
    log = FakeLog({b"b": StoreUnavailable("the disk is gone")})
    with pytest.raises(
        ChronolineError,
        match=r"^lines 2 to 3: the disk is gone; of other lines 2 events went into the log$",
    ):
        append(log, Slowly(b"a\n", b"b\nbb\n", b"c\n"))
    assert log.appended == [b"a", b"c"]


def test_a_batch_that_is_refused_ends_it() -> None:
    log = FakeLog({b"b": StoreBusy("too much waits")})
    with pytest.raises(ChronolineError, match=r"^lines 2 to 2: too much waits; of other lines 1 "):
        append(log, Slowly(b"a\n", b"b\n", b"c\n"))
    assert log.appended == [b"a"]


def test_what_is_on_its_way_is_waited_for_when_it_is_told_to_end(
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
