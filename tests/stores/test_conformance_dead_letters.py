"""Attempts are counted; undeliverable messages become dead letters and can be redriven."""

from dataclasses import replace

import pytest

from chronoline.core.message import DeadLetter, Lease
from chronoline.core.outcome import Grant
from chronoline.core.permissions import Producer, System
from tests.stores.line import LEASE_MS, NOW, OWNERS, Line, MakeLine, ids, leases_of, new, words


def exhaust(line: Line, *message_ids: str) -> None:
    """Sends messages of a topic with one attempt to the dead letters."""
    for message_id in message_ids:
        lease = line.lease((message_id, line[message_id].version)).leased[0].lease
        assert line.retry(lease, line.now + 100) == "done"


# Attempts


@pytest.mark.parametrize("by", ["reserve", "lease"])
def test_a_message_whose_leases_lapse_dies_after_max_attempts(make_line: MakeLine, by: str) -> None:
    line = make_line(max_attempts=3)
    line.put("a", body=b"x")
    for attempts in range(3):
        (leased,) = line.reserve().leased
        assert leased.message.attempts == attempts
        assert leased.redelivered == (attempts > 0)
        line.now = leased.lease.until
    before = line["a"]
    grant = line.reserve() if by == "reserve" else line.lease(("a", before.version))
    assert grant.leased == ()
    assert [(each.id, each.refusal) for each in grant.refused] == [("a", "dead")]
    assert "a" not in line
    (letter,) = line.dead()
    assert (letter.reason, letter.died) == ("attempts", line.now)
    assert (letter.message.attempts, letter.message.due) == (3, NOW)
    assert letter.message.version == before.version + 1
    assert letter.message.lock_consumer is None


def test_a_message_that_is_retried_dies_at_max_attempts(make_line: MakeLine) -> None:
    line = make_line(max_attempts=3)
    line.put("a")
    for attempts in (1, 2):
        assert line.retry(line.take(), line.now + 10) == "done"
        assert line["a"].attempts == attempts
        line.now += 10
    lease = line.take()
    due = line["a"].due
    (outcome,) = line.store.retry(line.uid, [(lease, line.now + 10)], now_ms=line.now)
    assert outcome.done
    assert outcome.version == lease.version + 1
    assert "a" not in line
    (letter,) = line.dead()
    assert (letter.reason, letter.died) == ("attempts", line.now)
    assert (letter.message.attempts, letter.message.due) == (3, due)
    assert letter.message.version == outcome.version


def test_the_last_retry_is_refused_like_any_other(make_line: MakeLine) -> None:
    line = make_line(max_attempts=1)
    line.put("a")
    lease = line.take()
    assert line.retry(lease, NOW + 9) == "too_soon"
    line.now = lease.until
    assert line.retry(lease, line.now + 10) == "lapsed"
    assert line.dead() == []


def test_only_lapses_and_retries_count_as_attempts(make_line: MakeLine) -> None:
    line = make_line(max_attempts=3)
    line.put("a")
    line.unreserve(line.take())
    line.release(line.take(), line.now + 10)
    line.now += 10
    line.retry(line.take(), line.now + 10)
    line.now += 10
    line.now = line.take().until
    assert line["a"].attempts == 1
    line.extend(line.take(), line.now + 50)
    assert line["a"].attempts == 2
    line.resume()
    assert line["a"].attempts == 2


def test_reschedule_after_the_last_lapse_makes_a_dead_letter(make_line: MakeLine) -> None:
    line = make_line(max_attempts=1)
    line.put("a")
    line.now = line.take().until
    assert line.reschedule(("a", line.now)) == ["done"]
    assert words(line.reserve().refused) == ["dead"]


# Bury


