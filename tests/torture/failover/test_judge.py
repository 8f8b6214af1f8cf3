"""The judge finds each planted violation of a failover by its rule, and none in rightful histories."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.torture.brokers.judge import SERVED_AGAIN, STALE_SUCCESS, VERSION_TWICE
from tests.torture.failover.judge import (
    ACK_UNDONE,
    BESIDE_LIVE,
    CREATE_UNDONE,
    GIVEN_AGAIN,
    STALE_AFTER,
    UNDONE_IN_PART,
    WENT_BACK,
    judge,
)
from tests.torture.history import CALL, DELIVERY, DONE, OUTCOME, Event

TOPIC = "failover-main"
BEHIND_MS, LOST_MS, PROMOTED_MS, END_MS = 10_000, 12_000, 14_000, 60_000
FIRST = 1_001
"""The version of a message that was just created: a moment of its create."""


def event(kind: str, at_ms: float, process: str = "director", **fields: Any) -> Event:
    return Event(kind, process, at_ms, int(at_ms * 1e6), fields)


def _message(id: str) -> dict[str, Any]:
    return {"topic": TOPIC, "id": id, "group": "g", "content": "c"}


def called(at_ms: float, process: str, op: str, *, version: int, **asked: Any) -> list[Event]:
    """A call that is done after two milliseconds."""
    name = f"{process}:{op}:{at_ms}:{asked.get('id', asked.get('delivery'))}"
    told = {"version": version} | {each: asked[each] for each in ("until", "uid") if each in asked}
    return [
        event(CALL, at_ms, process, call=name, op=op, **asked),
        event(OUTCOME, at_ms + 2, process, call=name, outcome=DONE, reason="", **told),
    ]


def created(at_ms: float, id: str = "m", version: int = FIRST) -> list[Event]:
    return called(at_ms, "producer.1", "create", version=version, due=900, **_message(id))


def delivered(
    at_ms: float, holder: str, version: int, *, id: str = "m", lease_ms: int = 1_000
) -> list[Event]:
    lease = {"delivery": f"{holder}/{version}/{at_ms}", "version": version}
    more = {"until": int(at_ms + lease_ms), "due": 900, "attempts": 0, "door": "store"}
    return [event(DELIVERY, at_ms, f"{holder}.1", consumer=holder, **lease, **more, **_message(id))]


def acked(at_ms: float, delivery: Sequence[Event]) -> list[Event]:
    (given,) = delivery
    lease = {each: given[each] for each in ("delivery", "version", "until")}
    return called(at_ms, given.process, "ack", **lease)


def extended(at_ms: float, delivery: Sequence[Event], version: int) -> list[Event]:
    (given,) = delivery
    until = int(at_ms + 1_000)
    return called(
        at_ms,
        given.process,
        "extend",
        version=version,
        delivery=given["delivery"],
        until=until,
        delay_s=1.0,
    )


def row(state: str, version: int, id: str = "m", ts_ms: int = END_MS) -> list[Event]:
    return [event("row", END_MS, state=state, ts=ts_ms, due=900, version=version, **_message(id))]


def history(*parts: Sequence[Event], lags: bool = True) -> list[Event]:
    """Two consumers, and a failover to a standby, which lacks two seconds if it `lags`."""
    states = {"behind": BEHIND_MS} if lags else {}
    states |= {"lost": LOST_MS, "promoted": PROMOTED_MS}
    events = [
        event("life", 0, who="ada.1", state="running", consumers=["ada"]),
        event("life", 0, who="bob.1", state="running", consumers=["bob"]),
        *called(1, "director", "create_topic", version=0, topic=TOPIC, uid=1),
        *(event("standby", at_ms, state=state) for state, at_ms in states.items()),
        event("drained", END_MS - 1_000, stage="failover", left=0),
        *(each for part in parts for each in part),
    ]
    return sorted(events, key=lambda each: each.mono_ns)


def rules(events: Sequence[Event]) -> set[str]:
    return {violation.rule for violation in judge(events)}


# Before the standby is behind, while it is, and after the failover.
KEPT_MS, MISSED_MS, AFTER_MS = BEHIND_MS - 1_000, BEHIND_MS + 500, PROMOTED_MS + 500


@pytest.mark.parametrize("lags", [True, False])
def test_message_that_is_leased_again_under_a_greater_version_is_no_violation(lags: bool) -> None:
    before = delivered(KEPT_MS, "ada", FIRST + 1)
    after = delivered(AFTER_MS, "bob", FIRST + 2)
    end = acked(AFTER_MS + 10, after)
    done = row("gone", FIRST + 3)
    assert rules(history(created(1_000), before, after, end, done, lags=lags)) == set()


def test_answers_that_the_standby_lacks_may_be_undone_together() -> None:
    before = delivered(MISSED_MS, "ada", FIRST + 1)
    after = delivered(AFTER_MS, "bob", FIRST + 50)
    assert (
        rules(
            history(
                created(1_000),
                before,
                acked(MISSED_MS + 10, before),
                created(MISSED_MS + 20, "gone"),
                after,
                acked(AFTER_MS + 10, after),
                row("gone", FIRST + 51),
            )
        )
        == set()
    )


@pytest.mark.parametrize("lags", [True, False])
def test_version_that_is_given_out_again_is_found(lags: bool) -> None:
    before = delivered(MISSED_MS, "ada", FIRST + 1)
    after = delivered(AFTER_MS, "bob", FIRST + 1)
    end = [acked(AFTER_MS + 10, after), row("gone", FIRST + 2)]
    found = rules(history(created(1_000), before, after, *end, lags=lags))
    assert found >= {GIVEN_AGAIN, VERSION_TWICE}


def test_version_that_shrinks_is_found() -> None:
    before = delivered(MISSED_MS, "ada", FIRST + 5)
    after = delivered(AFTER_MS, "bob", FIRST + 2)
    end = [acked(AFTER_MS + 10, after), row("gone", FIRST + 3)]
    assert rules(history(created(1_000), before, after, *end)) == {WENT_BACK, STALE_SUCCESS}


def test_version_of_a_message_that_is_created_again_may_not_shrink_either() -> None:
    parts = [
        created(MISSED_MS, version=FIRST),
        delivered(MISSED_MS + 10, "ada", FIRST + 1),
        created(AFTER_MS, version=FIRST - 10),
        row("live", FIRST - 10),
    ]
    assert WENT_BACK in rules(history(*parts))


def test_version_of_an_extension_counts() -> None:
    before = delivered(MISSED_MS, "ada", FIRST + 1)
    longer = extended(MISSED_MS + 10, before, FIRST + 2)
    after = delivered(AFTER_MS, "bob", FIRST + 2)
    end = [acked(AFTER_MS + 10, after), row("gone", FIRST + 3)]
    assert GIVEN_AGAIN in rules(history(created(1_000), before, longer, after, *end))


@pytest.mark.parametrize("version", [FIRST + 1, FIRST + 9])
def test_lease_beside_a_live_one_is_found(version: int) -> None:
    before = delivered(MISSED_MS, "ada", FIRST + 2, lease_ms=30_000)
    after = delivered(AFTER_MS, "bob", version)
    end = [acked(AFTER_MS + 10, after), row("gone", version + 1)]
    found = rules(history(created(1_000), before, after, *end))
    assert BESIDE_LIVE in found
    own = delivered(AFTER_MS, "ada", FIRST + 9)
    end = [acked(AFTER_MS + 10, own), row("gone", FIRST + 10)]
    assert BESIDE_LIVE not in rules(history(created(1_000), before, own, *end))


def test_lease_that_its_holder_gave_up_is_not_live() -> None:
    before = delivered(MISSED_MS, "ada", FIRST + 1, lease_ms=30_000)
    after = delivered(AFTER_MS, "bob", FIRST + 9)
    end = [acked(AFTER_MS + 10, after), row("gone", FIRST + 10)]
    ack = acked(MISSED_MS + 10, before)
    assert rules(history(created(1_000), before, ack, after, *end)) == set()


@pytest.mark.parametrize("version", [FIRST + 2, FIRST + 1])
def test_stale_holder_that_is_served_is_found(version: int) -> None:
    """Also under the version that the new holder has, which fences nobody."""
    before = delivered(MISSED_MS, "ada", FIRST + 1)
    after = delivered(AFTER_MS, "bob", version)
    late = acked(AFTER_MS + 10, before)
    found = rules(history(created(1_000), before, after, late, row("gone", version + 1)))
    assert STALE_AFTER in found
    assert (STALE_SUCCESS in found) == (version > FIRST + 1)


@pytest.mark.parametrize("lags", [True, False])
def test_ack_that_the_standby_had_and_that_is_undone_is_found(lags: bool) -> None:
    before = delivered(KEPT_MS - 100, "ada", FIRST + 1)
    end = acked(KEPT_MS, before)
    after = delivered(AFTER_MS, "bob", FIRST + 9)
    again = [acked(AFTER_MS + 10, after), row("gone", FIRST + 10)]
    found = rules(history(created(1_000), before, end, after, *again, lags=lags))
    assert ACK_UNDONE in found
    assert (SERVED_AGAIN in found) == (not lags)
    # Nobody was handed it, and the store has it.
    left = rules(history(created(1_000), before, end, row("live", FIRST), lags=lags))
    assert ACK_UNDONE in left


def test_any_answer_counts_if_the_standby_lacks_nothing() -> None:
    before = delivered(MISSED_MS, "ada", FIRST + 1)
    parts = [created(1_000), before, acked(MISSED_MS + 10, before), row("live", FIRST)]
    assert ACK_UNDONE in rules(history(*parts, lags=False))
    assert ACK_UNDONE not in rules(history(*parts))


def test_created_message_that_the_standby_had_and_that_is_gone_is_found() -> None:
    assert rules(history(created(KEPT_MS))) == {CREATE_UNDONE}
    assert rules(history(created(MISSED_MS))) == set()


@pytest.mark.parametrize("first", ["create", "ack"])
def test_answers_that_are_undone_in_part_are_found(first: str) -> None:
    """A later one is there, and an earlier one is gone."""
    before = delivered(MISSED_MS, "ada", FIRST + 1)
    after = delivered(AFTER_MS, "bob", FIRST + 9)
    again = [acked(AFTER_MS + 10, after), row("gone", FIRST + 10)]
    gone = {
        "create": [created(MISSED_MS)],
        "ack": [created(1_000), before, acked(MISSED_MS + 10, before), after, *again],
    }[first]
    later = [created(MISSED_MS + 100, "later"), row("live", FIRST, "later")]
    assert rules(history(*gone, *later)) == {UNDONE_IN_PART}
    earlier = [created(MISSED_MS - 100, "later"), row("live", FIRST, "later")]
    assert rules(history(*gone, *earlier)) == set()


def test_answers_that_an_earlier_failover_undid_are_not_those_of_the_next() -> None:
    before = delivered(MISSED_MS, "ada", FIRST + 1)
    after = delivered(AFTER_MS, "bob", FIRST + 9)
    end = acked(AFTER_MS + 10, after)
    second = [
        event("standby", 20_000, state="lost"),
        event("standby", 22_000, state="promoted"),
    ]
    parts = [created(1_000), before, acked(MISSED_MS + 10, before), after, end, second]
    assert rules(history(*parts, row("gone", FIRST + 10))) == set()
    assert rules(history(*parts, row("live", FIRST + 9))) == {ACK_UNDONE}
