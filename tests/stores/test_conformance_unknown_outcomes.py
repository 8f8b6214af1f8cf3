"""A change that is repeated after a lost answer, whether the first attempt was done or not."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from chronoline.core.message import After, Lease
from chronoline.core.outcome import Grant, Outcome
from chronoline.core.session import Session
from tests.stores.line import LEASE_MS, OWNERS, Line, MakeLine

LATER_MS = 500
Change = Callable[[Line, Lease, bool], list[Outcome]]
ON_LEASES: dict[str, Change] = {
    "extend": lambda line, lease, again: line.store.extend(
        line.uid, [(lease, After(LEASE_MS))], again=again, now_ms=line.now
    ),
    "release": lambda line, lease, again: line.store.release(
        line.uid, [(lease, After(LATER_MS))], again=again, now_ms=line.now
    ),
    "retry": lambda line, lease, again: line.store.retry(
        line.uid, [(lease, After(LATER_MS))], again=again, now_ms=line.now
    ),
    "bury": lambda line, lease, again: line.store.bury(
        line.uid, [(lease, "no use")], again=again, now_ms=line.now
    ),
    "unreserve": lambda line, lease, again: line.store.unreserve(
        line.uid, [lease], again=again, now_ms=line.now
    ),
    "ack": lambda line, lease, again: line.store.ack(
        line.uid, [lease], again=again, now_ms=line.now
    ),
}
BY_OWNERS: dict[str, Change] = {
    "reschedule": lambda line, _, again: line.store.reschedule(
        line.uid,
        [("a", line.now + LATER_MS)],
        producer_group=OWNERS,
        again=again,
        now_ms=line.now,
    ),
    "cancel": lambda line, _, again: line.store.cancel(
        line.uid, ["a"], producer_group=OWNERS, again=again, now_ms=line.now
    ),
}
NOBODY = Lease(id="a", consumer="-", version=0, until=0)


def word(outcome: Outcome) -> str:
    return "unknown" if outcome.unknown else outcome.refusal or "done"


def ask(line: Line, operation: str, lease: Lease = NOBODY, *, again: bool = True) -> Outcome:
    (outcome,) = (ON_LEASES | BY_OWNERS)[operation](line, lease, again)
    return outcome


def reserve(line: Line, session: Session, consumer: str = "c") -> Lease:
    (leased,) = line.store.reserve(
        line.uid,
        line.topic.all_buckets,
        consumer=consumer,
        limit=10,
        lease_ms=LEASE_MS,
        session=session.new_grant(),
        now_ms=line.now,
    ).leased
    return leased.lease


def resume(line: Line, session: Session) -> Grant:
    return line.store.resume(line.uid, "c", limit=10, session=session.new_grant(), now_ms=line.now)


@pytest.fixture
def session() -> Session:
    return Session("one", "here")


# Consumers


@pytest.mark.parametrize("operation", ON_LEASES)
@pytest.mark.parametrize("was_done", [True, False])
def test_a_change_of_a_lease_is_done_once(
    line: Line, session: Session, operation: str, was_done: bool
) -> None:
    line.put("a")
    lease = reserve(line, session)
    line.now += 1
    first = ask(line, operation, lease, again=False) if was_done else None
    line.now += 20
    second = ask(line, operation, lease)
    assert second.done
    assert second.version == lease.version + 1
    if first is not None:
        assert second.at == first.at
    if operation in ("extend", "release", "retry"):
        assert second.at == line["a"].ts
    assert [letter.message.attempts for letter in line.dead()] == [1] * (operation == "bury")
    if operation in ("release", "retry", "unreserve"):
        assert line["a"].attempts == (operation == "retry")


def test_only_the_live_version_is_extended(line: Line, session: Session) -> None:
    line.put("a")
    lease = reserve(line, session)
    first = ask(line, "extend", lease, again=False)
    before = line["a"]
    assert word(ask(line, "extend", lease, again=False)) == "stale"
    assert ask(line, "extend", lease) == first  # its answer was lost
    assert line["a"] == before
    second = ask(line, "extend", lease.extended(first.version, first.at), again=False)
    assert second.version == first.version + 1
    assert word(ask(line, "extend", lease, again=False)) == "stale"


@pytest.mark.parametrize("operation", ON_LEASES)
def test_resumption_by_a_twin_is_no_first_attempt(
    line: Line, session: Session, operation: str
) -> None:
    """A resumption adds 1 to the version under the same consumer, as an extension does."""
    line.put("a")
    lease = reserve(line, session)
    resume(line, Session("twin", "elsewhere"))
    before = line["a"]
    assert word(ask(line, operation, lease)) == "stale"
    assert line["a"] == before


@pytest.mark.parametrize("operation", ON_LEASES)
def test_same_change_by_a_twin_is_not_confirmed(
    line: Line, session: Session, operation: str
) -> None:
    line.put("a")
    old = reserve(line, session)
    twin = Session("twin", "elsewhere")
    (taken,) = resume(line, twin).leased
    assert ask(line, operation, taken.lease, again=False).done
    assert word(ask(line, operation, old)) == "unknown"
    looks_alike = replace(old, version=taken.lease.version)
    said = word(ask(line, operation, looks_alike))
    assert said == ("done" if operation == "ack" else _refusal(operation))


def _refusal(operation: str) -> str:
    return {"extend": "stale", "bury": "dead"}.get(operation, "not_holder")


@pytest.mark.parametrize("operation", ON_LEASES)
def test_next_version_without_a_session_stays_unknown(
    line: Line, session: Session, operation: str
) -> None:
    line.put("a")
    lease = replace(reserve(line, session), session="")
    assert ask(line, operation, lease, again=False).done
    assert word(ask(line, operation, lease)) == ("done" if operation == "ack" else "unknown")


def test_extension_of_a_foreign_lease_stays_unknown(line: Line, session: Session) -> None:
    line.put("a")
    lease = reserve(line, session)
    assert ask(line, "extend", lease, again=False).done
    assert word(ask(line, "extend", replace(lease, session="one/"))) == "unknown"
    assert word(ask(line, "extend", replace(lease, session="twin/"))) == "stale"


@pytest.mark.parametrize("operation", ON_LEASES)
def test_message_changed_since_stays_unknown(line: Line, session: Session, operation: str) -> None:
    line.put("a")
    lease = reserve(line, session)
    line.now = lease.until
    other = reserve(line, Session("other", "elsewhere"), "d")
    assert line.ack(other) == ["done"]
    assert word(ask(line, operation, lease)) == "unknown"


@pytest.mark.parametrize("operation", ON_LEASES)
def test_lapsed_lease_without_a_new_holder_stays_unknown(
    line: Line, session: Session, operation: str
) -> None:
    """The first attempt used an earlier clock reading, and may still be applied."""
    line.put("a")
    lease = reserve(line, session)
    line.now = lease.until
    assert word(ask(line, operation, lease)) == "unknown"
    assert word(ask(line, operation, lease, again=False)) == "lapsed"


@pytest.mark.parametrize("operation", ON_LEASES)
def test_lease_taken_over_is_refused(line: Line, session: Session, operation: str) -> None:
    line.put("a")
    lease = reserve(line, session)
    line.now = lease.until
    reserve(line, Session("other", "elsewhere"), "d")
    assert word(ask(line, operation, lease)) == "not_holder"


def test_later_reservation_of_a_session_is_no_extension(line: Line, session: Session) -> None:
    line.put("a")
    lapsed = reserve(line, session)
    line.now = lapsed.until
    later = reserve(line, session)
    assert later.version == lapsed.version + 1
    assert word(ask(line, "extend", lapsed)) == "stale"


def test_a_repeated_last_retry_is_done(make_line: MakeLine, session: Session) -> None:
    line = make_line(max_attempts=1)
    line.put("a")
    lease = reserve(line, session)
    assert ask(line, "retry", lease, again=False).done
    assert ask(line, "retry", lease).done
    assert [letter.reason for letter in line.dead()] == ["attempts"]


@pytest.mark.parametrize("was_done", [True, False])
def test_ack_without_a_mark_stays_unknown(
    make_line: MakeLine, session: Session, was_done: bool
) -> None:
    line = make_line(dedupe_ms=0)
    line.put("a")
    lease = reserve(line, session)
    if was_done:
        assert ask(line, "ack", lease, again=False).done
        assert ask(line, "ack", lease).done  # its mark still exists
        line.now += 60_000
        line.store.purge(now_ms=line.now)
        assert word(ask(line, "ack", lease)) == "unknown"
    else:
        assert ask(line, "ack", lease).done


def test_held_messages_are_told_apart_by_their_session(line: Line, session: Session) -> None:
    line.put("a")
    reserve(line, session)
    line.put("b")
    lease = reserve(line, session)

    def held(of: str) -> list[str]:
        page = line.store.select_held(line.uid, "c", session=of, limit=10)
        return [message.id for message in page.messages]

    assert held(lease.session) == ["b"]
    assert held("one/here") == []
    assert [m.id for m in line.store.select_held(line.uid, "c", limit=10).messages] == ["a", "b"]
    (first, second) = resume(line, Session("twin", "elsewhere")).leased
    assert (first.resumed_from, second.resumed_from) == ("one/here.1", "one/here.2")
    assert held(lease.session) == []


# Producers


@pytest.mark.parametrize("operation", BY_OWNERS)
@pytest.mark.parametrize("was_done", [True, False])
def test_a_change_of_an_owner_is_done(line: Line, operation: str, was_done: bool) -> None:
    line.put("a", due=line.now + 60_000)
    if was_done:
        assert ask(line, operation, again=False).done
    assert ask(line, operation).done
    assert ("a" in line) == (operation == "reschedule")


def test_overtaken_reschedule_stays_unknown(line: Line) -> None:
    line.put("a")
    line.take()
    assert word(ask(line, "reschedule", again=False)) == "leased"
    assert word(ask(line, "reschedule")) == "unknown"


def test_reschedule_that_is_repeated_after_expires_stays_unknown(line: Line) -> None:
    line.put("a", due=line.now, expires=line.now + 50)
    line.now += 50
    assert word(ask(line, "reschedule", again=False)) == "expired"
    assert word(ask(line, "reschedule")) == "unknown"


def test_cancel_of_a_missing_message_stays_unknown(make_line: MakeLine) -> None:
    line = make_line(dedupe_ms=0)
    assert word(ask(line, "cancel", again=False)) == "not_found"
    assert word(ask(line, "cancel")) == "unknown"


@pytest.mark.parametrize("operation", [each for each in ON_LEASES if each != "ack"])
def test_change_without_a_session_stays_unknown(line: Line, operation: str) -> None:
    line.put("a")
    lease = line.take()
    assert ask(line, operation, lease, again=False).done
    assert ask(line, operation, lease, again=False).refusal
    assert word(ask(line, operation, lease)) == "unknown"


# Relative times


@pytest.mark.parametrize("operation", ["release", "retry"])
def test_at_once_is_as_soon_as_the_rules_allow(line: Line, operation: str) -> None:
    line.put("a")
    lease = line.take()
    line.now += 7
    change = getattr(line.store, operation)
    (outcome,) = change(line.uid, [(lease, After(0))], now_ms=line.now)
    assert outcome.done
    assert outcome.at == line["a"].due == line.now + 10


@pytest.mark.parametrize("delay_ms", [-1, 1 << 62, 1.5, None])
def test_invalid_delay_is_refused(line: Line, delay_ms: int) -> None:
    line.put("a")
    lease = line.take()
    (outcome,) = line.store.release(line.uid, [(lease, After(delay_ms))], now_ms=line.now)
    assert (outcome.id, outcome.refusal) == ("a", "invalid")
