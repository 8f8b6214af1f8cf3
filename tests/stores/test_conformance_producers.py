"""The operations of producers: create, replace, reschedule, cancel."""

import pytest

from chronoline.core.change import Change
from chronoline.core.ids import bucket_of
from chronoline.core.message import Message, NewMessage
from chronoline.core.permissions import Operation, System
from chronoline.stores.contract import IfExists
from tests.stores.line import LEASE_MS, NOW, OWNERS, Line, MakeLine, ids, new, words

DEDUPE = 1_000


# Create


def test_a_created_message_lies_on_its_timeline(line: Line) -> None:
    outcomes = line.store.create(
        line.uid,
        [new("a", NOW + 50, expires=NOW + 99, key=b"k", headers=(("h", b"1"),), body=b"x")],
        now_ms=NOW,
    )
    assert [(each.id, each.done, each.version) for each in outcomes] == [("a", True, NOW)]
    assert line["a"] == Message(
        id="a",
        ts=NOW + 50,
        due=NOW + 50,
        bucket=bucket_of("a", line.topic.settings.buckets),
        producer_group=OWNERS,
        lock_consumer=None,
        version=NOW,
        attempts=0,
        expires=NOW + 99,
        key=b"k",
        headers=(("h", b"1"),),
    )


def test_the_first_version_is_now(line: Line) -> None:
    line.now = NOW + 123
    assert line.put("a").version == NOW + 123


def test_a_message_may_be_due_in_the_past(line: Line) -> None:
    assert line.put("a", due=0).ts == 0
    assert line.reserved() == ["a"]


def test_a_repeated_create_answers_exists_and_changes_nothing(line: Line) -> None:
    before = line.put("a", body=b"first")
    line.now += 5
    assert line.create(new("a", NOW + 9, body=b"second")) == ["exists"]
    assert line.create(new("a", producer_group="others")) == ["exists"]
    assert line["a"] == before
    bodies = line.store.bodies(line.uid, ["a"], actor=System(), now_ms=line.now)
    assert bodies.found == {"a": b"first"}


def test_outcomes_come_in_the_order_of_the_batch(line: Line) -> None:
    line.put("m3", "m7")
    messages = [new(f"m{number}") for number in (9, 3, 0, 7, 5, 1)]
    outcomes = line.store.create(line.uid, messages, now_ms=NOW)
    assert [each.id for each in outcomes] == ["m9", "m3", "m0", "m7", "m5", "m1"]
    assert words(outcomes) == ["done", "exists", "done", "exists", "done", "done"]


def test_second_create_of_an_id_in_a_batch_exists(line: Line) -> None:
    messages = [new("a", body=b"1"), new("b"), new("a", body=b"2"), new("a", body=b"3")]
    assert line.create(*messages) == ["done", "done", "exists", "exists"]
    assert {each.lease.id: each.body for each in line.reserve().leased} == {"a": b"1", "b": b""}


def test_an_empty_batch_is_answered_with_nothing(line: Line) -> None:
    assert line.create() == []
    assert line.cancel() == []
    assert line.ack() == []


def test_a_large_batch(line: Line) -> None:
    names = [f"m{number}" for number in range(2_500)]
    outcomes = line.store.create(line.uid, [new(each) for each in names], now_ms=NOW)
    assert [each.id for each in outcomes if each.done] == names
    page = line.store.select(line.uid, line.topic.all_buckets, limit=10_000, max_ts=NOW)
    assert sorted(ids(page.messages)) == sorted(names)


def test_the_id_of_a_dead_letter_is_taken(make_line: MakeLine) -> None:
    line = make_line(max_attempts=1, dedupe_ms=0)
    line.put("a")
    line.retry(line.take(), NOW + 100)
    assert line.create(new("a")) == ["exists"]


# The dedupe time


@pytest.mark.parametrize("hand", ["ack", "cancel", "discard"])
def test_an_id_stays_taken_for_the_dedupe_time(make_line: MakeLine, hand: str) -> None:
    line = make_line(dedupe_ms=DEDUPE, max_attempts=1)
    line.put("a")
    match hand:
        case "ack":
            line.ack(line.take())
        case "cancel":
            line.cancel("a")
        case "discard":
            line.retry(line.take(), NOW + 100)
            line.discard("a")
    assert "a" not in line
    answers = []
    for line.now in (NOW, NOW + DEDUPE - 1, NOW + DEDUPE, NOW + DEDUPE + 1):
        answers += line.create(new("a"))
    assert answers == ["exists", "exists", "done", "exists"]
    assert line["a"].attempts == 0


