"""Topics that change: pauses, and settings by compare-and-swap on a revision."""

from dataclasses import replace

import pytest

from chronoline.core.errors import InvalidInput, TopicChanged, TopicNotFound
from chronoline.core.topic import Pause
from chronoline.stores.contract import Notice, Recipient, Store
from tests.stores.line import LEASE_MS, NOW, Line, MakeLine, new, words


def test_new_topic_is_not_paused(line: Line) -> None:
    assert (line.topic.revision, line.topic.pause) == (1, None)
    assert line.store.changed_topics() == []


def test_pause_is_seen_by_every_store_of_a_database(line: Line, other_store: Store) -> None:
    paused = line.store.pause_topic(line.uid, by="ada", reason="too many mails", now_ms=NOW)
    assert paused.pause == Pause(since=NOW, by="ada", reason="too many mails")
    assert paused.revision == 2
    assert other_store.get_topic(line.uid) == paused
    assert other_store.changed_topics() == other_store.list_topics() == [paused]


def test_repeated_pause_keeps_its_beginning(line: Line) -> None:
    line.store.pause_topic(line.uid, reason="first", now_ms=NOW)
    again = line.store.pause_topic(line.uid, by="bo", reason="second", now_ms=NOW + 5)
    assert again.pause == Pause(since=NOW, by="bo", reason="second")
    same = line.store.pause_topic(line.uid, by="bo", reason="second", now_ms=NOW + 9)
    assert same == again


def test_paused_topic_grants_no_lease(line: Line) -> None:
    version = line.put("a", "b").version
    line.store.pause_topic(line.uid, now_ms=NOW)
    grant = line.reserve()
    assert (grant.leased, grant.more, grant.clear_ms) == ((), False, 0)
    recipient = Recipient("c", "", line.topic.all_buckets, 10)
    (for_one,) = line.store.reserve_for(line.uid, [recipient], lease_ms=LEASE_MS, now_ms=NOW)
    assert for_one.leased == ()
    assert words(line.lease(("b", version)).refused) == ["paused"]
    assert line.next_ts() is None
    line.store.resume_topic(line.uid, now_ms=NOW)
    assert line.next_ts() == NOW
    assert sorted(line.reserved()) == ["a", "b"]


def test_pause_of_one_topic_spares_the_others(make_line: MakeLine) -> None:
    paused, served = make_line(), make_line()
    paused.store.pause_topic(paused.uid, now_ms=NOW)
    served.put("a")
    assert served.reserved() == ["a"]


def test_held_leases_go_on_during_a_pause(line: Line) -> None:
    line.put("a", "b", "c", "d")
    leases = {each.lease.id: each.lease for each in line.reserve().leased}
    line.store.pause_topic(line.uid, now_ms=NOW)
    assert line.extend(leases["a"], NOW + 2 * LEASE_MS) == "done"
    assert line.ack(leases["b"]) == ["done"]
    assert line.retry(leases["c"], NOW + 50) == "done"
    assert line.unreserve(leases["d"]) == ["done"]
    assert len(line.resume().leased) == 1


def test_producers_and_owners_go_on_during_a_pause(line: Line) -> None:
    line.store.pause_topic(line.uid, now_ms=NOW)
    line.put("a", "b")
    assert line.reschedule(("a", NOW + 5)) == ["done"]
    assert line.cancel("b") == ["done"]


def test_message_that_expired_in_a_pause_dies_after_it(line: Line) -> None:
    line.put("a", expires=NOW + 10)
    line.store.pause_topic(line.uid, now_ms=NOW)
    line.now += 20
    assert line.reserved() == []
    assert line.dead() == []
    line.store.resume_topic(line.uid, now_ms=line.now)
    assert line.reserved() == []
    assert [each.reason for each in line.dead()] == ["expired"]


@pytest.mark.parametrize("fields", [{"by": "x" * 256}, {"reason": "x" * 1_001}, {"by": "a\0"}])
def test_bad_pause_is_refused(line: Line, fields: dict[str, str]) -> None:
    with pytest.raises(InvalidInput):
        line.store.pause_topic(line.uid, now_ms=NOW, **fields)
    assert line.store.changed_topics() == []


