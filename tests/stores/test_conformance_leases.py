"""The operations on a lease: extend, release, retry, bury, unreserve, ack, resume."""

from collections.abc import Callable

import pytest

from chronoline.core.message import Lease
from tests.stores.line import LEASE_MS, NOW, Line, MakeLine, ids, leases_of, words

DEDUPE = 5_000
GIVE_BACK: dict[str, Callable[[Line, Lease, int], str]] = {
    "extend": Line.extend,
    "release": Line.release,
    "retry": Line.retry,
}
ALL: dict[str, Callable[[Line, Lease], str]] = {
    "extend": lambda line, lease: line.extend(lease, line.now + LEASE_MS),
    "release": lambda line, lease: line.release(lease, line.now + LEASE_MS),
    "retry": lambda line, lease: line.retry(lease, line.now + LEASE_MS),
    "bury": lambda line, lease: line.bury(lease),
    "unreserve": lambda line, lease: line.unreserve(lease)[0],
    "ack": lambda line, lease: line.ack(lease)[0],
}


# Checks of every operation


@pytest.mark.parametrize("operation", ALL)
def test_lease_is_valid_before_its_end_only(make_line: MakeLine, operation: str) -> None:
    answers = {}
    for offset in (-1, 0, 1):
        line = make_line()
        line.put("a")
        lease = line.take()
        before = line["a"]
        line.now = lease.until + offset
        answers[offset] = ALL[operation](line, lease)
        if offset >= 0:
            assert line["a"] == before
    assert answers == {-1: "done", 0: "lapsed", 1: "lapsed"}


@pytest.mark.parametrize("operation", ALL)
def test_only_the_holder_changes_a_lease(line: Line, operation: str) -> None:
    line.put("a")
    lease = line.take("c")
    before = line["a"]
    thief = Lease(id="a", consumer="d", version=lease.version, until=lease.until)
    assert ALL[operation](line, thief) == "not_holder"
    assert line["a"] == before


@pytest.mark.parametrize("operation", ALL)
@pytest.mark.parametrize("off", [-1, 1])
def test_only_the_current_version_changes_a_lease(line: Line, operation: str, off: int) -> None:
    line.put("a")
    lease = line.take("c")
    before = line["a"]
    stale = Lease(id="a", consumer="c", version=lease.version + off, until=lease.until)
    assert ALL[operation](line, stale) == "stale"
    assert line["a"] == before


@pytest.mark.parametrize("operation", ALL)
def test_claimed_end_of_a_lease_is_ignored(line: Line, operation: str) -> None:
    line.put("a")
    lease = line.take("c", lease_ms=100)
    forged = Lease(id="a", consumer="c", version=lease.version, until=NOW + 10**9)
    line.now = lease.until
    assert ALL[operation](line, forged) == "lapsed"


@pytest.mark.parametrize("operation", GIVE_BACK)
@pytest.mark.parametrize(("ahead_ms", "answer"), [(9, "too_soon"), (10, "done"), (11, "done")])
def test_the_new_time_is_at_least_10_ms_ahead(
    line: Line, operation: str, ahead_ms: int, answer: str
) -> None:
    line.put("a")
    lease = line.take()
    before = line["a"]
    assert GIVE_BACK[operation](line, lease, NOW + ahead_ms) == answer
    assert (line["a"] == before) == (answer == "too_soon")


@pytest.mark.parametrize("operation", ALL)
def test_a_batch_is_answered_in_its_order(line: Line, operation: str) -> None:
    line.put("a", "b", "c")
    held = {each.id: each for each in leases_of(line.reserve())}
    unknown = Lease(id="x", consumer="c", version=1, until=NOW)
    batch = [held["c"], unknown, held["a"], held["b"]]
    method = getattr(line.store, operation)
    beside = {"bury": "no use", **dict.fromkeys(GIVE_BACK, NOW + 500)}.get(operation)
    items = batch if beside is None else [(each, beside) for each in batch]
    outcomes = method(line.uid, items, now_ms=NOW)
    assert [(each.id, each.refusal) for each in outcomes] == [
        ("c", None),
        ("x", "not_found"),
        ("a", None),
        ("b", None),
    ]
    assert {each.version for each in outcomes if each.done} == {NOW + 2}


