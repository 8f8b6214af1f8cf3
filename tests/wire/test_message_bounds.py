"""Bounds on protobuf messages, before they are parsed."""

from __future__ import annotations

import random
from typing import Any

import pytest
from google.protobuf.message import Message

from chronoline.core.errors import InvalidInput
from chronoline.wire import message_bounds
from chronoline.wire.message_bounds import MOST_FIELDS, parse_message
from chronoline.wire.v1 import chronoline_pb2 as pb


def _number(value: int) -> bytes:
    """A number as protobuf writes it."""
    written = bytearray()
    while value >= 0x80:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*written, value))


def _inside(field: int, content: bytes) -> bytes:
    """A field with a length."""
    return _number(field << 3 | 2) + _number(len(content)) + content


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (pb.LookupRequest, _inside(2, b"") * (MOST_FIELDS + 1)),
        (pb.ImportRequest, _inside(2, b"") * (MOST_FIELDS + 1)),
        (pb.ImportRequest, _inside(2, _inside(7, b"") * MOST_FIELDS)),
        (pb.ImportRequest, _inside(2, _inside(7, b"") * 9) * (MOST_FIELDS // 10 + 1)),
        (pb.ProducerFrame, _inside(15, b"") * (MOST_FIELDS + 1)),
        (pb.ProducerFrame, _inside(15, _inside(4, _inside(2, b"") * MOST_FIELDS))),
        (pb.ConsumerFrame, _inside(4, _inside(4, b"") * MOST_FIELDS)),
        (pb.PutScheduleRequest, _inside(1, _inside(15, b"\1" * MOST_FIELDS))),
        (pb.ChangedBatch, _inside(4, b"") * (MOST_FIELDS + 1)),
        (pb.InfoRequest, b"\xf8\x01\x00" * (MOST_FIELDS + 1)),
        (pb.InfoRequest, b"\x7b\x7c" * MOST_FIELDS),
    ],
)
def test_too_many_fields_are_refused(kind: type[Message], data: bytes) -> None:
    with pytest.raises(InvalidInput, match="more than 320,000 fields"):
        parse_message(kind, data)


@pytest.mark.parametrize(
    "data",
    [
        b"\x7a",
        b"\x7a\x7f",
        b"\x78" + b"\xff" * 1_000_000,
        b"\xfa" + b"\xff" * 1_000_000,
        b"\x7a\xff\xff\xff\xff\x7f" + b"\x00" * 1_000_000,
        b"\x7b" * 1_000_000,
        _inside(1, b"\xff" * 1_000_000),
    ],
)
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidInput):
        parse_message(pb.GetTopicRequest, data)


def test_deep_message_is_refused() -> None:
    data = b""
    for _ in range(1_000):
        data = _inside(15, data)
    with pytest.raises(InvalidInput, match="cannot be read"):
        parse_message(pb.ProducerFrame, data + _inside(99, bytes(200_000)))


def test_large_batch_is_taken() -> None:
    headers = [pb.Header(name="a", value=b"b")]
    messages = [
        pb.NewMessage(id=f"m{number}", due_ms=1, body=bytes(range(256)) * 4, headers=headers)
        for number in range(10_000)
    ]
    frame = pb.ProducerFrame(seq=7, create=pb.CreateBatch(topic_uid=1, messages=messages))
    assert parse_message(pb.ProducerFrame, frame.SerializeToString()) == frame


def test_fields_are_counted_as_protobuf_finds_them(monkeypatch: pytest.MonkeyPatch) -> None:
    # Private: only generated messages are small, and they are to be counted too.
    monkeypatch.setattr(message_bounds, "_SMALL_BYTES", 0)
    choice = random.Random(0)
    for _ in range(300):
        frame = _any_frame(choice)
        data, fields = frame.SerializeToString(), _count(frame)
        monkeypatch.setattr(message_bounds, "MOST_FIELDS", fields)
        assert parse_message(pb.ProducerFrame, data) == frame
        monkeypatch.setattr(message_bounds, "MOST_FIELDS", fields - 1)
        with pytest.raises(InvalidInput):
            parse_message(pb.ProducerFrame, data)


def _any_frame(choice: random.Random) -> pb.ProducerFrame:
    def text() -> str:
        return "é:2\n\x12" * choice.choice((0, 1, 3, 40, 2_000))

    frame = pb.ProducerFrame(seq=choice.choice((1, 300, -1)))
    match choice.choice(("hello", "create", "cancel", "more")):
        case "hello":
            frame.hello.name = text() + "a"
        case "cancel":
            frame.cancel.ids.extend(text() for _ in range(choice.randrange(5)))
        case "more":
            frame.more.extend(_any_frame(choice) for _ in range(choice.randrange(3)))
        case "create":
            for _ in range(choice.randrange(5)):
                headers = [pb.Header(name=text()) for _ in range(choice.randrange(4))]
                one = pb.NewMessage(id=text(), due_ms=1 << choice.randrange(63), headers=headers)
                frame.create.messages.append(one)
    return frame


def _count(message: Any) -> int:
    """The fields that are written of a message."""
    fields = 0
    for field, value in message.ListFields():
        values = value if field.is_repeated else [value]
        fields += len(values)
        if field.message_type is not None:
            fields += sum(map(_count, values))
    return fields
