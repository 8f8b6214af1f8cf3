"""Bounds on input: the last value that is allowed, and the first that is not."""

from dataclasses import replace
from typing import Any

import pytest

from chronoline.core.limits import (
    MAX_HEADER_BYTES,
    MAX_HEADERS,
    MAX_KEY_BYTES,
    MAX_TIME_MS,
    id_problem,
    message_problem,
    name_problem,
    reason_problem,
    time_problem,
)
from chronoline.core.message import NewMessage

LARGEST_BODY_BYTES = 100
GOOD = NewMessage(id="a", due=1_000)


@pytest.mark.parametrize("name", ["a", " ", "x" * 512, "📅" * 128, "a/b\n"])
def test_names_that_are_kept_as_given(name: str) -> None:
    assert id_problem(name) is None
    assert (name_problem("group", name) is None) == (len(name.encode()) <= 255)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "id is empty"),
        ("x" * 513, "id has 513 bytes; at most 512 are allowed"),
        ("é" * 257, "id has 514 bytes; at most 512 are allowed"),
        ("\ud800", "id is not valid UTF-8"),
        ("a\0b", "id contains a NUL character"),
        (None, "id must be text, not NoneType"),
        (b"a", "id must be text, not bytes"),
        (7, "id must be text, not int"),
    ],
)
def test_names_that_are_refused(name: object, problem: str) -> None:
    assert id_problem(name) == problem


@pytest.mark.parametrize("reason", ["", "a", "x" * 1_000, "📅" * 1_000, "a\nb"])
def test_reasons_that_are_kept_as_given(reason: str) -> None:
    assert reason_problem(reason) is None


@pytest.mark.parametrize(
    ("reason", "problem"),
    [
        ("x" * 1_001, "reason has 1001 characters; at most 1000 are allowed"),
        ("\ud800", "reason is not valid UTF-8"),
        ("a\0b", "reason contains a NUL character"),
        (None, "reason must be text, not NoneType"),
        (b"a", "reason must be text, not bytes"),
    ],
)
def test_reasons_that_are_refused(reason: object, problem: str) -> None:
    assert reason_problem(reason) == problem


@pytest.mark.parametrize("time_ms", [0, 1, MAX_TIME_MS])
def test_times_that_are_allowed(time_ms: int) -> None:
    assert time_problem("due", time_ms) is None


@pytest.mark.parametrize("time_ms", [-1, MAX_TIME_MS + 1, 1.0, "1", None, True])
def test_times_that_are_refused(time_ms: object) -> None:
    assert (time_problem("due", time_ms) or "").startswith("due ")


def test_the_last_millisecond_of_the_year_9999() -> None:
    seconds_since_1970 = 253_402_300_800
    assert seconds_since_1970 * 1_000 - 1 == MAX_TIME_MS


@pytest.mark.parametrize(
    "fields",
    [
        {"body": None},
        {"body": b"x" * LARGEST_BODY_BYTES},
        {"key": b""},
        {"key": b"x" * MAX_KEY_BYTES},
        {"headers": (("", None), ("", b""), ("a", b"1"), ("a", b"1"))},
        {"headers": [("a", b"1")]},
        {"headers": (("a", b""),) * MAX_HEADERS},
        {"headers": (("a", b"x" * (MAX_HEADER_BYTES - 1)),)},
        {"expires": 1_001},
        {"due": MAX_TIME_MS},
    ],
)
def test_messages_that_are_allowed(fields: dict[str, Any]) -> None:
    assert message_problem(replace(GOOD, **fields), LARGEST_BODY_BYTES) is None


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"id": ""}, "id is empty"),
        ({"id": "."}, "id cannot be '.'"),
        ({"id": ".."}, "id cannot be '..'"),
        ({"due": -1}, "due -1 is not between"),
        ({"due": MAX_TIME_MS + 1}, "is not between 1970 and the year 9999"),
        ({"producer_group": ""}, "producer group is empty"),
        ({"body": b"x" * (LARGEST_BODY_BYTES + 1)}, "body has 101 bytes; at most 100"),
        ({"body": "text"}, "body must be bytes, not str"),
        ({"key": "text"}, "key must be bytes, not str"),
        ({"key": b"x" * (MAX_KEY_BYTES + 1)}, "key has 65537 bytes"),
        ({"headers": None}, "headers must be a sequence"),
        ({"headers": "ab"}, "headers must be a sequence"),
        ({"headers": {"a": b"1"}}, "headers must be a sequence"),
        ({"headers": ("ab",)}, r"headers must be \(name, value\) pairs"),
        ({"headers": (("a", b"1", b"2"),)}, r"headers must be \(name, value\) pairs"),
        ({"headers": (("a", "text"),)}, "header 'a' must be bytes, not str"),
        ({"headers": ((b"a", b"1"),)}, "header name must be text, not bytes"),
        ({"headers": (("a\0", b"1"),)}, "header name contains a NUL"),
        ({"headers": (("a", b""),) * 1_000}, "there are 1000 headers; at most 256"),
        ({"headers": (("a", b"x" * MAX_HEADER_BYTES),)}, "the headers have 65537 bytes"),
        ({"expires": 1_000}, "expires is not after due"),
        ({"expires": MAX_TIME_MS + 1}, "expires .* is not between"),
    ],
)
def test_messages_that_are_refused(fields: dict[str, Any], problem: str) -> None:
    found = message_problem(replace(GOOD, **fields), LARGEST_BODY_BYTES)
    assert found is not None
    with pytest.raises(ValueError, match=problem):
        raise ValueError(found)
