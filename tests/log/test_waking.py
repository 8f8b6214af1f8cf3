"""Who waits is woken: readers by appends of their own process and of others, functions by notices.

Readers look every `max_latency_ms`. It is so long here that only a word of the append can wake them.
"""

import http.server
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError

import pytest

from chronoline.core.errors import OutcomeUnknown, StoreUnavailable
from chronoline.log import Event, Log, NewEvent, Notification
from chronoline.log import group_reading as group_reading_module
from chronoline.log.contract import LogTopic
from chronoline.log.notifying import Notices, post_to
from chronoline.testing import ManualClock
from tests.log.places import place
from tests.log.test_notifying import LATENCY_MS, START_MS, Scene

NEVER_MS = 60_000
PATIENCE_S = 20
HOUR_MS = 3_600_000


class Waiter:
    """A thread that reads one event, and says when it waits."""

    def __init__(self, log: Log, group: str | None) -> None:
        self.log = log
        self.found: list[Event] = []
        self.waits = threading.Event()
        """It has looked, and found nothing."""
        self.hears = threading.Event()
        """It waits, and the index tells it of other processes."""
        self._wait = log._arrivals.wait
        self._thread = threading.Thread(target=self._read, args=(group,))

    def _read(self, group: str | None) -> None:
        self.found += self.log.read("t", group=group, limit=1)

    def _signal_and_wait(self, topic_uid: int, seen: int, timeout_s: float) -> bool:
        self.waits.set()
        if self.log._index.hearing:
            self.hears.set()
        return self._wait(topic_uid, seen, timeout_s)

    def values(self) -> list[bytes | None]:
        self._thread.join(PATIENCE_S)
        return [event.value for event in self.found]

    @contextmanager
    def reading(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        monkeypatch.setattr(self.log._arrivals, "wait", self._signal_and_wait)
        self._thread.start()
        try:
            assert self.waits.wait(PATIENCE_S)
            yield
        finally:
            self.log.stop()
            self._thread.join()


@pytest.fixture(autouse=True)
def no_beats(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader of a group looks with each beat: here it has none."""
    monkeypatch.setattr(group_reading_module, "_LONGEST_BEAT_MS", NEVER_MS)


@pytest.fixture(params=[None, "g"], ids=["alone", "group"])
def group(request: pytest.FixtureRequest) -> str | None:
    return request.param  # type: ignore[no-any-return]  # one of the params above


@contextmanager
def opened(url: str, max_latency_ms: int = NEVER_MS) -> Iterator[Log]:
    with Log(url, max_latency_ms=max_latency_ms, hold_ms=10 * NEVER_MS) as log:
        log.create_topic("t", partitions=2)
        yield log


# Readers


def test_an_append_of_its_own_process_wakes_a_reader(
    url: str, group: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(url) as log:
        waiter = Waiter(log, group)
        with waiter.reading(monkeypatch):
            log.append("t", value=b"0")
            assert waiter.values() == [b"0"]


def test_an_append_of_another_process_wakes_a_reader_where_the_index_hears_of_it(
    request: pytest.FixtureRequest, group: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = place(request, "folder", "postgres")
    with opened(url) as log, Log(url) as other:
        waiter = Waiter(log, group)
        with waiter.reading(monkeypatch):
            assert waiter.hears.wait(PATIENCE_S)
            other.append("t", value=b"0")
            assert waiter.values() == [b"0"]


def test_where_the_index_hears_nothing_a_reader_looks(
    url: str, group: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(url, max_latency_ms=50) as log, Log(url) as other:
        waiter = Waiter(log, group)
        with waiter.reading(monkeypatch):
            other.append("t", value=b"0")
            assert waiter.values() == [b"0"]


@pytest.mark.parametrize("value", [b"", bytes(99)], ids=["by the writer", "by the lane"])
def test_an_append_that_is_cut_and_fails_in_part_is_told_all_the_same(
    url: str, monkeypatch: pytest.MonkeyPatch, value: bytes
) -> None:
    told: list[Notification] = []
    heard = threading.Event()

    def tell(notification: Notification) -> None:
        told.append(notification)
        heard.set()

    with Log(url, max_latency_ms=NEVER_MS, object_bytes=40, notifier=tell) as log:
        log.create_topic("t", partitions=2)
        waiter = Waiter(log, None)
        with waiter.reading(monkeypatch):
            with monkeypatch.context() as patch:
                patch.setattr(log._objects, "put", _after_one(log._objects.put))
                with pytest.raises(OutcomeUnknown, match=r"a part .* the rest is not: full"):
                    log.append_many("t", [NewEvent(value=value, partition=p) for p in (0, 1)])
            assert waiter.values() == [value]
            assert heard.wait(PATIENCE_S)
    assert told == [Notification(topic="t", partition=0, sequence=1)]


def _after_one(put: Callable[[str, bytes], None]) -> Callable[[str, bytes], None]:
    """It works once, and fails from then on."""
    puts = iter([put])

    def put_one(name: str, data: bytes) -> None:
        for each in puts:
            return each(name, data)
        raise StoreUnavailable("full")

    return put_one


def test_an_append_that_failed_as_a_whole_says_so(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = _after_one(log._objects.put)
    put("0000000000000000000before", b"")
    monkeypatch.setattr(log._objects, "put", put)
    with pytest.raises(StoreUnavailable, match="full"):
        log.append_many("t", [NewEvent(value=b"", partition=p) for p in (0, 1)])


def test_stop_ends_a_reader_that_waits(
    url: str, group: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(url) as log:
        waiter = Waiter(log, group)
        with waiter.reading(monkeypatch):
            log.stop()
            assert waiter.values() == []
            assert not waiter._thread.is_alive()


@pytest.mark.parametrize("group", [None, "g"], ids=["alone", "group"])
def test_stop_ends_a_reader_after_the_event_at_hand(log: Log, group: str | None) -> None:
    log.append_many("t", [NewEvent(value=b"", partition=0) for _ in range(5)])
    seen: list[int] = []
    for event in log.read("t", group=group):
        seen.append(event.sequence)
        if len(seen) == 2:
            log.stop()
    assert seen == [0, 1]


def test_stop_ends_catching_up_after_the_event_at_hand(log: Log) -> None:
    log.append_many("t", [NewEvent(value=b"", partition=0) for _ in range(5)])

    def handle(event: Event) -> None:
        if event.sequence == 1:
            log.stop()

    done = log.read_until_current("t", "g", 0, handle)
    assert (done.handled, done.current, done.sequence) == (2, False, 2)
    assert [(each.sequence, each.holder) for each in log.groups("t")] == [(2, None)]


# Notices


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path)
    yield scene
    scene.index.close()


def test_a_word_without_an_append_does_not_displace_the_one_who_waits(scene: Scene) -> None:
    scene.append("a")
    scene.at(10)
    scene.trigger("a")  # of an append that failed
    scene.at(1_000)
    assert scene.trace == ["0: a tells of 1"]


def test_a_word_that_comes_while_it_is_told_does_not_displace_the_teller(scene: Scene) -> None:
    told: list[int] = []

    def tell(notification: Notification) -> None:
        told.append(notification.sequence)
        notices.appended([(scene.topic, 0)], scene.now_ms)  # of an append that failed

    notices = Notices(scene.index, tell, max_latency_ms=LATENCY_MS)
    scene.commit()
    scene.producers["a"] = notices
    scene.trigger("a")
    scene.at(1_000)
    assert told == [1]
    assert scene.index.untold(scene.topic.uid) == []


def test_a_partition_that_is_being_told_of_is_in_work_once(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    notices = Notices(scene.index, lambda _: None, max_latency_ms=LATENCY_MS)
    topic = LogTopic(uid=1, name="t", partitions=2)
    notices.appended([(topic, 0)], START_MS)
    (slow,) = notices.due(START_MS)
    notices.appended([(topic, 0), (topic, 1)], START_MS)
    assert [duty.partition for duty in notices.due(START_MS + HOUR_MS)] == [1]
    assert notices.next_ms() is None  # the one that is left waits for the one in work
    notices.work(slow, START_MS)
    assert notices.next_ms() == START_MS
    assert [duty.partition for duty in notices.due(START_MS)] == [0]
    scene.index.close()


def test_a_slow_teller_keeps_no_other_partition_waiting(url: str) -> None:
    clock = ManualClock()
    slow, told, release = threading.Event(), threading.Event(), threading.Event()

    def tell(notification: Notification) -> None:
        if notification.partition == 1:
            told.set()
        else:
            slow.set()
            release.wait(PATIENCE_S)

    with Log(url, notifier=tell, max_latency_ms=10, clock=clock) as log:
        log.create_topic("t", partitions=2)
        log.append("t", value=b"", partition=0)
        assert slow.wait(PATIENCE_S)
        for _ in range(20):  # more than there are tellers
            clock.advance(10)
            log.append("t", value=b"", partition=0)
        log.append("t", value=b"", partition=1)
        try:
            assert told.wait(PATIENCE_S)
        finally:
            release.set()


def test_after_a_clock_was_put_back_a_second_notice_is_told(url: str) -> None:
    clock = ManualClock()
    told: list[int] = []
    first, second = threading.Event(), threading.Event()

    def tell(notification: Notification) -> None:
        told.append(notification.sequence)
        (first if len(told) == 1 else second).set()

    with Log(url, notifier=tell, clock=clock) as log:
        log.create_topic("t", partitions=1)
        log.append("t", value=b"")
        assert first.wait(PATIENCE_S)
        clock.set(clock.now_ms() - HOUR_MS)
        log.append("t", value=b"")
        assert second.wait(PATIENCE_S)
    assert told == [1, 2]


def test_a_duty_that_a_clock_put_back_left_far_ahead_is_due(scene: Scene) -> None:
    scene.append("a")
    notices = scene.producers["a"]
    assert notices.due(START_MS + LATENCY_MS - 1) == []
    (duty,) = notices.due(START_MS - HOUR_MS)
    assert duty.notice is not None


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_notifier_that_has_moved_was_not_told(status: int) -> None:
    asked: list[str] = []

    class Moved(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.command)
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(status if self.command == "POST" else 200)
            self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_POST

        def log_message(self, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Moved) as server:
        threading.Thread(target=server.serve_forever).start()
        tell = post_to(f"http://127.0.0.1:{server.server_port}/start")
        try:
            with pytest.raises(HTTPError) as failure:
                tell(Notification(topic="t", partition=0, sequence=1))
        finally:
            server.shutdown()
    failure.value.close()
    assert failure.value.code == status
    assert asked == ["POST"]
