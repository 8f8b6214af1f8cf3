"""Schedules: one write for each state, and each occurrence once."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from chronoline.core.errors import InvalidInput, TopicNotFound
from chronoline.core.message import NewMessage
from chronoline.core.schedule import (
    MAX_CONTENT_BYTES,
    CatchUpRule,
    Recurrence,
    Schedule,
    occurrence,
    occurrence_id,
)
from chronoline.stores.contract import Store
from chronoline.stores.engine import FLOOR_KEPT_MS
from chronoline.stores.schedules import SchedulePlace, ScheduleStep, Stepped
from tests.stores.line import NOW, Line, MakeLine

DAY_MS = 86_400_000
HOURLY = Recurrence(cron="0 * * * *", zone="Europe/Berlin")


@pytest.fixture(autouse=True)
def _none(store: Store) -> None:
    """No schedules of other tests in a shared database."""
    for found in store.list_schedules(limit=1_000):
        store.delete_schedule(found, now_ms=NOW)


def schedule(line: Line, name: str = "report", **given: Any) -> Schedule:
    made = Schedule(name=name, topic_uid=line.topic.uid, recurrence=HOURLY, next_ms=NOW + 1_000)
    return replace(made, **given)


def put(store: Store, new: Schedule, **given: Any) -> Schedule:
    made = store.put_schedule(new, now_ms=NOW, **given)
    assert made is not None
    return made


def step(store: Store, of: Schedule, *times_ms: int, now: int = NOW) -> Stepped:
    """Creates occurrences, and moves the schedule an hour on."""
    messages = [occurrence(of, each, now) for each in times_ms]
    next_ms = None if of.next_ms is None else of.next_ms + 3_600_000
    (stepped,) = store.step_schedules([ScheduleStep(of, next_ms, messages)], now_ms=now)
    return stepped


def on_timeline(store: Store, line: Line, *times_ms: int) -> set[int]:
    ids = {occurrence_id("report", each): each for each in times_ms}
    return {ids[each] for each in store.lookup(line.topic.uid, list(ids))}


def test_a_schedule_is_read_as_it_was_written(store: Store, other_store: Store, line: Line) -> None:
    given = schedule(
        line,
        recurrence=Recurrence(every_ms=90_000, start_ms=NOW),
        catch_up=CatchUpRule.ALL,
        producer_group="billing",
        body=b"\0x",
        key=b"k",
        headers=(("a", b"1"), ("a", None)),
        made_ms=NOW,
    )
    made = put(store, given)
    assert made == replace(given, uid=made.uid, version=1)
    assert other_store.find_schedule("report") == made
    assert other_store.list_schedules(limit=10) == [replace(made, body=None)]
    assert store.find_schedule("another") is None


def test_a_name_is_taken_until_the_schedule_or_its_topic_is_deleted(
    store: Store, line: Line, make_line: MakeLine
) -> None:
    first = put(store, schedule(line))
    assert store.put_schedule(schedule(line), now_ms=NOW) is None
    assert store.delete_schedule(first, now_ms=NOW)
    second = put(store, schedule(line))
    assert second.uid != first.uid
    other = make_line()
    store.delete_topic(line.topic.uid, now_ms=NOW)
    assert store.find_schedule("report") is None
    assert store.list_schedules(limit=10) == []
    assert not step(store, second, NOW + 1_000).done
    with pytest.raises(TopicNotFound):
        store.put_schedule(schedule(line, "another"), now_ms=NOW)
    assert put(store, schedule(other)).topic_uid == other.topic.uid


def test_schedules_of_deleted_topics_are_purged(store: Store, line: Line) -> None:
    put(store, schedule(line, next_ms=NOW))
    store.delete_topic(line.topic.uid, now_ms=NOW)
    assert [each.name for each in store.due_schedules(NOW, limit=10)] == ["report"]
    while store.purge(now_ms=NOW):
        pass
    assert store.due_schedules(NOW, limit=10) == []


def test_only_the_state_that_was_seen_is_changed(store: Store, line: Line) -> None:
    seen = put(store, schedule(line))
    changed = put(store, replace(seen, paused=True), instead_of=seen)
    assert (changed.uid, changed.version, changed.paused) == (seen.uid, 2, True)
    assert store.put_schedule(replace(seen, body=b"late"), instead_of=seen, now_ms=NOW) is None
    assert not store.delete_schedule(seen, now_ms=NOW)
    assert store.find_schedule("report") == changed
    assert store.delete_schedule(changed, now_ms=NOW)
    assert not store.delete_schedule(changed, now_ms=NOW)
    again = put(store, schedule(line))
    assert not step(store, seen, NOW + 1_000).done  # of an earlier life of the name
    assert store.find_schedule("report") == again


def test_a_step_creates_its_occurrences_and_moves_the_schedule(store: Store, line: Line) -> None:
    seen = put(store, schedule(line, headers=(("own", b"1"),), producer_group="billing"))
    assert step(store, seen, NOW + 1_000, NOW + 2_000) == Stepped(True, 2)
    found = store.find_schedule("report")
    assert found == replace(seen, next_ms=NOW + 3_601_000, version=2)
    made = store.lookup(line.topic.uid, [occurrence_id("report", NOW + 1_000)])
    (message,) = made.values()
    assert (message.due, message.producer_group) == (NOW + 1_000, "billing")
    assert [name for name, _ in message.headers] == [
        "own",
        "chronolineSchedule",
        "chronolineScheduledFor",
    ]
    assert message.id == "report@" + dict(message.headers)["chronolineScheduledFor"].decode()  # type: ignore[union-attr]  # it has a value


def test_a_second_step_from_the_same_state_changes_nothing(
    store: Store, other_store: Store, make_line: MakeLine
) -> None:
    line = make_line(dedupe_ms=0)  # no mark would tell that it was there
    seen = put(store, schedule(line))
    assert step(store, seen, NOW + 1_000).created == 1
    store.cancel(
        line.topic.uid,
        [occurrence_id("report", NOW + 1_000)],
        producer_group="default",
        now_ms=NOW,
    )
    assert step(other_store, seen, NOW + 1_000, NOW + 2_000) == Stepped(False, 0)
    assert on_timeline(store, line, NOW + 1_000, NOW + 2_000) == set()


def test_a_pause_takes_back_what_was_created_ahead(
    store: Store, other_store: Store, line: Line
) -> None:
    ahead = (NOW + 1_000, NOW + 2_000)
    step(store, put(store, schedule(line)), *ahead)
    store.reserve(
        line.topic.uid,
        line.topic.all_buckets,
        consumer="c",
        limit=1,
        lease_ms=9_000,
        now_ms=NOW + 1_000,
    )
    seen = other_store.find_schedule("report")
    assert seen is not None
    paused = put(other_store, replace(seen, paused=True), instead_of=seen, cancel=ahead)
    assert on_timeline(store, line, *ahead) == {NOW + 1_000}  # leased, so it stays
    assert not step(store, paused, NOW + 3_000).done
    assert store.due_schedules(NOW + DAY_MS, limit=10) == []
    assert store.next_schedule_ms(0) is None


def test_cancelled_occurrences_can_be_created_again_but_not_leased_ones(
    store: Store, line: Line
) -> None:
    ahead = (NOW + 1_000, NOW + 2_000)
    step(store, put(store, schedule(line)), *ahead)
    store.reserve(
        line.topic.uid,
        line.topic.all_buckets,
        consumer="c",
        limit=1,
        lease_ms=9_000,
        reserve_ahead_ms=1_000,
        now_ms=NOW,
    )
    seen = store.find_schedule("report")
    assert seen is not None
    resumed = put(store, replace(seen, body=b"new"), instead_of=seen, cancel=ahead)
    assert step(store, resumed, *ahead) == Stepped(True, 1)
    assert on_timeline(store, line, *ahead) == set(ahead)
    (leased,) = store.lookup(line.topic.uid, [occurrence_id("report", NOW + 1_000)]).values()
    assert leased.lock_consumer == "c"


def test_an_acked_occurrence_is_not_created_again(store: Store, line: Line) -> None:
    step(store, put(store, schedule(line)), NOW)
    assert line.ack(line.take()) == ["done"]
    seen = store.find_schedule("report")
    assert seen is not None
    changed = put(store, replace(seen, body=b"new"), instead_of=seen)
    assert step(store, changed, NOW, NOW + 1_000) == Stepped(True, 1)
    assert on_timeline(store, line, NOW, NOW + 1_000) == {NOW + 1_000}


def test_a_deleted_schedule_made_again_begins_behind_what_may_have_been_delivered(
    store: Store, other_store: Store, line: Line
) -> None:
    seen = put(store, schedule(line))
    assert store.schedule_floor_ms("report") == 0
    assert store.delete_schedule(seen, until_ms=NOW + 1_000, now_ms=NOW)
    assert other_store.schedule_floor_ms("report") == NOW + 1_000
    assert other_store.put_schedule(schedule(line), now_ms=NOW) is None
    made = put(other_store, schedule(line, next_ms=NOW + 1_001))
    assert (made.uid != seen.uid, made.version) == (True, 1)
    assert store.find_schedule("report") == made
    assert store.schedule_floor_ms("report") == 0


def test_a_deleted_schedule_made_again_begins_behind_what_a_consumer_holds(
    store: Store, line: Line
) -> None:
    ahead = (NOW + 2_000, NOW + 3_000, NOW + 4_000)
    step(store, put(store, schedule(line)), *ahead)
    line.reserve(ahead_ms=2_000)
    seen = store.find_schedule("report")
    assert seen is not None
    assert store.delete_schedule(seen, cancel=ahead, until_ms=NOW + 1_000, now_ms=NOW)
    assert store.schedule_floor_ms("report") == NOW + 2_000
    assert on_timeline(store, line, *ahead) == {NOW + 2_000}


def test_what_is_left_of_a_deleted_schedule_is_purged(store: Store, line: Line) -> None:
    assert store.delete_schedule(put(store, schedule(line)), until_ms=NOW, now_ms=NOW)
    assert store.due_schedules(NOW + DAY_MS, limit=10) == []
    assert store.list_schedules(limit=10) == []
    store.purge(now_ms=NOW + FLOOR_KEPT_MS - 1)
    assert store.schedule_floor_ms("report") == NOW
    store.purge(now_ms=NOW + FLOOR_KEPT_MS)
    assert store.schedule_floor_ms("report") == 0


def test_a_message_of_another_group_is_not_replaced(store: Store, line: Line) -> None:
    at = NOW - 5_000
    foreign = NewMessage(id=occurrence_id("report", at), due=NOW + 9_000, producer_group="other")
    store.create(line.topic.uid, [foreign], now_ms=NOW)
    assert step(store, put(store, schedule(line)), at) == Stepped(True, 0)
    assert store.lookup(line.topic.uid, [foreign.id])[foreign.id].due == NOW + 9_000


def test_deletion_takes_back_what_was_created_ahead(store: Store, line: Line) -> None:
    step(store, put(store, schedule(line)), NOW + 1_000)
    seen = store.find_schedule("report")
    assert seen is not None
    assert store.delete_schedule(seen, cancel=[NOW + 1_000], now_ms=NOW)
    assert on_timeline(store, line, NOW + 1_000) == set()


def test_a_schedule_moves_to_another_topic(store: Store, line: Line, make_line: MakeLine) -> None:
    step(store, put(store, schedule(line)), NOW + 1_000)
    seen = store.find_schedule("report")
    assert seen is not None
    other = make_line()
    moved = put(
        store,
        replace(seen, topic_uid=other.topic.uid),
        instead_of=seen,
        cancel=[NOW + 1_000],
    )
    step(store, moved, NOW + 1_000)
    assert on_timeline(store, line, NOW + 1_000) == set()
    assert on_timeline(store, other, NOW + 1_000) == {NOW + 1_000}


def test_schedules_are_found_by_their_next_times(store: Store, line: Line) -> None:
    times = {"a": NOW + 2, "b": NOW + 1, "c": NOW + 1, "d": NOW + 9, "ended": None}
    for name, next_ms in times.items():
        put(store, schedule(line, name, next_ms=next_ms))
    put(store, schedule(line, "paused", next_ms=NOW, paused=True))
    found = store.due_schedules(NOW + 2, limit=2)
    assert [each.name for each in found] == ["b", "c"]
    assert found[0].body == b""
    behind = SchedulePlace(NOW + 1, "c")
    assert [each.name for each in store.due_schedules(NOW + 2, after=behind, limit=2)] == ["a"]
    assert store.next_schedule_ms(NOW + 2) == NOW + 9
    assert store.next_schedule_ms(NOW + 9) is None


def test_lists_are_read_in_pages_and_by_topic(
    store: Store, line: Line, make_line: MakeLine
) -> None:
    other = make_line()
    for name in ("a", "c"):
        put(store, schedule(line, name))
    put(store, schedule(other, "b"))
    assert [each.name for each in store.list_schedules(limit=2)] == ["a", "b"]
    assert [each.name for each in store.list_schedules(after="b", limit=2)] == ["c"]
    of_topic = store.list_schedules(topic_uid=line.topic.uid, limit=9)
    assert [each.name for each in of_topic] == ["a", "c"]


def test_schedules_of_a_topic_are_counted_up_to_a_number(
    store: Store, line: Line, make_line: MakeLine
) -> None:
    for name in ("a", "b", "c"):
        put(store, schedule(line, name))
    put(store, schedule(make_line(), "d"))
    store.delete_schedule(put(store, schedule(line, "e")), now_ms=NOW)
    assert [store.count_schedules(line.uid, most=most) for most in (2, 3, 4)] == [2, 3, 3]


def test_many_schedules_of_several_topics_are_one_step(
    store: Store, line: Line, make_line: MakeLine
) -> None:
    lines = [line, make_line()]
    made = [put(store, schedule(lines[n % 2], f"s{n}")) for n in range(20)]
    gone = made[7]
    store.delete_schedule(gone, now_ms=NOW)
    steps = [
        ScheduleStep(each, NOW + DAY_MS, [occurrence(each, NOW + 1_000, NOW)]) for each in made
    ]
    done = store.step_schedules(steps, now_ms=NOW)
    assert [each.done for each in done] == [each is not gone for each in made]
    assert sum(each.created for each in done) == 19
    held = [
        store.count(each.topic.uid, each.topic.all_buckets, start=0, end=NOW + DAY_MS, now_ms=NOW)
        for each in lines
    ]
    assert sorted(each.waiting for each in held) == [9, 10]


def test_of_several_at_once_one_makes_the_step(
    store: Store, other_store: Store, make_line: MakeLine
) -> None:
    line = make_line(dedupe_ms=0)
    with ThreadPoolExecutor(4) as threads:
        for number in range(10):
            seen = put(store, schedule(line, f"s{number}"))
            stores = [store, other_store] * 2
            done = list(threads.map(lambda each, seen=seen: step(each, seen, NOW + 1_000), stores))
            assert sorted(done) == [Stepped(False, 0)] * 3 + [Stepped(True, 1)]


def test_a_pause_beside_a_step_leaves_nothing_behind(
    store: Store, other_store: Store, line: Line
) -> None:
    ahead = [NOW + 1_000]
    with ThreadPoolExecutor(2) as threads:
        for _ in range(10):
            seen = put(store, schedule(line))
            stepping = threads.submit(step, other_store, seen, NOW + 1_000)
            paused = store.put_schedule(
                replace(seen, paused=True), instead_of=seen, cancel=ahead, now_ms=NOW
            )
            # Exactly one of them saw the state of the schedule.
            assert stepping.result().done is (paused is None)
            assert on_timeline(store, line, NOW + 1_000) == (
                {NOW + 1_000} if paused is None else set()
            )
            left = store.find_schedule("report")
            assert left is not None
            assert store.delete_schedule(left, cancel=ahead, now_ms=NOW)
            assert on_timeline(store, line, NOW + 1_000) == set()


def test_a_change_wakes_those_who_sleep(store: Store, other_store: Store, line: Line) -> None:
    with store.watch() as watch:
        put(other_store, schedule(line))
        notices = watch.wait(10)
    # A process that shares a file only learns that something was changed.
    assert any(each.schedules or each.topic_uid is None for each in notices)


def test_bad_input_is_refused(store: Store, line: Line) -> None:
    with pytest.raises(InvalidInput, match="schedule name is empty"):
        put(store, schedule(line, ""))
    with pytest.raises(InvalidInput, match="cannot be printed"):
        put(store, schedule(line, "a\nb"))
    with pytest.raises(InvalidInput, match="at most 65536 bytes"):
        put(store, schedule(line, body=b"x" * (MAX_CONTENT_BYTES + 1)))
    with pytest.raises(InvalidInput, match="producer group is empty"):
        put(store, schedule(line, producer_group=""))
    made = put(store, schedule(line))
    with pytest.raises(InvalidInput, match="one of its own name"):
        put(store, schedule(line, "other"), instead_of=made)
    twice = [ScheduleStep(made, None, [])] * 2
    with pytest.raises(InvalidInput, match="one step at a time"):
        store.step_schedules(twice, now_ms=NOW)
    assert store.step_schedules([], now_ms=NOW) == []
