"""Topics that spread dues: the same on every engine, and in each operation that sets a due from outside."""

import pytest

from chronoline.core.change import Change
from chronoline.core.permissions import Operation
from chronoline.stores.inputs import InputRecord, Intake
from tests.stores.line import LEASE_MS, NOW, OWNERS, Line, MakeLine, new

SPREAD_MS = 60_000
IDS = [f"m{number}" for number in range(50)]
HERD = NOW + 3_600_000


@pytest.fixture
def line(make_line: MakeLine) -> Line:
    return make_line(buckets=16, spread_ms=SPREAD_MS)


def test_messages_of_one_moment_are_spread_after_it(line: Line) -> None:
    line.put(*IDS, due=HERD)
    dues = [line[each].due for each in IDS]
    assert all(HERD <= due < HERD + SPREAD_MS for due in dues)
    assert len(set(dues)) > 40
    assert all(line[each].ts == line[each].due for each in IDS)


def test_answer_of_a_create_has_the_due(line: Line) -> None:
    made = line.store.create(line.uid, [new(each, HERD) for each in IDS], now_ms=NOW)
    assert [each.at for each in made] == [line[each.id].due for each in made]


def test_repeated_create_has_the_same_due(line: Line) -> None:
    line.put("a", due=HERD)
    first = line["a"].due
    assert line.cancel("a") == ["done"]
    assert line.create(new("a", HERD), if_exists="replace") == ["done"]
    assert line["a"].due == first == line.topic.spread("a", HERD)


def test_replacement_and_reschedule_are_spread(line: Line) -> None:
    line.put("a", due=NOW)
    assert line.create(new("a", HERD), if_exists="replace") == ["done"]
    assert line["a"].due == line.topic.spread("a", HERD)
    (moved,) = line.store.reschedule(line.uid, [("a", HERD + 1)], producer_group=OWNERS, now_ms=NOW)
    assert moved.at == line["a"].due == line.topic.spread("a", HERD + 1)


def test_message_does_not_expire_by_the_spread(line: Line) -> None:
    line.put(*IDS, due=HERD, expires=HERD + 10)
    assert all(HERD <= line[each].due < HERD + 10 for each in IDS)


def test_reschedule_spreads_no_further_than_its_new_expires(line: Line) -> None:
    line.put(*IDS, due=NOW)
    ends = HERD + 10
    moves = [Change(Operation.RESCHEDULE, each, OWNERS, to=HERD, expires=ends) for each in IDS]
    assert set(line.apply(*moves)) == {"done"}
    assert all(HERD <= line[each].due < ends for each in IDS)


def test_consumer_gives_a_message_back_to_the_moment_that_it_names(line: Line) -> None:
    line.put("a", due=NOW)
    line.now = line["a"].due
    lease = line.take()
    assert line.release(lease, line.now + LEASE_MS) == "done"
    assert line["a"].due == line.now + LEASE_MS


def test_letters_that_are_put_back_together_are_spread(line: Line) -> None:
    line.put(*IDS, due=NOW)
    line.now = NOW + SPREAD_MS
    for each in line.reserve().leased:
        assert line.bury(each.lease) == "done"
    assert set(line.redrive(*IDS, due=HERD)) == {"done"}
    dues = [line[each].due for each in IDS]
    assert dues == [line.topic.spread(each, HERD) for each in IDS]


def test_records_of_inputs_are_spread(line: Line) -> None:
    (claim,) = line.store.claim_inputs("spread/in", {0: 0}, "h", until_ms=NOW + 10_000, now_ms=NOW)
    records = [InputRecord(number, new(each, HERD)) for number, each in enumerate(IDS)]
    intake = Intake(claim, records, 0, len(records))
    line.store.take_in(line.uid, [intake], producer_group=OWNERS, now_ms=NOW)
    assert [line[each].due for each in IDS] == [line.topic.spread(each, HERD) for each in IDS]
    line.store.release_claims([claim])
    assert line.store.forget_inputs("spread/in", now_ms=NOW + 20_000) == 1