@pytest.mark.parametrize("max_attempts", [1, 3])
def test_buried_message_keeps_the_reason_of_its_consumer(
    make_line: MakeLine, max_attempts: int
) -> None:
    line = make_line(max_attempts=max_attempts)
    line.put("a", due=NOW - 5, key=b"k", body=b"x" * 5_000)
    lease = line.take()
    line.now += 7
    (outcome,) = line.store.bury(line.uid, [(lease, "no such user: 📅")], now_ms=line.now)
    assert outcome.done
    assert outcome.version == lease.version + 1
    assert "a" not in line
    (letter,) = line.dead()
    message = letter.message
    assert (letter.reason, letter.died) == ("no such user: 📅", line.now)
    assert (message.attempts, message.due, message.version) == (1, NOW - 5, outcome.version)
    assert (message.lock_consumer, message.key) == (None, b"k")
    bodies = line.store.bodies(line.uid, ["a"], actor=System(), now_ms=line.now)
    assert bodies.found == {"a": b"x" * 5_000}
    line.now = lease.until
    assert replace(line.reserve(), clear_ms=0) == Grant()


def test_burying_is_counted_with_lapses_and_retries(make_line: MakeLine) -> None:
    line = make_line(max_attempts=20)
    line.put("a")
    line.retry(line.take(), NOW + 10)
    line.now = NOW + 10
    line.now = line.take().until
    assert line.bury(line.take()) == "done"
    assert [letter.message.attempts for letter in line.dead()] == [3]


def test_a_batch_is_buried_each_for_its_own_reason(line: Line) -> None:
    line.put("a", "b", "c")
    held = {each.id: each for each in leases_of(line.reserve())}
    reasons = {"c": "one", "a": "", "b": "two"}
    batch = [(held[each], reason) for each, reason in reasons.items()]
    assert words(line.store.bury(line.uid, batch, now_ms=NOW)) == ["done"] * 3
    assert {letter.message.id: letter.reason for letter in line.dead()} == reasons


@pytest.mark.parametrize("first", ["bury", "retry"])
def test_repeated_bury_is_refused_as_dead(make_line: MakeLine, first: str) -> None:
    line = make_line(max_attempts=1)
    line.put("a")
    lease = line.take()
    if first == "bury":
        batch = [(lease, "one"), (lease, "two")]
        assert words(line.store.bury(line.uid, batch, now_ms=NOW)) == ["done", "dead"]
    else:
        batch_of_moves = [(lease, NOW + 10), (lease, NOW + 20)]
        assert words(line.store.retry(line.uid, batch_of_moves, now_ms=NOW)) == ["done", "dead"]
    before = line.dead()
    assert line.bury(lease, "three") == "dead"
    assert line.stale_answers(lease) == {"dead"}
    assert line.dead() == before


def test_a_buried_message_is_put_back_and_buried_again(line: Line) -> None:
    line.put("a")
    for reason in ("one", "two"):
        stale = line.take()
        assert line.bury(stale, reason) == "done"
        assert [letter.reason for letter in line.dead()] == [reason]
        assert line.redrive("a", due=line.now) == ["done"]
        assert line["a"].attempts == 0
        assert line.stale_answers(stale) == {"not_holder"}
    assert line.dead() == []
    assert line.ack(line.take()) == ["done"]


# Expires and lateness


@pytest.mark.parametrize("by", ["reserve", "lease"])
@pytest.mark.parametrize(("offset", "dies"), [(-1, False), (0, True), (1, True)])
def test_a_message_dies_from_expires_on(line: Line, by: str, offset: int, dies: bool) -> None:
    line.put("a", expires=NOW + 500)
    line.now = NOW + 500 + offset
    grant = line.reserve() if by == "reserve" else line.lease(("a", NOW))
    assert words(grant.refused) == (["dead"] if dies else [])
    assert len(grant.leased) == (not dies)
    assert [letter.reason for letter in line.dead()] == (["expired"] if dies else [])


@pytest.mark.parametrize("by", ["reserve", "lease"])
@pytest.mark.parametrize(("offset", "dies"), [(-1, False), (0, False), (1, True)])
def test_a_message_dies_that_is_later_than_max_lateness(
    make_line: MakeLine, by: str, offset: int, dies: bool
) -> None:
    line = make_line(max_lateness_ms=500)
    line.put("a")
    line.now = NOW + 500 + offset
    grant = line.reserve() if by == "reserve" else line.lease(("a", NOW))
    assert words(grant.refused) == (["dead"] if dies else [])
    assert [letter.reason for letter in line.dead()] == (["max_lateness"] if dies else [])