@pytest.mark.parametrize("purged", [False, True])
def test_id_is_free_at_once_without_dedupe_time(make_line: MakeLine, purged: bool) -> None:
    line = make_line(dedupe_ms=0)
    line.put("a", body=b"first")
    line.ack(line.take())
    if purged:
        line.purge()
    assert line.create(new("a", body=b"second")) == ["done"]
    assert [each.body for each in line.reserve().leased] == [b"second"]


def test_recreated_id_starts_above_its_mark(make_line: MakeLine) -> None:
    line = make_line(dedupe_ms=0)
    line.put("a")
    lease = line.take()
    line.ack(lease)
    assert line.put("a").version > lease.version + 1


# Digests


def repeated(line: Line, message: NewMessage, if_exists: IfExists = "refuse") -> tuple[str, bool]:
    """Creates a message, and returns the answer and whether it was a repeat."""
    (outcome,) = line.store.create(line.uid, [message], if_exists=if_exists, now_ms=line.now)
    return outcome.refusal or "done", outcome.repeated


def test_the_digest_tells_a_repeat_from_another_message(line: Line) -> None:
    line.put("a", digest=b"1")
    line.put("b")
    assert repeated(line, new("a", digest=b"1")) == ("exists", True)
    assert repeated(line, new("a", digest=b"2")) == ("exists", False)
    assert repeated(line, new("a")) == ("exists", False)
    assert repeated(line, new("b", digest=b"1")) == ("exists", False)
    assert repeated(line, new("b")) == ("exists", False)


@pytest.mark.parametrize("ending", ["ack", "cancel", "bury"])
def test_the_digest_outlives_its_message(line: Line, ending: str) -> None:
    line.put("a", digest=b"1")
    match ending:
        case "ack":
            assert line.ack(line.take()) == ["done"]
        case "bury":
            assert line.bury(line.take()) == "done"
        case _:
            assert line.cancel("a") == ["done"]
    assert repeated(line, new("a", digest=b"1")) == ("exists", True)
    assert repeated(line, new("a", digest=b"2")) == ("exists", False)


def test_a_new_message_has_a_digest_of_its_own(make_line: MakeLine) -> None:
    line = make_line(dedupe_ms=DEDUPE)
    line.put("a", digest=b"1")
    line.cancel("a")
    line.now += DEDUPE
    assert line.create(new("a")) == ["done"]
    assert repeated(line, new("a", digest=b"1")) == ("exists", False)


def test_no_repeat_replaces_a_message_that_has_fired(line: Line) -> None:
    line.put("a", digest=b"1")
    assert repeated(line, new("a", digest=b"1"), "replace") == ("done", False)
    lease = line.take()
    assert repeated(line, new("a", digest=b"1"), "replace") == ("leased", True)
    line.ack(lease)
    assert repeated(line, new("a", digest=b"1"), "replace") == ("exists", True)
    assert repeated(line, new("a", digest=b"2"), "replace") == ("done", False)


def test_a_digest_is_short(line: Line) -> None:
    (long, text) = line.store.create(
        line.uid,
        [new("a", digest=bytes(65)), new("b", digest="1")],
        now_ms=NOW,
    )
    assert (long.reason, text.reason) == (
        "digest has 65 bytes; at most 64 are allowed",
        "digest must be bytes, not str",
    )


# Replace


def test_replace_creates_what_is_not_there(line: Line) -> None:
    assert line.create(new("a", NOW + 5), if_exists="replace") == ["done"]
    assert line["a"].version == NOW


def test_replace_makes_a_message_anew(line: Line) -> None:
    line.put("a", due=NOW, body=b"old", key=b"old", headers=(("h", b"old"),), expires=NOW + 1)
    young = new("a", NOW + 70, body=b"young", headers=(("h", b"young"),))
    outcomes = line.store.create(line.uid, [young], if_exists="replace", now_ms=NOW)
    message = line["a"]
    assert outcomes[0].version == message.version == NOW + 1
    assert (message.ts, message.due, message.expires) == (NOW + 70, NOW + 70, None)
    assert (message.key, message.headers) == (None, (("h", b"young"),))
    line.now = NOW + 70
    assert [each.body for each in line.reserve().leased] == [b"young"]


