"""Records of other nodes and of the journal: what is read is within bounds, and so is what follows."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronoline.core.errors import InvalidInput
from chronoline.timers.membership import Membership
from chronoline.timers.records import Reader, to_record
from chronoline.timers.replica import Replica
from chronoline.timers.timer import MOST_AGE_MS, MOST_MS, MOST_NUMBER, later

_NOW_MS = 1_000_000
_GOOD: dict[str, Any] = {
    "id": 7,
    "version": 5,
    "by": "a/life",
    "age": 10,
    "popped": 0,
    "step": 0,
    "wait": 0,
    "replicas": ["a"],
    "view": "v",
    "kept": 0,
    "plan": {
        "interval": 1_000,
        "repeat_for": 2_000,
        "uri": "http://client/",
        "opaque": "x",
        "factor": 1,
        "tags": [["CALL", 1]],
    },
}


def _record(**others: Any) -> dict[str, Any]:
    plan = {
        **_GOOD["plan"],
        **{key: others.pop(key) for key in list(others) if key in _GOOD["plan"]},
    }
    return {**_GOOD, "plan": plan, **others}


@pytest.mark.parametrize(
    "wrong",
    [
        {"version": 1 << 62},
        {"version": -1},
        {"version": 1.5},
        {"version": True},
        {"popped": 1 << 32},
        {"step": 1 << 62},
        {"wait": 1 << 62},
        {"age": -(1 << 62)},
        {"kept": 1 << 62},
        {"id": 1 << 64},
        {"by": "x" * 2_000},
        {"by": 5},
        {"replicas": "a"},
        {"replicas": ["a"] * 2_000},
        {"view": None},
        {"interval": 1 << 62},
        {"interval": 1, "repeat_for": 1 << 41},
        {"factor": 0},
        {"factor": 1_000},
        {"tags": [["CALL", 1 << 62]]},
        {"tags": [["\ud800", 1]]},
        {"opaque": "\ud800"},
        {"opaque": "x" * (1024 * 1024 + 1)},
        {"opaque": 5},
        {"interval": 0},
        {"uri": "http://[::1"},
        {"uri": "file:///etc/passwd"},
        {"uri": "http://user:password@x/"},
        {"uri": "http://x/\r\nX: y"},
        {"uri": "http://x/" + "y" * 5_000},
        {"uri": 5},
        {"tags": [["CALL", 0]]},
        {"tags": [["CALL", 1], ["CALL", 2]]},
        {"tags": [["a\nb", 1]]},
        {"tags": [["x" * 257, 1]]},
        {"tags": [[f"t{number}", 1] for number in range(65)]},
        {"replicas": ["a\nb"]},
        {"by": "a\x1b[2J"},
        {"view": "\ud800"},
        {"plan": "x"},
    ],
)
def test_record_out_of_bounds_is_refused(wrong: dict[str, Any]) -> None:
    record = json.loads(json.dumps(_record(**wrong)))
    with pytest.raises(InvalidInput, match="not a timer's record"):
        Reader().timer(record, _NOW_MS)


_HIGHEST = {
    "version": st.sampled_from([0, 5, MOST_NUMBER]),
    "age": st.sampled_from([-MOST_AGE_MS, 0, MOST_AGE_MS]),
    "popped": st.sampled_from([0, 1 << 31]),
    "step": st.sampled_from([0, 1, 1 << 31 | 1]),
    "wait": st.sampled_from([0, MOST_MS]),
    "renewed": st.sampled_from([0, 1 << 31 | 1]),
    "kept": st.sampled_from([-MOST_MS, 0, MOST_MS]),
    "interval": st.sampled_from([1, 1_000, 3 * 10**12]),
}


@given(mine=st.fixed_dictionaries(_HIGHEST), theirs=st.fixed_dictionaries(_HIGHEST))
def test_later_of_two_records_can_be_read_again(mine: Any, theirs: Any) -> None:
    reader = Reader()
    one, other = (reader.timer(_record(**each), _NOW_MS) for each in (mine, theirs))
    held = later(one, other, "v")
    assert reader.timer(to_record(held, _NOW_MS), _NOW_MS) == held


def test_record_that_a_node_renews_can_be_read_again() -> None:
    reader = Reader()
    held = reader.timer(_record(renewed=1 << 31 | 1), _NOW_MS)
    renewed = held.renew(step=held.step | 1, wait_ms=5)
    assert reader.timer(to_record(renewed, _NOW_MS), _NOW_MS) == renewed


def test_change_that_follows_a_journal_of_small_versions_wins() -> None:
    replica = Replica("a", Membership(("a",)), life="1")
    old = Reader().timer(_record(version=1_000_000), _NOW_MS)
    replica.put_back(old, _NOW_MS)
    change = replica.change(7, None, factor=1, at=(), now_ms=_NOW_MS, wall_ms=1_800_000_000_000)
    assert change.timer.version > old.version
    assert replica.receive(change.timer, _NOW_MS).plan is None


def test_following_record_is_accepted_after_clock_rollback() -> None:
    replica = Replica("a", Membership(("a",)), life="1")
    held = Reader().timer(_record(version=1 << 52), _NOW_MS)
    replica.put_back(held, _NOW_MS)
    following = replace(held, version=held.version._replace(number=held.version.number + 1))
    wall_ms = 1_800_000_000_000
    assert replica.problem(following, wall_ms) is None
    assert replica.problem(replace(following, id=8), wall_ms) is not None


def test_trace_of_a_client_is_kept_and_optional() -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    without = Reader().timer(_record(), _NOW_MS)
    assert "traceparent" not in to_record(without, _NOW_MS)["plan"]
    traced = {**_GOOD, "plan": {**_GOOD["plan"], "traceparent": trace}}
    assert to_record(Reader().timer(traced, _NOW_MS), _NOW_MS)["plan"]["traceparent"] == trace
    traced["plan"]["traceparent"] = f"{trace}\r\nX: y"
    plan = Reader().timer(traced, _NOW_MS).plan
    assert plan is not None
    assert plan.traceparent is None
    traced["plan"]["traceparent"] = 7
    with pytest.raises(InvalidInput):
        Reader().timer(traced, _NOW_MS)
