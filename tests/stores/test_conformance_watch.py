"""Watches: notices of messages that fall due soon, from the same store and from others."""

import threading
from collections.abc import Callable

import pytest

from chronoline.core.ids import bucket_of
from chronoline.stores.contract import NOTICE_HORIZON_MS, Store, Watch
from tests.stores.line import NOW, Line, MakeLine, new

PATIENCE_S = 60.0
"""Far longer than any engine needs; a wait ends at the first notice."""


def hears(watch: Watch, line: Line, due: int, message_id: str) -> bool:
    """Returns whether the watch gets a notice for `due` and the bucket of a message, or an empty notice."""
    bucket = bucket_of(message_id, line.topic.settings.buckets)
    give_up = threading.Event()
    timer = threading.Timer(PATIENCE_S, give_up.set)
    timer.start()
    try:
        while not give_up.is_set():
            for notice in watch.wait(PATIENCE_S):
                mine = notice.topic_uid in (None, line.uid)
                here = notice.buckets is None or bucket in notice.buckets
                if mine and here and (notice.due is None or notice.due <= due):
                    return True
    finally:
        timer.cancel()
    return False


def drain(watch: Watch) -> None:
    """Takes the notices so far."""
    watch.wait(0)


CHANGES: dict[str, tuple[Callable[[Line], object], int, str]] = {
    "create": (lambda line: line.create(new("new", NOW + 50)), NOW + 50, "new"),
    "create in the past": (lambda line: line.create(new("new", 0)), 0, "new"),
    "create at the horizon": (
        lambda line: line.create(new("new", NOW + NOTICE_HORIZON_MS)),
        NOW + NOTICE_HORIZON_MS,
        "new",
    ),
    "one of a batch": (
        lambda line: line.create(new("far", NOW + 10**9), new("new", NOW + 50)),
        NOW + 50,
        "new",
    ),
    "replace": (lambda line: line.create(new("far", NOW + 5), if_exists="replace"), NOW + 5, "far"),
    "reschedule": (lambda line: line.reschedule(("far", NOW + 5)), NOW + 5, "far"),
    "extend to an earlier end": (lambda line: line.extend(line.take(), NOW + 50), NOW + 50, "free"),
    "release": (lambda line: line.release(line.take(), NOW + 50), NOW + 50, "free"),
    "retry": (lambda line: line.retry(line.take(), NOW + 50), NOW + 50, "free"),
    "unreserve": (lambda line: line.unreserve(line.take()), NOW, "free"),
    "redrive": (lambda line: line.redrive("dead", due=NOW + 5), NOW + 5, "dead"),
}


def prepare(make_line: MakeLine) -> Line:
    line = make_line(max_attempts=2)
    line.put("dead")
    line.retry(line.take(), NOW + 10)
    line.now = NOW + 10
    line.retry(line.take(), NOW + 20)
    line.now = NOW
    line.put("far", due=NOW + 10**9)
    line.put("free")
    return line


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_that_falls_due_soon_is_noticed(make_line: MakeLine, change: str) -> None:
    line = prepare(make_line)
    act, due, message_id = CHANGES[change]
    with line.store.watch() as watch:
        drain(watch)
        act(line)
        assert hears(watch, line, due, message_id)


@pytest.mark.parametrize("change", CHANGES)
def test_change_of_another_store_is_noticed(
    make_line: MakeLine, other_store: Store, change: str
) -> None:
    line = prepare(make_line)
    act, due, message_id = CHANGES[change]
    with other_store.watch() as watch:
        drain(watch)
        act(line)
        assert hears(watch, line, due, message_id)


def test_every_watch_gets_the_notice(line: Line) -> None:
    with line.store.watch() as one, line.store.watch() as other:
        line.put("a")
        assert hears(one, line, NOW, "a")
        assert hears(other, line, NOW, "a")


def test_a_sleeping_watch_is_woken_by_a_change(line: Line) -> None:
    heard: list[bool] = []
    with line.store.watch() as watch:
        sleeper = threading.Thread(target=lambda: heard.append(hears(watch, line, NOW, "a")))
        sleeper.start()
        line.put("a")
        sleeper.join(2 * PATIENCE_S)
    assert heard == [True]


def test_a_wait_ends_when_its_time_is_over(store: Store) -> None:
    with store.watch() as watch:
        drain(watch)
        assert isinstance(watch.wait(0.01), list)


def test_wake_ends_a_wait_from_another_thread(store: Store) -> None:
    with store.watch() as watch:
        drain(watch)
        sleeper = threading.Thread(target=watch.wait, args=(10 * PATIENCE_S,))
        sleeper.start()
        watch.wake()
        sleeper.join(PATIENCE_S)
        assert not sleeper.is_alive()


def test_wake_ends_the_next_wait_if_nobody_waits(store: Store) -> None:
    with store.watch() as watch:
        drain(watch)
        watch.wake()
        sleeper = threading.Thread(target=watch.wait, args=(10 * PATIENCE_S,))
        sleeper.start()
        sleeper.join(PATIENCE_S)
        assert not sleeper.is_alive()


def test_close_ends_a_wait_and_may_be_called_twice(store: Store) -> None:
    watch = store.watch()
    sleeper = threading.Thread(target=watch.wait, args=(10 * PATIENCE_S,))
    sleeper.start()
    watch.close()
    sleeper.join(PATIENCE_S)
    assert not sleeper.is_alive()
    watch.close()


def test_notices_that_pile_up_stay_bounded(line: Line) -> None:
    with line.store.watch() as watch:
        for number in range(0, 1_100, 100):
            line.put(*(f"m{number + each}" for each in range(100)))
        for number in range(1_100):
            line.reschedule((f"m{number}", NOW + number))
        notices = watch.wait(PATIENCE_S)
        assert 0 < len(notices) <= 1_001