def test_replace_begins_with_attempts_at_zero(line: Line) -> None:
    line.put("a")
    line.retry(line.take(), NOW + 100)
    assert line["a"].attempts == 1
    assert line.create(new("a"), if_exists="replace") == ["done"]
    assert line["a"].attempts == 0


def test_replace_fences_a_lapsed_holder(line: Line) -> None:
    line.put("a")
    lease = line.take()
    line.now = lease.until
    assert line.create(new("a"), if_exists="replace") == ["done"]
    assert line["a"].lock_consumer is None
    assert line["a"].attempts == 0
    line.take()
    assert line.stale_answers(lease) == {"stale"}


def test_replace_never_breaks_a_live_lease(line: Line) -> None:
    line.put("a")
    lease = line.take()
    before = line["a"]
    line.now = lease.until - 1
    assert line.create(new("a"), if_exists="replace") == ["leased"]
    assert line["a"] == before


@pytest.mark.parametrize("state", ["waiting", "cancelled", "acked", "dead"])
def test_replace_is_for_the_owner(make_line: MakeLine, state: str) -> None:
    line = make_line(max_attempts=1)
    line.put("a")
    match state:
        case "cancelled":
            line.cancel("a")
        case "acked":
            line.ack(line.take())
        case "dead":
            line.retry(line.take(), NOW + 100)
    others = new("a", producer_group="others")
    assert line.create(others, if_exists="replace") == ["not_owner"]
    assert line.create(new("a", body=b"anew"), if_exists="replace") == ["done"]
    assert [each.body for each in line.reserve().leased] == [b"anew"]
    assert line.dead() == []


def test_replace_of_an_acked_message_fences_its_old_lease(line: Line) -> None:
    line.put("a")
    lease = line.take()
    line.ack(lease)
    assert line.create(new("a"), if_exists="replace") == ["done"]
    assert line["a"].version > lease.version + 1
    line.take()
    assert line.ack(lease) == ["stale"]


def test_the_same_id_twice_in_a_batch_of_replacements(line: Line) -> None:
    messages = [new("a", body=b"1"), new("a", body=b"2")]
    assert line.create(*messages, if_exists="replace") == ["done", "done"]
    assert [each.body for each in line.reserve().leased] == [b"2"]


# Reschedule


@pytest.mark.parametrize("due", [0, NOW - 1, NOW, NOW + 1, NOW + 10**9])
def test_reschedule_moves_ts_and_due(line: Line, due: int) -> None:
    before = line.put("a", due=NOW + 500)
    outcomes = line.store.reschedule(line.uid, [("a", due)], producer_group=OWNERS, now_ms=NOW)
    message = line["a"]
    assert (message.ts, message.due) == (due, due)
    assert message.version == outcomes[0].version == before.version + 1
    assert message.attempts == 0


@pytest.mark.parametrize("ends", [NOW + 50, NOW + 500])
@pytest.mark.parametrize("offset", [-1, 0, 1])
def test_reschedule_to_expires_is_refused(line: Line, ends: int, offset: int) -> None:
    before = line.put("a", due=NOW + 10, expires=ends)
    refused = line.reschedule(("a", ends + offset))
    assert refused == (["done"] if offset < 0 else ["expired"])
    assert (line["a"] == before) == (offset >= 0)
    assert line["a"].expires == ends


def test_expired_message_is_not_rescheduled_into_the_past(line: Line) -> None:
    line.put("a", due=NOW, expires=NOW + 50)
    line.now = NOW + 49
    assert line.reschedule(("a", NOW - 1)) == ["done"]
    line.now = NOW + 50
    assert line.reschedule(("a", NOW - 2)) == ["expired"]
    assert line["a"].due == NOW - 1


def move(line: Line, due: int, expires: int | None = None) -> str:
    return line.apply(Change(Operation.RESCHEDULE, "a", OWNERS, to=due, expires=expires))[0]