@pytest.mark.parametrize("operation", GIVE_BACK)
def test_the_same_lease_twice_in_a_batch(line: Line, operation: str) -> None:
    line.put("a")
    lease = line.take()
    batch = [(lease, NOW + 50), (lease, NOW + 60)]
    outcomes = getattr(line.store, operation)(line.uid, batch, now_ms=NOW)
    assert words(outcomes) == ["done", "stale" if operation == "extend" else "not_holder"]
    assert line["a"].ts == NOW + 50


# Extend


def test_extend_moves_the_end_alone(line: Line) -> None:
    line.put("a", due=NOW - 5)
    lease = line.take()
    (outcome,) = line.store.extend(line.uid, [(lease, NOW + 9_000)], now_ms=NOW)
    message = line["a"]
    assert (message.ts, message.due) == (NOW + 9_000, NOW - 5)
    assert message.lock_consumer == "c"
    assert message.version == outcome.version == lease.version + 1
    assert message.attempts == 0


def test_version_of_the_outcome_names_the_lease(line: Line) -> None:
    line.put("a")
    lease = line.take()
    (outcome,) = line.store.extend(line.uid, [(lease, NOW + 9_000)], now_ms=NOW)
    assert line.ack(lease) == ["stale"]
    renewed = Lease(id="a", consumer="c", version=outcome.version, until=NOW + 9_000)
    assert line.ack(renewed) == ["done"]


def test_extend_may_shorten_a_lease(line: Line) -> None:
    line.put("a")
    lease = line.take(lease_ms=9_000)
    assert line.extend(lease, NOW + 10) == "done"
    line.now = NOW + 10
    assert line.reserved("d") == ["a"]


# Release, retry, unreserve


def test_release_gives_back_into_the_future(line: Line) -> None:
    line.put("a", due=NOW - 5)
    lease = line.take()
    assert line.release(lease, NOW + 400) == "done"
    message = line["a"]
    assert (message.ts, message.due) == (NOW + 400, NOW + 400)
    assert message.lock_consumer is None
    assert message.version == lease.version + 1
    assert message.attempts == 0
    line.now = NOW + 399
    assert line.reserved("d") == []
    line.now = NOW + 400
    (leased,) = line.reserve("d").leased
    assert not leased.redelivered
    assert leased.message.attempts == 0


def test_retry_gives_back_and_counts_an_attempt(line: Line) -> None:
    line.put("a", due=NOW - 5)
    lease = line.take()
    assert line.retry(lease, NOW + 400) == "done"
    message = line["a"]
    assert (message.ts, message.due) == (NOW + 400, NOW + 400)
    assert message.lock_consumer is None
    assert message.version == lease.version + 1
    assert message.attempts == 1


@pytest.mark.parametrize("due", [NOW - 5, NOW + 50])
def test_unreserve_gives_back_as_it_was(line: Line, due: int) -> None:
    before = line.put("a", due=due)
    lease = line.take(ahead_ms=100)
    assert line.unreserve(lease) == ["done"]
    message = line["a"]
    assert (message.ts, message.due) == (due, due)
    assert message.lock_consumer is None
    assert message.attempts == 0
    assert message.version == before.version + 2
    assert line.stale_answers(lease) == {"not_holder"}
    assert line.reserved("d", ahead_ms=100) == ["a"]


def test_unreserve_keeps_the_attempts_that_were_counted(line: Line) -> None:
    line.put("a")
    line.now = line.take().until
    assert line.unreserve(line.take("d")) == ["done"]
    assert line["a"].attempts == 1
    assert line["a"].ts == NOW


