"""Accounts of inputs: each batch is taken in once, as a whole, and only by the holder of the claim."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from chronoline.core.errors import InvalidInput, TopicNotFound
from chronoline.core.limits import MAX_TIME_MS
from chronoline.core.message import NewMessage
from chronoline.core.permissions import System
from chronoline.stores.contract import Store
from chronoline.stores.inputs import (
    Cancel,
    ClaimLost,
    Entry,
    InputClaim,
    InputGap,
    InputRecord,
    Intake,
    Rejected,
    Reschedule,
    TakenIn,
    Tally,
)
from tests.stores.line import NOW, OWNERS, Line, MakeLine, ids, new

SOURCE = "pipe/orders"
UNTIL = NOW + 10_000


@pytest.fixture(autouse=True)
def _no_accounts(store: Store) -> None:
    """Removes the rows of other tests from a shared database."""
    for source in (SOURCE, "pipe/other"):
        store.forget_inputs(source, now_ms=MAX_TIME_MS)


@pytest.fixture
def line(make_line: MakeLine) -> Line:
    return make_line(dedupe_ms=0)


def claim(store: Store, partition: int = 0, holder: str = "a", *, now: int = NOW) -> InputClaim:
    (found,) = store.claim_inputs(SOURCE, {partition: 0}, holder, until_ms=now + 10_000, now_ms=now)
    return found


def intake(held: InputClaim, *entries: Entry, first: int = 0) -> Intake:
    """Returns an intake of consecutive records."""
    records = [InputRecord(first + place, entry) for place, entry in enumerate(entries)]
    return Intake(held, records, first, first + len(entries))


def take_in(line: Line, *intakes: Intake) -> list[TakenIn]:
    return line.store.take_in(line.uid, intakes, producer_group=OWNERS, now_ms=line.now)


def tally(line: Line, *intakes: Intake) -> Tally:
    (taken,) = take_in(line, *intakes)
    return taken.tally


def positions(store: Store) -> dict[int, int]:
    return {each.partition: each.position for each in store.input_accounts(SOURCE)}


def ids_of(line: Line, ids: Sequence[str]) -> set[str]:
    return set(line.store.lookup(line.uid, ids))


# Claims


def test_only_the_first_claim_sets_the_position(store: Store) -> None:
    first = store.claim_inputs(SOURCE, {0: 5, 1: 0}, "a", until_ms=UNTIL, now_ms=NOW)
    assert [(each.partition, each.position) for each in first] == [(0, 5), (1, 0)]
    again = store.claim_inputs(SOURCE, {0: 9, 1: 9}, "a", until_ms=UNTIL, now_ms=NOW)
    assert [(each.partition, each.position) for each in again] == [(0, 5), (1, 0)]
    assert [b.fence > a.fence for a, b in zip(first, again, strict=True)] == [True, True]


def test_a_live_claim_keeps_others_away_until_it_ends(store: Store) -> None:
    mine = claim(store)
    assert store.claim_inputs(SOURCE, {0: 0}, "b", until_ms=UNTIL, now_ms=mine.until_ms - 1) == []
    theirs = claim(store, holder="b", now=mine.until_ms)
    assert theirs.fence > mine.fence
    assert store.renew_claims([mine], until_ms=UNTIL + 1, now_ms=mine.until_ms - 1) == []


def test_only_the_current_claim_can_be_released(store: Store) -> None:
    stale = claim(store)
    mine = claim(store)
    store.release_claims([stale])
    assert store.claim_inputs(SOURCE, {0: 0}, "b", until_ms=UNTIL, now_ms=NOW) == []
    store.release_claims([mine])
    store.release_claims([mine])
    assert claim(store, holder="b").fence > mine.fence


def test_a_renewed_claim_lives_on_and_knows_the_position(line: Line) -> None:
    mine = claim(line.store)
    take_in(line, intake(mine, new("x")))
    (renewed,) = line.store.renew_claims([mine], until_ms=UNTIL + 5, now_ms=NOW)
    assert renewed == mine._replace(until_ms=UNTIL + 5, position=1)
    assert line.store.renew_claims([], until_ms=UNTIL, now_ms=NOW) == []
    line.now = UNTIL + 4
    assert tally(line, intake(mine, new("y"), first=1)) == Tally(accepted=1)
    assert line.store.renew_claims([mine], until_ms=UNTIL + 9, now_ms=UNTIL + 5) == []


def test_sources_have_accounts_of_their_own(store: Store) -> None:
    claim(store)
    (other,) = store.claim_inputs("pipe/other", {0: 7}, "b", until_ms=UNTIL, now_ms=NOW)
    assert other.position == 7
    assert positions(store) == {0: 0}


def test_source_is_forgotten_only_without_live_claims(line: Line) -> None:
    claim(line.store, 1)
    take_in(line, intake(claim(line.store), new("x")))
    assert line.store.forget_inputs(SOURCE, now_ms=NOW) == 0
    line.store.release_claims([claim(line.store)])
    assert line.store.forget_inputs(SOURCE, now_ms=NOW) == 1
    assert positions(line.store) == {1: 0}
    assert tally(line, intake(claim(line.store), new("x"))) == Tally(ignored=1)


# Intake


def test_records_become_messages_and_the_position_moves_with_them(line: Line) -> None:
    held = claim(line.store)
    message = new("x", NOW + 5, body=b"\0\xff", key=b"k", headers=(("h", None), ("h", b"")))
    assert tally(line, intake(held, message, new("y"))) == Tally(accepted=2)
    (account,) = line.store.input_accounts(SOURCE)
    assert (account.position, account.holder, account.until_ms) == (2, "a", UNTIL)
    assert account.tally == Tally(accepted=2)
    found = line["x"]
    assert (found.due, found.key, found.headers) == (NOW + 5, b"k", (("h", None), ("h", b"")))


def test_repeated_batch_adds_nothing_after_firing(
    line: Line,
) -> None:
    held = claim(line.store)
    batch = intake(held, new("x"), new("y"), Cancel("y"), Rejected(new("bad")))
    done = Tally(accepted=2, cancelled=1, rejected=1)
    assert tally(line, batch) == done
    assert line.ack(line.take()) == ["done"]
    assert [(each.skipped, each.tally) for each in take_in(line, batch)] == [(4, Tally())]
    assert ids_of(line, ["x", "y"]) == set()
    (account,) = line.store.input_accounts(SOURCE)
    assert (account.position, account.tally) == (4, done)


def test_a_batch_that_overlaps_adds_the_rest(line: Line) -> None:
    held = claim(line.store)
    take_in(line, intake(held, new("a"), new("b")))
    (taken,) = take_in(line, intake(held, new("b"), new("c"), first=1))
    assert (taken.skipped, taken.tally) == (1, Tally(accepted=1))
    assert positions(line.store) == {0: 3}


def test_waiting_id_is_ignored_and_counted(line: Line) -> None:
    held = claim(line.store)
    line.put("x", due=NOW + 9)
    found = tally(line, intake(held, new("x"), new("y"), new("y", NOW + 1), new("z")))
    assert found == Tally(accepted=2, ignored=2)
    assert (line["x"].due, line["y"].due) == (NOW + 9, NOW)


@pytest.mark.parametrize("dedupe_ms", [0, 60_000])
def test_id_of_a_dead_letter_is_accepted_anew(make_line: MakeLine, dedupe_ms: int) -> None:
    line = make_line(dedupe_ms=dedupe_ms)
    held = claim(line.store)
    large = b"x" * 100_000
    died = new("x", body=large, key=b"k", headers=(("h", b"1"),))
    take_in(line, intake(held, died, new("waiting", NOW + 9)))
    assert line.bury(line.take(), "no use") == "done"
    (before,) = line.store.dead_letters(line.uid, limit=10)
    line.now += 5
    again = [new("x", NOW + 7, body=b"2"), new("waiting"), new("x", body=b"3"), new("y", NOW + 8)]
    assert tally(line, intake(held, *again, first=2)) == Tally(accepted=2, ignored=2)
    (letter,) = line.store.dead_letters(line.uid, limit=10)
    assert (letter.reason, letter.died) == ("no use", before.died)
    assert letter.message.headers == (("h", b"1"), ("chronosDeadLetterId", b"x"))
    assert (letter.message.key, letter.message.attempts) == (b"k", 1)
    assert line["x"].version > before.message.version
    kept = letter.message.id
    bodies = line.store.bodies(line.uid, ["x", kept], actor=System(), now_ms=line.now)
    assert bodies.found == {"x": b"2", kept: large}
    assert line.store.redrive(line.uid, [kept], due=NOW, now_ms=line.now)[0].done
    assert line.reserved() == [kept]


def test_id_that_dies_again_keeps_both_letters(line: Line) -> None:
    held = claim(line.store)
    for number in range(3):
        done = tally(line, intake(held, new("x", body=b"%d" % number), first=number))
        assert done == Tally(accepted=1)
        line.bury(line.take(), str(number))
    letters = line.store.dead_letters(line.uid, limit=10)
    assert sorted(each.reason for each in letters) == ["0", "1", "2"]
    assert sum(each.message.id == "x" for each in letters) == 1


def test_letter_of_another_producer_does_not_keep_the_id(line: Line) -> None:
    line.put("x", producer_group="others")
    line.bury(line.take())
    assert tally(line, intake(claim(line.store), new("x"))) == Tally(accepted=1)
    (letter,) = line.store.dead_letters(line.uid, limit=10)
    assert letter.message.producer_group == "others"


def test_failed_intake_keeps_the_letter_where_it_was(line: Line) -> None:
    line.put("x", "taken")
    (lease,) = [each.lease for each in line.reserve().leased if each.message.id == "x"]
    line.bury(lease)
    with pytest.raises(InvalidInput, match="'taken', which is taken"):
        take_in(line, intake(claim(line.store), new("x"), Rejected(new("taken"))))
    assert ids(line.store.dead_letters(line.uid, limit=10)) == ["x"]


def test_controls_act_in_the_order_of_the_records(line: Line) -> None:
    held = claim(line.store)
    found = tally(
        line,
        intake(
            held,
            Cancel("x"),
            new("x", NOW + 50),
            Reschedule("x", NOW + 70),
            new("y", NOW + 50),
            Cancel("y"),
            new("y", NOW + 60),
            Reschedule("missing", NOW),
        ),
    )
    assert found == Tally(accepted=3, cancelled=1, rescheduled=1, missed=2)
    assert (line["x"].due, line["y"].due) == (NOW + 70, NOW + 60)


def test_controls_of_all_partitions_are_counted_where_they_came_from(line: Line) -> None:
    zero, one = claim(line.store, 0), claim(line.store, 1)
    taken = take_in(
        line,
        intake(zero, new("a"), Cancel("b"), Reschedule("a", NOW + 70), Reschedule("a", NOW + 80)),
        intake(one, new("b"), Reschedule("c", NOW + 70), Cancel("b"), Rejected(new("d"))),
    )
    assert [each.tally for each in taken] == [
        Tally(accepted=1, cancelled=1, rescheduled=2),
        Tally(accepted=1, missed=2, rejected=1),
    ]
    assert line["a"].due == NOW + 80
    assert ids_of(line, ["b"]) == set()


# Early cancels

WAIT_MS = 5_000


def test_early_cancel_withdraws_creates_of_other_partitions(line: Line) -> None:
    zero, one = claim(line.store, 0), claim(line.store, 1)
    assert tally(line, intake(zero, Cancel("x", WAIT_MS))) == Tally(missed=1)
    line.now += WAIT_MS - 1
    assert tally(line, intake(one, new("x"), new("y"), new("x"))) == Tally(accepted=1, withdrawn=2)
    assert ids_of(line, ["x", "y"]) == {"y"}
    line.now += 1
    assert tally(line, intake(one, new("x"), first=3)) == Tally(accepted=1)
    accounts = {each.partition: each.tally for each in line.store.input_accounts(SOURCE)}
    assert accounts == {0: Tally(missed=1), 1: Tally(accepted=2, withdrawn=2)}


def test_create_from_the_partition_of_an_early_cancel_is_new(line: Line) -> None:
    zero, one = claim(line.store, 0), claim(line.store, 1)
    found = tally(line, intake(zero, Cancel("x", WAIT_MS), new("x", body=b"1"), new("x")))
    assert found == Tally(missed=1, accepted=1, ignored=1)
    assert tally(line, intake(one, new("x"), Cancel("x", WAIT_MS))) == Tally(ignored=1, cancelled=1)
    assert tally(line, intake(one, new("x"), first=2)) == Tally(accepted=1)


def test_cancel_of_what_was_there_does_not_wait(make_line: MakeLine) -> None:
    line = make_line(dedupe_ms=60_000)
    zero, one = claim(line.store, 0), claim(line.store, 1)
    take_in(line, intake(one, new("fired"), new("cancelled", NOW + 9)))
    line.ack(line.take())
    twice = [Cancel("cancelled", WAIT_MS)] * 2
    found = tally(line, intake(zero, *twice, Cancel("fired", WAIT_MS)))
    assert found == Tally(cancelled=1, missed=2)
    again = intake(one, new("fired"), new("cancelled"), first=2)
    assert tally(line, again) == Tally(ignored=2)


def test_leased_message_is_not_marked(line: Line) -> None:
    line.put("x")
    lease = line.take()
    assert tally(line, intake(claim(line.store), Cancel("x", WAIT_MS))) == Tally(missed=1)
    assert line.ack(lease) == ["done"]
    assert tally(line, intake(claim(line.store, 1), new("x"))) == Tally(accepted=1)


def test_later_early_cancel_waits_anew(line: Line) -> None:
    zero, one = claim(line.store, 0), claim(line.store, 1)
    take_in(line, intake(zero, Cancel("x", WAIT_MS)))
    line.now += WAIT_MS - 1
    take_in(line, intake(one, Cancel("x", WAIT_MS)))
    line.now += 1
    assert tally(line, intake(zero, new("x"), first=1)) == Tally(withdrawn=1)
    assert tally(line, intake(one, new("x"), first=1)) == Tally(accepted=1)


def test_id_of_an_early_cancel_is_taken_for_others(line: Line) -> None:
    take_in(line, intake(claim(line.store), Cancel("x", WAIT_MS)))
    assert line.create(new("x")) == ["exists"]
    line.now += WAIT_MS
    assert line.create(new("x")) == ["done"]


def test_early_cancel_leaves_nothing_behind(line: Line) -> None:
    take_in(line, intake(claim(line.store), Cancel("x", 1)))
    assert line.store.purge(now_ms=NOW + 1) == 0
    assert line.store.purge(now_ms=NOW + 10_000) == 1


def test_a_cancel_waits_for_a_minute_at_most(line: Line) -> None:
    for wait_ms in (-1, 60_001):
        with pytest.raises(InvalidInput, match="wait_ms"):
            take_in(line, intake(claim(line.store), Cancel("x", wait_ms)))


def test_early_cancel_meets_a_create_that_comes_at_the_same_moment(
    line: Line, other_store: Store
) -> None:
    other = Line(other_store, line.topic)
    zero, one = claim(line.store, 0), claim(line.store, 1)
    tallies = []
    with ThreadPoolExecutor(2) as threads:
        for number in range(30):
            create = intake(zero, new(f"m{number}", NOW + 9), first=number)
            cancel = intake(one, Cancel(f"m{number}", WAIT_MS), first=number)
            both = [threads.submit(tally, line, create), threads.submit(tally, other, cancel)]
            tallies += [each.result(timeout=30) for each in both]
    total = sum(tallies, Tally())
    assert (total.accepted, total.withdrawn) == (total.cancelled, total.missed)
    assert total.accepted + total.withdrawn == 30
    assert line.next_ts() is None


def test_control_of_leased_or_foreign_messages_is_missed(line: Line) -> None:
    held = claim(line.store)
    line.put("leased")
    line.reserve()
    line.put("theirs", due=NOW + 9, producer_group="others")
    found = tally(line, intake(held, Cancel("leased"), Reschedule("theirs", NOW), Cancel("theirs")))
    assert found == Tally(missed=3)
    assert ids_of(line, ["leased", "theirs"]) == {"leased", "theirs"}


def test_rejected_record_may_exceed_the_size_limits(line: Line) -> None:
    held = claim(line.store)
    headers = tuple((f"h{n}", b"x") for n in range(300))
    letter = new("bad", key=b"k" * 70_000, headers=headers, body=None)
    assert tally(line, intake(held, Rejected(letter), new("good"))) == Tally(accepted=1, rejected=1)
    (dead,) = line.store.dead_letters(line.uid, limit=10)
    assert (dead.message.id, dead.reason, dead.died) == ("bad", "rejected", NOW)
    assert (dead.message.key, dead.message.headers) == (letter.key, headers)
    assert line.reserved() == ["good"]


def test_rejected_record_does_not_replace_a_message(line: Line) -> None:
    held = claim(line.store)
    line.put("x")
    with pytest.raises(InvalidInput, match="'x', which is taken"):
        take_in(line, intake(held, new("y"), Rejected(new("x"))))
    assert positions(line.store) == {0: 0}
    assert ids_of(line, ["x", "y"]) == {"x"}


def test_partitions_are_taken_in_together(line: Line) -> None:
    zero, one = claim(line.store, 0), claim(line.store, 1)
    take_in(line, Intake(one, [], 0, 40))
    taken = take_in(
        line, intake(zero, new("a"), new("b")), intake(one, new("b"), new("c"), first=40)
    )
    assert [each.tally for each in taken] == [Tally(accepted=2), Tally(accepted=1, ignored=1)]
    assert positions(line.store) == {0: 2, 1: 42}


def test_empty_range_moves_the_position_forward_only(line: Line) -> None:
    held = claim(line.store)
    assert tally(line, Intake(held, [], 0, 100)) == Tally()
    assert tally(line, Intake(held, [], 0, 50)) == Tally()
    assert positions(line.store) == {0: 100}
    assert take_in(line) == []


def test_missing_offsets_of_a_range_are_passed(line: Line) -> None:
    held = claim(line.store)
    take_in(line, Intake(held, [InputRecord(3, new("x"))], 0, 9))
    assert positions(line.store) == {0: 9}


def test_an_account_names_the_live_claim(store: Store) -> None:
    held = claim(store)
    (account,) = store.input_accounts(SOURCE)
    assert account.claim_of(SOURCE, "a", held.until_ms - 1) == held
    assert account.claim_of(SOURCE, "a", held.until_ms) is None
    assert account.claim_of(SOURCE, "b", NOW) is None
    store.release_claims([held])
    (account,) = store.input_accounts(SOURCE)
    assert account.claim_of(SOURCE, "a", NOW) is None


# Refusals: nothing is changed


def test_a_gap_before_the_records_is_refused(line: Line) -> None:
    good, late = claim(line.store, 0), claim(line.store, 1)
    take_in(line, intake(late, new("first")))
    with pytest.raises(InputGap, match="up to offset 1, and was read from 2: read it again from 1"):
        take_in(line, intake(good, new("x")), intake(late, new("y"), first=2))
    with pytest.raises(InputGap):
        take_in(line, Intake(late, [], 2, 9))
    assert positions(line.store) == {0: 0, 1: 1}
    assert ids_of(line, ["x", "y"]) == set()


@pytest.mark.parametrize("how", ["ended", "taken over", "claimed again", "released"])
def test_without_a_live_claim_nothing_is_taken_in(line: Line, how: str) -> None:
    good, lost = claim(line.store, 0), claim(line.store, 1)
    match how:
        case "ended":
            line.now = lost.until_ms
            (good,) = line.store.renew_claims([good], until_ms=UNTIL + 99, now_ms=NOW)
        case "taken over":
            line.now = lost.until_ms
            (good,) = line.store.renew_claims([good], until_ms=UNTIL + 99, now_ms=NOW)
            claim(line.store, 1, "b", now=line.now)
        case "claimed again":
            claim(line.store, 1)
        case "released":
            line.store.release_claims([lost])
    with pytest.raises(ClaimLost, match="partition 1 of 'pipe/orders' is no longer 'a'"):
        take_in(line, intake(good, new("x"), Rejected(new("r"))), intake(lost, new("y")))
    assert positions(line.store) == {0: 0, 1: 0}
    assert ids_of(line, ["x", "y"]) == set()
    assert line.store.dead_letters(line.uid, limit=1) == []


@pytest.mark.parametrize(
    ("bad", "match"),
    [
        (new("x", -1), "not between 1970"),
        (NewMessage(id="", due=NOW), "id is empty"),
        (Cancel(""), "id is empty"),
        (Reschedule("x", -1), "not between 1970"),
        (Rejected(new("x", body=b"x" * (64 * 1024 * 1024 + 1))), "at most"),
        (Rejected(new("x", headers=(("n" * 65_536, b""),))), "a header name has 65536 bytes"),
        (Rejected(new("x", headers=(("\ud800", b""),))), "a header name is not valid UTF-8"),
    ],
)
def test_an_invalid_record_changes_nothing(line: Line, bad: Entry, match: str) -> None:
    held = claim(line.store)
    with pytest.raises(InvalidInput, match=match):
        take_in(line, intake(held, new("before"), Cancel("before"), bad))
    assert positions(line.store) == {0: 0}
    assert line.store.input_accounts(SOURCE)[0].tally == Tally()


def test_a_deleted_topic_takes_nothing_in(line: Line) -> None:
    held = claim(line.store)
    line.store.delete_topic(line.uid, now_ms=NOW)
    with pytest.raises(TopicNotFound):
        take_in(line, Intake(held, [InputRecord(0, new("x"))], 0, 1))
    assert positions(line.store) == {0: 0}


def test_bad_input_is_refused_with_a_reason(line: Line) -> None:
    held = claim(line.store)
    with pytest.raises(InvalidInput, match="offset must be a whole number from 0 to 0, not 1"):
        take_in(line, Intake(held, [InputRecord(1, new("x"))], 0, 1))
    with pytest.raises(InvalidInput, match="a partition is there twice"):
        take_in(line, intake(held), intake(held))
    with pytest.raises(InvalidInput, match="at most 10000 records"):
        take_in(line, intake(held, *[Cancel("x")] * 10_001))
    with pytest.raises(InvalidInput, match="partition must be a whole number"):
        line.store.claim_inputs(SOURCE, {-1: 0}, "a", until_ms=UNTIL, now_ms=NOW)
    with pytest.raises(InvalidInput, match="source is empty"):
        line.store.claim_inputs("", {0: 0}, "a", until_ms=UNTIL, now_ms=NOW)
    assert line.store.claim_inputs(SOURCE, {}, "a", until_ms=UNTIL, now_ms=NOW) == []


# Watches


def test_watches_wake_after_an_intake_commits(line: Line, other_store: Store) -> None:
    held = claim(line.store)
    with other_store.watch() as watch:
        take_in(line, intake(held, new("x", NOW + 5), Reschedule("x", NOW + 3)))
        seen: list[int | None] = []
        while not any(due is None or due <= NOW + 3 for due in seen):
            heard = watch.wait(60)
            assert heard, "the watch heard nothing"
            seen += [notice.due for notice in heard]
    assert other_store.next_ts(line.uid, line.topic.all_buckets) == NOW + 3