def test_reschedule_takes_a_new_expires(line: Line) -> None:
    line.put("a", due=NOW + 10, expires=NOW + 50)
    assert move(line, NOW + 100, NOW + 101) == "done"
    assert (line["a"].due, line["a"].expires) == (NOW + 100, NOW + 101)
    assert move(line, NOW + 20) == "done"
    assert line["a"].expires == NOW + 101
    assert move(line, NOW + 20, NOW + 20) == "invalid"
    assert move(line, NOW + 20, -1) == "invalid"
    assert move(line, NOW - 2, NOW - 1) == "expired"
    assert (line["a"].due, line["a"].expires) == (NOW + 20, NOW + 101)


def test_reschedule_gives_a_message_its_first_expires(line: Line) -> None:
    line.put("a")
    assert move(line, NOW + 20, NOW + 21) == "done"
    line.now = NOW + 21
    assert line.reserved() == []
    assert [each.reason for each in line.dead()] == ["expired"]


def test_reschedule_needs_the_own_group(line: Line) -> None:
    before = line.put("a")
    assert line.reschedule(("a", NOW + 5), group="others") == ["not_owner"]
    assert line["a"] == before


def test_reschedule_at_the_end_of_a_lease(line: Line) -> None:
    line.put("a")
    lease = line.take()
    before = line["a"]
    line.now = lease.until - 1
    assert line.reschedule(("a", NOW + 9_000)) == ["leased"]
    assert line["a"] == before
    line.now = lease.until
    assert line.reschedule(("a", NOW + 9_000)) == ["done"]
    assert line["a"].lock_consumer is None
    assert line["a"].attempts == 1
    assert line.stale_answers(lease) == {"not_holder"}


def test_a_rescheduled_lapse_is_counted_once(line: Line) -> None:
    line.put("a")
    line.now = line.take().until
    line.reschedule(("a", line.now))
    (leased,) = line.reserve().leased
    assert leased.message.attempts == 1
    assert not leased.redelivered


def test_reschedule_of_what_is_not_there(make_line: MakeLine) -> None:
    line = make_line(max_attempts=1)
    line.put("acked")
    line.ack(line.take())
    line.put("dead")
    line.retry(line.take(), NOW + 100)
    moves = [("nothing", NOW), ("acked", NOW), ("dead", NOW)]
    assert line.reschedule(*moves) == ["not_found", "deleted", "dead"]


def test_the_same_id_twice_is_moved_twice(line: Line) -> None:
    line.put("a")
    assert line.reschedule(("a", NOW + 7), ("a", NOW + 3)) == ["done", "done"]
    assert (line["a"].ts, line["a"].version) == (NOW + 3, NOW + 2)


# Cancel


def test_a_cancelled_message_is_gone(line: Line) -> None:
    line.put("a", "b")
    assert line.cancel("a") == ["done"]
    assert "a" not in line
    assert line.reserved() == ["b"]
    bodies = line.store.bodies(line.uid, ["a"], actor=System(), now_ms=NOW)
    assert words(bodies.refused) == ["deleted"]


def test_a_repeated_cancel_is_done_and_changes_nothing(make_line: MakeLine) -> None:
    line = make_line(dedupe_ms=DEDUPE)
    line.put("a")
    first, second = line.store.cancel(line.uid, ["a", "a"], producer_group=OWNERS, now_ms=NOW)
    assert first == second
    assert first.version == NOW + 1
    line.now = NOW + DEDUPE - 1
    assert line.cancel("a") == ["done"]
    assert line.create(new("a")) == ["exists"]
    line.now = NOW + DEDUPE
    assert line.cancel("a") == ["not_found"]
    assert line.create(new("a")) == ["done"]


def test_cancel_by_another_group_is_refused(line: Line) -> None:
    before = line.put("a")
    assert line.cancel("a", group="others") == ["not_owner"]
    assert line["a"] == before
    line.cancel("a")
    assert line.cancel("a", group="others") == ["deleted"]


def test_cancel_after_an_ack_is_refused(line: Line) -> None:
    line.put("a")
    line.ack(line.take())
    assert line.cancel("a") == ["deleted"]


def test_cancel_never_breaks_a_live_lease(line: Line) -> None:
    line.put("a")
    lease = line.take(lease_ms=LEASE_MS)
    before = line["a"]
    line.now = lease.until - 1
    assert line.cancel("a") == ["leased"]
    assert line["a"] == before
    line.now = lease.until
    assert line.cancel("a") == ["done"]
    assert line.ack(lease) == ["deleted"]
