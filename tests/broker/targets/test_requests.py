"""The headers of a call: printable ASCII for every message."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronoline.broker.targets.requests import call_id, request_headers
from chronoline.core.message import Header, Lease, LeasedMessage, Message
from chronoline.core.topic import Topic

_TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)


def leased(**given: Any) -> LeasedMessage:
    fields: dict[str, Any] = {
        "id": "u1",
        "ts": 2_000,
        "due": 1_769_860_802_000,
        "bucket": 0,
        "producer_group": "shop",
        "lock_consumer": "target-b",
        "version": 7,
        "attempts": 2,
        "expires": None,
        "key": None,
        "headers": (),
    }
    message = Message(**{**fields, **given})
    lease = Lease(id=message.id, consumer="target-b", version=7, until=2_000)
    return LeasedMessage(lease=lease, message=message, body=b"", redelivered=False)


def test_headers_are_named_as_over_http() -> None:
    headers = request_headers(Topic(uid=1, name="reminders"), leased(key=b"k"))
    assert headers == {
        "Content-Type": "application/octet-stream",
        "Chronoline-Id": "u1",
        "Chronoline-Topic": "reminders",
        "Chronoline-Due": "2026-01-31T12:00:02.000Z",
        "Chronoline-Due-Ms": "1769860802000",
        "Chronoline-Attempts": "2",
        "Chronoline-Version": "7",
        "Chronoline-Producer-Group": "shop",
        "Chronoline-Key": "k",
    }


def test_binary_key_and_headers_are_base64() -> None:
    odd: tuple[Header, ...] = (("a", b"\xff"), ("a", None), ("ü\r\nX: y", "ö".encode()))
    headers = request_headers(Topic(uid=1, name="t"), leased(key=b"\xff\xfe", headers=odd))
    assert headers["Chronoline-Key-Base64"] == "//4="
    assert "Chronoline-Key" not in headers
    shown = json.loads(headers["Chronoline-Headers"])
    assert shown == [["a", {"base64": "/w=="}], ["a", None], ["ü\r\nX: y", "ö"]]


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (b"application/json; charset=utf-8", "application/json; charset=utf-8"),
        (b"text/plain\r\nX: y", "application/octet-stream"),
        (b" text/plain", "application/octet-stream"),
        (b"", "application/octet-stream"),
        (None, "application/octet-stream"),
        (b"x" * 300, "application/octet-stream"),
    ],
)
def test_content_type_of_the_message_is_used_if_valid(value: bytes | None, told: str) -> None:
    message = leased(headers=(("Content-TYPE", value),))
    assert request_headers(Topic(uid=1, name="t"), message)["Content-Type"] == told


@given(id=_TEXT, name=_TEXT, key=st.binary(max_size=20), header=st.tuples(_TEXT, st.binary()))
def test_header_values_are_printable_ascii(id: str, name: str, key: bytes, header: Header) -> None:
    topic = Topic(uid=255, name=name)
    headers = request_headers(topic, leased(id=id, key=key, headers=(header,)))
    for each in (*headers.values(), call_id(topic, id)):
        assert each.isascii()
        assert each.isprintable()
    assert unquote(headers["Chronoline-Id"]) == id
    assert unquote(headers["Chronoline-Topic"]) == name
    assert "." not in call_id(topic, id)
    assert unquote(call_id(topic, id)) == f"ff-{id}"