def test_expires_is_named_before_max_lateness(make_line: MakeLine) -> None:
    line = make_line(max_lateness_ms=500)
    line.put("both", expires=NOW + 500)
    line.put("late", expires=NOW + 502)
    line.now = NOW + 501
    line.reserve()
    assert [(letter.message.id, letter.reason) for letter in line.dead()] == [
        ("both", "expired"),
        ("late", "max_lateness"),
    ]


@pytest.mark.parametrize("settings", [{}, {"max_lateness_ms": 20}])
def test_age_never_cuts_a_live_lease(make_line: MakeLine, settings: dict[str, int]) -> None:
    line = make_line(**settings)
    line.put("a", expires=NOW + 20)
    lease = line.take(lease_ms=LEASE_MS)
    line.now = NOW + 500
    assert line.reserved("d", ahead_ms=1_000) == []
    assert line.dead() == []
    (outcome,) = line.store.extend(line.uid, [(lease, NOW + 3_000)], now_ms=line.now)
    assert outcome.done
    line.now = NOW + 2_000
    assert line.reserved("d") == []
    (resumed,) = line.resume("c").leased
    assert line.ack(resumed.lease) == ["done"]
    assert line.dead() == []


def test_an_expired_message_dies_after_its_lease_lapsed(line: Line) -> None:
    line.put("a", expires=NOW + 20)
    line.now = line.take().until
    assert line.dead() == []
    assert words(line.reserve("d").refused) == ["dead"]
    (letter,) = line.dead()
    assert (letter.reason, letter.message.attempts) == ("expired", 1)


def test_dead_messages_do_not_block_live_ones(line: Line) -> None:
    line.create(*(new(f"old {number}", expires=NOW + 1) for number in range(5)))
    line.put("young", due=NOW + 1)
    line.now = NOW + 1
    first = line.reserve(limit=5)
    assert (len(first.leased), len(first.refused), first.more) == (0, 5, True)
    assert ids(line.reserve(limit=5).leased) == ["young"]


# Listing


def test_dead_letters_keep_their_content_oldest_first(make_line: MakeLine) -> None:
    line = make_line(max_attempts=1)
    for message_id in ("b", "c", "a"):
        line.put(message_id, key=b"k", headers=(("h", b"1"), ("h", None)), body=b"x")
        exhaust(line, message_id)
        line.now += 1
    letters = line.dead()
    assert ids(letters) == ["b", "c", "a"]
    assert [letter.died - NOW for letter in letters] == [0, 1, 2]
    assert ids(line.store.dead_letters(line.uid, limit=2)) == ["b", "c"]
    assert (letters[0].message.key, letters[0].message.headers) == (
        b"k",
        (("h", b"1"), ("h", None)),
    )
    for actor in (System(), Producer(OWNERS)):
        bodies = line.store.bodies(line.uid, ["a"], actor=actor, now_ms=line.now)
        assert bodies.found == {"a": b"x"}


@pytest.mark.parametrize("then", ["kept", "redriven", "discarded"])
def test_dead_letter_pages_survive_changes_of_earlier_pages(make_line: MakeLine, then: str) -> None:
    line = make_line(max_attempts=1)
    groups = [["c", "é", "a"], ["B"], ["📅", "b", "_", "Z"]]  # each died at one moment
    for names in groups:
        line.put(*names, due=line.now)
        exhaust(line, *names)
        line.now += 1
    seen: list[str] = []
    last: DeadLetter | None = None
    while page := line.store.dead_letters(line.uid, after=last, limit=3):
        seen += ids(page)
        last = page[-1]
        if then == "redriven":
            assert line.redrive(*ids(page), due=line.now) == ["done"] * len(page)
        elif then == "discarded":
            assert line.discard(*ids(page)) == ["done"] * len(page)
    assert seen == [each for names in groups for each in sorted(names)]