def test_deleted_topic_is_neither_paused_nor_changed(line: Line) -> None:
    line.store.delete_topic(line.uid, now_ms=NOW)
    with pytest.raises(TopicNotFound):
        line.store.pause_topic(line.uid, now_ms=NOW)
    with pytest.raises(TopicNotFound):
        line.store.resume_topic(line.uid, now_ms=NOW)
    with pytest.raises(TopicNotFound):
        line.store.change_topic(line.uid, line.topic.settings, now_ms=NOW)


def test_watches_hear_of_changed_topics(line: Line) -> None:
    with line.store.watch() as watch:
        line.store.pause_topic(line.uid, now_ms=NOW)
        heard: list[Notice] = []
        while Notice(topic_uid=line.uid, topic_changed=True) not in heard:
            heard += watch.wait(10)  # perhaps first that it listens now
        line.store.resume_topic(line.uid, now_ms=NOW)
        heard = []
        while Notice(topic_uid=line.uid, due=0) not in heard:
            heard += watch.wait(10)
        assert Notice(topic_uid=line.uid, topic_changed=True) in heard


def test_settings_change_for_every_store(line: Line, other_store: Store) -> None:
    other_store.reserve(
        line.uid, line.topic.all_buckets, consumer="c", limit=1, lease_ms=LEASE_MS, now_ms=NOW
    )  # it knows the topic from now on
    settings = replace(line.topic.settings, max_attempts=1, dedupe_ms=0)
    changed = line.store.change_topic(line.uid, settings, revision=1, now_ms=NOW)
    assert (changed.settings, changed.revision) == (settings, 2)
    assert line.store.find_topic(line.topic.name) == changed
    line.put("a")
    later = NOW + 2_000  # by then each process uses them
    other = Line(other_store, line.topic, later)
    assert other.retry(other.take(), later + 50) == "done"
    assert [each.reason for each in other.dead()] == ["attempts"]


def test_only_one_of_two_changes_of_a_revision_is_made(line: Line, other_store: Store) -> None:
    settings = replace(line.topic.settings, max_attempts=3)
    line.store.change_topic(line.uid, settings, revision=1, now_ms=NOW)
    with pytest.raises(TopicChanged, match="has revision 2, not 1"):
        other_store.change_topic(
            line.uid, replace(settings, max_attempts=4), revision=1, now_ms=NOW
        )
    assert line.store.get_topic(line.uid).settings == settings


def test_pause_and_settings_do_not_undo_each_other(line: Line) -> None:
    line.store.pause_topic(line.uid, reason="x", now_ms=NOW)
    changed = line.store.change_topic(
        line.uid, replace(line.topic.settings, max_attempts=3), now_ms=NOW
    )
    assert changed.pause == Pause(since=NOW, reason="x")
    resumed = line.store.resume_topic(line.uid, now_ms=NOW)
    assert (resumed.settings.max_attempts, resumed.pause) == (3, None)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"buckets": 3}, "buckets never changes: the bucket of each message follows from it"),
        ({"window_ms": 100}, "window_ms never changes"),
        ({"target": "https://example.com/x"}, "only the URL of a target changes"),
    ],
)
def test_fixed_settings_are_refused_with_the_reason(
    line: Line, fields: dict[str, object], problem: str
) -> None:
    settings = replace(line.topic.settings, **fields)  # type: ignore[arg-type]  # of any kind
    with pytest.raises(InvalidInput, match=problem):
        line.store.change_topic(line.uid, settings, now_ms=NOW)
    assert line.store.get_topic(line.uid) == line.topic


def test_dead_letters_are_not_dropped_by_a_setting(make_line: MakeLine) -> None:
    line = make_line(max_attempts=1)
    line.put("a")
    assert line.retry(line.take(), NOW + 50) == "done"
    without = replace(line.topic.settings, dead_letters=False)
    with pytest.raises(InvalidInput, match="put them back or discard them first"):
        line.store.change_topic(line.uid, without, now_ms=NOW)
    assert line.discard("a") == ["done"]
    assert not line.store.change_topic(line.uid, without, now_ms=NOW).settings.dead_letters


def test_raised_dedupe_time_holds_for_what_is_deleted_then(make_line: MakeLine) -> None:
    line = make_line(dedupe_ms=0)
    line.put("a", "b")
    assert line.cancel("a") == ["done"]
    line.store.change_topic(line.uid, replace(line.topic.settings, dedupe_ms=60_000), now_ms=NOW)
    assert line.cancel("b") == ["done"]
    line.now += 10_000
    assert line.create(new("a"), new("b")) == ["done", "exists"]