# Ack


def test_an_acked_message_is_gone(line: Line) -> None:
    line.put("a", "b")
    held = {each.id: each for each in leases_of(line.reserve())}
    assert line.ack(held["a"]) == ["done"]
    assert "a" not in line
    assert "b" in line
    line.now = held["a"].until
    assert line.reserved("d") == ["b"]


def test_a_repeated_ack_is_done_and_changes_nothing(make_line: MakeLine) -> None:
    line = make_line(dedupe_ms=DEDUPE)
    line.put("a")
    lease = line.take()
    first, second = line.store.ack(line.uid, [lease, lease], now_ms=NOW)
    assert first == second
    assert first.version == lease.version + 1
    line.now = NOW + DEDUPE - 1
    assert line.ack(lease) == ["done"]
    line.now = NOW + DEDUPE
    assert line.ack(lease) == ["not_found"]


def test_only_the_same_lease_can_repeat_an_ack(make_line: MakeLine) -> None:
    line = make_line(dedupe_ms=DEDUPE)
    line.put("a")
    lapsed = line.take("c")
    line.now = lapsed.until
    lease = line.take("d")
    line.ack(lease)
    assert line.ack(lapsed) == ["deleted"]
    forged = Lease(id="a", consumer="c", version=lease.version, until=lease.until)
    older = Lease(id="a", consumer="d", version=lease.version - 1, until=lease.until)
    assert line.ack(forged, older) == ["deleted", "deleted"]


@pytest.mark.parametrize("operation", sorted(set(ALL) - {"ack"}))
def test_nothing_else_can_be_done_after_an_ack(line: Line, operation: str) -> None:
    line.put("a")
    lease = line.take()
    line.ack(lease)
    assert ALL[operation](line, lease) == "deleted"
    assert "a" not in line


# Resume


def test_resume_returns_live_leases_under_new_versions(line: Line) -> None:
    line.put("a", body=b"x")
    lease = line.take("c")
    line.now = NOW + 10
    (leased,) = line.resume("c").leased
    assert leased.body == b"x"
    assert leased.lease == Lease(id="a", consumer="c", version=lease.version + 1, until=lease.until)
    assert leased.message == line["a"]
    assert (leased.message.due, leased.message.attempts) == (NOW, 0)


@pytest.mark.parametrize("operation", ALL)
def test_resume_fences_the_twin(line: Line, operation: str) -> None:
    line.put("a")
    frozen = line.take("c")
    (leased,) = line.resume("c").leased
    assert ALL[operation](line, frozen) == "stale"
    assert line["a"] == leased.message
    assert ALL[operation](line, leased.lease) == "done"


def test_resume_gives_only_the_own_live_leases(line: Line) -> None:
    line.put("lapsed")
    line.now = line.take("c", lease_ms=100).until
    line.put("other")
    line.lease(("other", line["other"].version), consumer="d")
    line.put("waiting", due=line.now + 500)
    assert line.resume("c").leased == ()
    line.put("live")
    line.lease(("live", line["live"].version), consumer="c")
    before = line["lapsed"], line["other"]
    assert ids(line.resume("c").leased) == ["live"]
    assert (line["lapsed"], line["other"]) == before


@pytest.mark.parametrize(("limit", "more"), [(2, True), (3, True), (4, False)])
def test_resume_up_to_a_limit(line: Line, limit: int, more: bool) -> None:
    line.put("a", "b", "c")
    line.reserve("c")
    grant = line.resume("c", limit=limit)
    assert len(grant.leased) == min(limit, 3)
    assert grant.more == more


def test_resume_is_in_order_of_due(line: Line) -> None:
    for message_id, due in (("b", NOW - 2), ("c", NOW - 1), ("a", NOW - 3)):
        line.put(message_id, due=due)
    line.reserve("c")
    assert ids(line.resume("c").leased) == ["a", "b", "c"]