@pytest.mark.parametrize("call", ["reschedule", "cancel", "ack"])
def test_dead_letter_can_only_be_redriven_or_discarded(make_line: MakeLine, call: str) -> None:
    line = make_line(max_attempts=1)
    line.put("a")
    lease = line.take()
    line.retry(lease, NOW + 100)
    match call:
        case "reschedule":
            assert line.reschedule(("a", NOW)) == ["dead"]
        case "cancel":
            assert line.cancel("a") == ["dead"]
        case "ack":
            assert line.stale_answers(lease) == {"dead"}
    assert ids(line.dead()) == ["a"]


# Redrive and discard


def test_redrive_puts_a_dead_letter_back(make_line: MakeLine) -> None:
    line = make_line(max_attempts=1)
    line.put("a", key=b"k", body=b"x")
    exhaust(line, "a")
    version = line.dead()[0].message.version
    (outcome,) = line.store.redrive(line.uid, ["a"], due=NOW + 70, now_ms=NOW)
    message = line["a"]
    assert message.version == outcome.version == version + 1
    assert (message.ts, message.due, message.attempts) == (NOW + 70, NOW + 70, 0)
    assert (message.lock_consumer, message.key) == (None, b"k")
    assert line.dead() == []
    line.now = NOW + 70
    assert [each.body for each in line.reserve().leased] == [b"x"]


def test_a_redriven_message_can_die_again(make_line: MakeLine) -> None:
    line = make_line(max_attempts=2)
    line.put("a")
    for _ in range(2):
        line.retry(line.take(), line.now + 10)
        line.now += 10
        line.retry(line.take(), line.now + 10)
        assert [letter.message.attempts for letter in line.dead()] == [2]
        assert line.redrive("a", due=line.now) == ["done"]


@pytest.mark.parametrize(
    ("due", "expires"), [(NOW + 499, NOW + 500), (NOW + 500, None), (NOW + 501, None)]
)
def test_redrive_drops_an_expiry_before_its_due(
    make_line: MakeLine, due: int, expires: int | None
) -> None:
    line = make_line(max_attempts=1)
    line.put("a", expires=NOW + 500)
    exhaust(line, "a")
    assert line.redrive("a", due=due) == ["done"]
    assert line["a"].expires == expires
    line.now = due
    assert line.reserved() == ["a"]


def test_an_expired_message_can_be_put_back_now(line: Line) -> None:
    line.put("a", expires=NOW + 500)
    line.now = NOW + 600
    assert words(line.reserve().refused) == ["dead"]
    assert line.redrive("a", due=line.now) == ["done"]
    assert line.reserved() == ["a"]


def test_discard_deletes_dead_letters(make_line: MakeLine) -> None:
    line = make_line(max_attempts=1)
    line.put("a", "b")
    exhaust(line, "a", "b")
    assert line.discard("a") == ["done"]
    assert ids(line.dead()) == ["b"]
    assert "a" not in line
    bodies = line.store.bodies(line.uid, ["a"], actor=System(), now_ms=NOW)
    assert words(bodies.refused) == ["deleted"]


@pytest.mark.parametrize("call", ["redrive", "discard"])
def test_only_dead_letters_are_redriven_or_discarded(make_line: MakeLine, call: str) -> None:
    line = make_line(max_attempts=1)
    line.put("acked")
    line.ack(line.take())
    line.put("dead")
    exhaust(line, "dead")
    line.put("leased")
    line.take()
    before = line.put("waiting", due=NOW + 5), line["leased"]
    names = ["nothing", "acked", "waiting", "leased", "dead", "dead"]
    answers = line.redrive(*names, due=NOW) if call == "redrive" else line.discard(*names)
    assert answers[:5] == ["not_found", "deleted", "not_dead", "not_dead", "done"]
    assert answers[5] == ("not_dead" if call == "redrive" else "deleted")
    assert (line["waiting"], line["leased"]) == before


def test_a_stale_holder_after_a_redrive(make_line: MakeLine) -> None:
    line = make_line(max_attempts=1)
    line.put("a")
    stale = line.take("c")
    line.retry(stale, NOW + 100)
    line.redrive("a", due=NOW)
    live = line.take("c")
    assert isinstance(live, Lease)
    assert line.stale_answers(stale) == {"stale"}
    assert line.ack(live) == ["done"]
