"""Requests of clients: the rules of Metaswitch Chronos, and a reason for every refusal."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronoline.core.errors import InvalidInput
from chronoline.timers.plan import TimerPlan, checked_uri
from chronoline.timers.requests import read_plan

_CALLBACK = {"http": {"uri": "http://127.0.0.1:9000/pop", "opaque": "hello"}}


def _body(timing: Any = None, **others: Any) -> bytes:
    return json.dumps(
        {"timing": timing or {"interval": 5}, "callback": _CALLBACK, **others}
    ).encode()


def test_the_smallest_request() -> None:
    assert read_plan(_body(), factor=None) == TimerPlan(
        interval_ms=5_000,
        repeat_for_ms=5_000,
        uri="http://127.0.0.1:9000/pop",
        opaque="hello",
        factor=2,
    )


def test_request_with_every_field() -> None:
    plan = read_plan(
        _body(
            {"interval": 10, "repeat-for": 60},
            reliability={"replication-factor": 3},
            statistics={
                "tag-info": [{"type": "CALL", "count": 2}, {"type": "REG"}, {"type": "CALL"}]
            },
        ),
        factor=3,
    )
    assert (plan.interval_ms, plan.repeat_for_ms, plan.pops) == (10_000, 60_000, 6)
    assert plan.factor == 3
    assert plan.tags == (("CALL", 3), ("REG", 1))


@pytest.mark.parametrize(
    ("timing", "interval_ms", "repeat_for_ms", "pops"),
    [
        ({"interval": 0}, 0, 0, 1),
        ({"interval": 0, "repeat-for": 0}, 0, 0, 1),
        ({"interval": 0.29}, 290, 290, 1),
        ({"interval": 0.0001}, 1, 1, 1),
        ({"interval-ms": 1}, 1, 1, 1),
        ({"interval": 5, "repeat-for": 4}, 5_000, 4_000, 0),
        ({"interval": 5, "repeat-for": 10}, 5_000, 10_000, 2),
        ({"interval-ms": 250, "repeat-for": 1}, 250, 1_000, 4),
        ({"interval": 3_000_000_000}, 3_000_000_000_000, 3_000_000_000_000, 1),
    ],
)
def test_times(timing: dict[str, Any], interval_ms: int, repeat_for_ms: int, pops: int) -> None:
    plan = read_plan(_body(timing), factor=None)
    assert (plan.interval_ms, plan.repeat_for_ms, plan.pops) == (interval_ms, repeat_for_ms, pops)


@pytest.mark.parametrize(
    ("timing", "word"),
    [
        ({}, "timing.interval is missing"),
        ({"repeat-for": 5}, "timing.interval is missing"),
        ({"interval": 0, "repeat-for": 5}, "repeat-for must be 0"),
        ({"interval": -1}, "from 0 to"),
        ({"interval": "5"}, "number of seconds"),
        ({"interval": True}, "number of seconds"),
        ({"interval": None}, "number of seconds"),
        ({"interval": [5]}, "number of seconds"),
        ({"interval": 1e300}, "number of seconds"),
        ({"interval": 10**30}, "number of seconds"),
        ({"interval-ms": 0.5}, "whole number"),
        ({"interval": 1, "interval-ms": 1}, "both"),
        ({"interval-ms": 1, "repeat-for": 3_000_000_000}, "times"),
    ],
)
def test_times_that_are_refused(timing: Any, word: str) -> None:
    body = json.dumps({"timing": timing, "callback": _CALLBACK}).encode()
    with pytest.raises(InvalidInput, match=word):
        read_plan(body, factor=None)


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xff\xfe\xfd", "not JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"timing":' + b"9" * 5_000 + b"}", "a number of thousands of digits"),
        (b'{"timing":NaN}', "NaN is not a number of JSON"),
        (b'{"timing": NaN}', "NaN"),
        (b"[]", "the body must be an object"),
        (b"{}", "timing is missing"),
        (b'{"timing": {"interval": 5}}', "callback is missing"),
        (b'{"timing": 5, "callback": {}}', "timing must be an object"),
        (b'{"timing": {"interval": 5}, "callback": {}}', "callback.http is missing"),
        (
            b'{"timing": {"interval": 5}, "callback": {"http": 3}}',
            "callback.http must be an object",
        ),
        (
            b'{"timing": {"interval": 5}, "callback": {"http": {"uri": "http://x/"}}}',
            "opaque is missing",
        ),
        (b'{"timing": {"interval": 5}, "callback": {"http": {"opaque": ""}}}', "uri is missing"),
        (
            b'{"timing": {"interval": 5}, "callback": {"http": {"uri": "http://x/", "opaque": "\\ud800"}}}',
            "surrogate",
        ),
    ],
)
def test_bodies_that_are_refused(body: bytes, word: str) -> None:
    with pytest.raises(InvalidInput, match=word):
        read_plan(body, factor=None)


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "x",
        "ftp://x/",
        "http://",
        "http:///x",
        "http://u:p@x/",
        "http://x:0/",
        "http://x:99999/",
        "http://x/\n",
        "http://x/ y",
        "http://[::1/",
        "http://\u00e4/",
        5,
        None,
        "http://x/" + "y" * 5_000,
    ],
)
def test_uris_that_are_refused(uri: object) -> None:
    body = json.dumps(
        {"timing": {"interval": 5}, "callback": {"http": {"uri": uri, "opaque": ""}}}
    ).encode()
    with pytest.raises(InvalidInput, match=r"callback\.http\.uri"):
        read_plan(body, factor=None)


@pytest.mark.parametrize(
    ("named", "in_url"), [(0, None), (33, None), ("2", None), (True, None), (3, 2), (None, 0)]
)
def test_factors_that_are_refused(named: object, in_url: int | None) -> None:
    with pytest.raises(InvalidInput, match="replication"):
        read_plan(_body(reliability={"replication-factor": named}), factor=in_url)


@pytest.mark.parametrize(
    ("statistics", "word"),
    [
        (None, "statistics must be an object"),
        ([], "statistics must be an object"),
        ({"tag-info": None}, "tag-info must be a list"),
        ({"tag-info": {}}, "tag-info must be a list"),
        ({"tag-info": ["x"]}, r"tag-info\[0\] must be an object"),
        ({"tag-info": [{"type": "t"}, {}]}, r"tag-info\[1\]\.type is missing"),
        ({"tag-info": [{"type": 5}]}, r"type must be text"),
        ({"tag-info": [{"type": ""}]}, "1 to 256 printable"),
        ({"tag-info": [{"type": "t" * 257}]}, "1 to 256 printable"),
        ({"tag-info": [{"type": "a\nb"}]}, "1 to 256 printable"),
        *(
            ({"tag-info": [{"type": "t", "count": count}]}, "count must be a whole number from 1")
            for count in (0, -1, "1", 1.5, True, None, 1 << 32)
        ),
        ({"tag-info": [{"type": "t", "count": (1 << 32) - 1}] * 257}, "the counts of the tag 't'"),
        ({"tag-info": [{"type": f"t{number}"} for number in range(65)]}, "more than 64"),
    ],
)
def test_tags_that_are_refused(statistics: object, word: str) -> None:
    with pytest.raises(InvalidInput, match=word):
        read_plan(_body(statistics=statistics), factor=None)


def test_most_tags_that_a_timer_can_have() -> None:
    listed = [{"type": f"t{number % 64}"} for number in range(128)]
    plan = read_plan(_body(statistics={"tag-info": listed}), factor=None)
    assert plan.tags == tuple((f"t{number}", 2) for number in range(64))
    assert read_plan(_body(statistics={}), factor=None).tags == ()


def test_other_mechanism_beside_http_is_refused() -> None:
    asked = {"timing": {"interval": 5}, "callback": {**_CALLBACK, "mail": {}}}
    with pytest.raises(InvalidInput, match="callback has 'mail' beside http"):
        read_plan(json.dumps(asked).encode(), factor=None)


def test_timers_share_the_address_that_they_call() -> None:
    one, other = (read_plan(_body(), factor=None) for _ in range(2))
    assert one.uri is other.uri


def test_addresses_of_clients_are_forgotten() -> None:
    for number in range(2_000):
        uri = f"http://127.0.0.1/{number}"
        asked = {"timing": {"interval": 5}, "callback": {"http": {"uri": uri, "opaque": ""}}}
        read_plan(json.dumps(asked).encode(), factor=None)
    assert checked_uri.cache_info().currsize <= 1_000


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["timing", "callback", "http", "uri", "opaque", "interval", "reliability", "x"]
            ),
            inner,
        )
    ),
    max_leaves=12,
)


@given(asked=_JSON)
def test_random_requests_are_read_or_refused(asked: object) -> None:
    try:
        plan = read_plan(json.dumps(asked).encode(), factor=None)
    except InvalidInput:
        return
    assert plan.interval_ms >= 0
