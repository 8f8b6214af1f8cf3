"""Bytes go through JSON as text where they can, and come back byte for byte."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronoline.core.errors import InvalidInput
from chronoline.runtime.json_bytes import json_bytes, json_fields, json_headers, parse_json_bytes


@pytest.mark.parametrize(
    ("data", "written"),
    [(None, None), (b"", ""), ("é".encode(), "é"), (b"\xff\x00", {"base64": "/wA="})],
)
def test_bytes_are_text_where_they_are_utf8(data: bytes | None, written: object) -> None:
    assert json_bytes(data) == written


@given(st.none() | st.binary())
def test_bytes_come_back_as_they_were(data: bytes | None) -> None:
    assert parse_json_bytes(json.loads(json.dumps(json_bytes(data))), "x") == data


def test_headers_keep_order_and_repetition() -> None:
    headers = (("a", b"1"), ("b", None), ("a", b"\xff"))
    assert json_headers(headers) == [("a", "1"), ("b", None), ("a", {"base64": "/w=="})]


def test_fields_say_by_their_names_what_is_base64() -> None:
    assert json_fields(key=None, body=b"x", other=b"\xff") == {"body": "x", "other_base64": "/w=="}


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        (1, "key must be text, null, or"),
        ({"base64": "AA==", "more": 1}, "key must be text, null, or"),
        ({"base64": 1}, "key must be text, null, or"),
        ({"base64": "A"}, "key is not base64"),
        ({"base64": "é"}, "key is not base64"),
        ("\ud800", "key is not valid UTF-8"),
    ],
)
def test_other_values_are_refused(found: Any, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        parse_json_bytes(found, "key")
