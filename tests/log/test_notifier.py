"""The notifier: notifications are debounced by the latency, and no event is missed."""

import http.server
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.error import HTTPError

import pytest

from chronoline.core.errors import InvalidInput, StoreUnavailable
from chronoline.log import Event, Log, NewEvent, Notification
from chronoline.log.contract import AppendNotice, LogTopic, NewChunk
from chronoline.log.index.sqlite import SqliteIndex
from chronoline.log.notifier import Notices, post_to
from chronoline.testing import ManualClock
from tests.log.internals import index_of
from tests.log.waiters import PATIENCE_S

LATENCY_MS = 100
START_MS = 1_000_000
HOUR_MS = 3_600_000


@dataclass
class Scene:
    """Producers that share an index, with simulated time and a trace of each millisecond."""

    path: Path
    now_ms: int = START_MS
    trace: list[str] = field(default_factory=list)
    broken: int = 0
    """The number of notifications that fail from now on."""

    def __post_init__(self) -> None:
        self.topic = LogTopic(uid=1, name="t", partitions=1)
        self.index = SqliteIndex(str(self.path / "index.db"))
        self.index.create_topic(self.topic)
        self._objects = 0
        self.producers: dict[str, Notices] = {}

    def at(self, ms: int) -> None:
        """Advances the time; each producer does its duties when they are due."""
        target = START_MS + ms
        while True:
            waits = [n for p in self.producers.values() if (n := p.next_ms()) is not None]
            upcoming = min(waits, default=target + 1)
            if upcoming > target:
                break
            self.now_ms = max(self.now_ms, upcoming)
            for producer in list(self.producers.values()):
                for duty in producer.due(self.now_ms):
                    producer.work(duty, self.now_ms)
        self.now_ms = target

    def append(self, producer: str) -> None:
        """PRODUCE: the commit, then the TRIGGER."""
        self.commit()
        self.trigger(producer)

    def commit(self) -> None:
        self._objects += 1
        self.index.commit(f"object-{self._objects}", [NewChunk(1, 0, 1, 0, 1)], now_ms=self.now_ms)

    def trigger(self, producer: str) -> None:
        notices = self.producers.setdefault(
            producer,
            Notices(self.index, self._teller(producer), max_latency_ms=LATENCY_MS),
        )
        notices.appended([(self.topic, 0)], self.now_ms)
        self.at(self.now_ms - START_MS)

    def die(self, producer: str) -> None:
        del self.producers[producer]

    def _teller(self, producer: str) -> Callable[[Notification], None]:
        def tell(notification: Notification) -> None:
            at = self.now_ms - START_MS
            if self.broken:
                self.broken -= 1
                self.trace.append(f"{at}: {producer} fails")
                raise OSError("nobody answers")
            self.trace.append(f"{at}: {producer} tells of {notification.sequence}")

        return tell


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path)
    yield scene
    scene.index.close()


def test_the_first_event_is_notified_at_once(scene: Scene) -> None:
    scene.append("a")
    scene.at(1_000)
    assert scene.trace == ["0: a tells of 1"]


def test_events_within_the_latency_share_a_notice(scene: Scene) -> None:
    scene.append("a")
    for ms in (10, 20, 99):
        scene.at(ms)
        scene.append("a")
    scene.at(1_000)
    assert scene.trace == ["0: a tells of 1", "100: a tells of 4"]


def test_one_producer_waits_for_all(scene: Scene) -> None:
    scene.append("a")
    scene.at(10)
    scene.append("b")
    scene.at(1_000)
    assert scene.trace == ["0: a tells of 1", "100: a tells of 2"]


def test_a_long_stream_is_notified_once_for_each_latency(scene: Scene) -> None:
    for ms in range(0, 400, 10):
        scene.at(ms)
        scene.append("ab"[ms // 10 % 2])
    scene.at(1_000)
    moments = [int(line.split(":")[0]) for line in scene.trace]
    assert moments == [0, 100, 200, 300, 400]
    assert scene.trace[-1] == "400: a tells of 40"


def test_event_after_a_pause_is_notified_at_once(scene: Scene) -> None:
    scene.append("a")
    scene.at(500)
    scene.append("b")
    scene.at(1_000)
    assert scene.trace == ["0: a tells of 1", "500: b tells of 2"]


def test_event_after_the_last_look_starts_a_notice(scene: Scene) -> None:
    scene.append("a")
    scene.at(100)  # a has looked, found nothing, and ended its wait in the same write
    scene.append("b")
    scene.at(1_000)
    assert scene.trace == ["0: a tells of 1", "100: b tells of 2"]


def test_last_look_sees_an_untriggered_event(
    scene: Scene,
) -> None:
    scene.append("a")
    scene.at(99)
    scene.commit()  # its producer is slow, and triggers only later
    scene.at(100)
    scene.trigger("b")
    scene.at(1_000)
    assert scene.trace == ["0: a tells of 1", "100: a tells of 2"]


def test_dead_waiter_is_replaced(scene: Scene) -> None:
    scene.append("a")
    scene.at(10)
    scene.append("b")
    scene.die("a")
    scene.at(1_000)
    assert scene.trace == ["0: a tells of 1", "100: b tells of 2"]


def test_when_all_have_died_the_next_start_tells(scene: Scene) -> None:
    scene.append("a")
    scene.at(10)
    scene.commit()
    scene.die("a")
    scene.at(5_000)
    assert scene.index.untold(1) == [0]
    scene.trigger("c")
    scene.at(9_000)
    assert scene.trace == ["0: a tells of 1", "5000: c tells of 2"]
    assert scene.index.untold(1) == []


def test_failed_notifier_is_called_with_the_newest_sequence(scene: Scene) -> None:
    scene.broken = 2
    scene.append("a")
    scene.at(150)
    scene.append("a")
    scene.at(5_000)
    assert scene.trace == ["0: a fails", "200: a fails", "600: a tells of 2"]


def test_trigger_without_an_append_keeps_the_waiter(scene: Scene) -> None:
    scene.append("a")
    scene.at(10)
    scene.trigger("a")  # of an append that failed
    scene.at(1_000)
    assert scene.trace == ["0: a tells of 1"]


def test_trigger_during_a_notification_keeps_its_notice(scene: Scene) -> None:
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


def test_partition_has_one_notification_in_work(tmp_path: Path) -> None:
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


def test_duty_is_due_after_clock_rollback(scene: Scene) -> None:
    scene.append("a")
    notices = scene.producers["a"]
    assert notices.due(START_MS + LATENCY_MS - 1) == []
    (duty,) = notices.due(START_MS - HOUR_MS)
    assert duty.notice is not None


def test_an_index_that_does_not_answer_is_asked_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as away:
        away.setattr(scene.index, "begin_notice", _unavailable)
        scene.append("a")
    scene.at(5_000)
    assert scene.trace == ["200: a tells of 1"]


def _unavailable(*_: object, **__: object) -> None:
    raise StoreUnavailable


def test_wait_for_a_fast_clock_does_not_spin(scene: Scene) -> None:
    latency_ms = 60_000
    scene.commit()
    began = scene.index.begin_notice(1, 0, max_latency_ms=latency_ms, now_ms=START_MS + 5_000)
    assert isinstance(began, AppendNotice)
    notices = Notices(scene.index, lambda _: None, max_latency_ms=latency_ms)
    notices.appended([(scene.topic, 0)], START_MS)
    (duty,) = notices.due(START_MS)
    notices.work(duty, START_MS)
    assert notices.next_ms() == began.since_ms + latency_ms
    assert notices.due(START_MS + 1) == []


# Remaining events


def test_remaining_events_are_notified_after_the_wait(scene: Scene) -> None:
    scene.append("a")
    scene.producers["a"].tell_again(scene.topic, 0, 0, scene.now_ms)
    scene.at(1_000)
    assert scene.trace == ["0: a tells of 1", "100: a tells of 1"]


def test_remaining_events_are_notified_at_once_after_a_pause(scene: Scene) -> None:
    scene.append("a")
    scene.at(1_000)
    scene.producers["a"].tell_again(scene.topic, 0, 0, scene.now_ms)
    scene.at(2_000)
    assert scene.trace == ["0: a tells of 1", "1000: a tells of 1"]


@pytest.mark.parametrize("waiting", [True, False])
def test_remaining_events_of_a_dead_reader_are_notified(scene: Scene, waiting: bool) -> None:
    scene.append("a")
    if not waiting:
        scene.at(500)
    reader = Notices(scene.index, lambda _: None, max_latency_ms=LATENCY_MS)
    reader.tell_again(scene.topic, 0, 0, scene.now_ms)
    del reader
    scene.at(1_000)
    assert len(scene.trace) == (2 if waiting else 1)
    assert scene.index.untold(1) == ([] if waiting else [0])


@pytest.mark.parametrize("waiting", [True, False])
def test_remaining_events_are_notified_after_an_index_failure(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, waiting: bool
) -> None:
    scene.append("a")
    if not waiting:
        scene.at(500)
    with monkeypatch.context() as away:
        away.setattr(scene.index, "untell", _unavailable)
        scene.producers["a"].tell_again(scene.topic, 0, 1, scene.now_ms)
        scene.producers["a"].tell_again(scene.topic, 0, 0, scene.now_ms)
    scene.at(5_000)
    assert [told.partition(": ")[2] for told in scene.trace] == ["a tells of 1"] * 2


def test_remaining_events_are_notified_at_the_next_start(url: str) -> None:
    def down(notification: Notification) -> None:
        raise OSError("nobody answers")

    with Log(url, notifier=lambda _: None) as log:
        log.create_topic("t", partitions=1)
        log.append_many("t", [NewEvent(value=b"") for _ in range(10)])
    with Log(url, notifier=down) as log:
        assert not log.read_until_current("t", "g", 0, lambda _: None, time_limit_s=0).current
    told: list[Notification] = []
    heard = threading.Event()

    def tell(notification: Notification) -> None:
        told.append(notification)
        heard.set()

    with Log(url, notifier=tell):
        assert heard.wait(PATIENCE_S)
    assert told == [Notification(topic="t", partition=0, sequence=10)]


def test_close_sends_waiting_notices(url: str) -> None:
    told: list[Notification] = []
    with Log(url, notifier=told.append, max_latency_ms=60_000) as log:
        log.create_topic("t", partitions=1)
        log.append("t", value=b"1")
        log.append("t", value=b"2")
    assert told[-1] == Notification(topic="t", partition=0, sequence=2)
    with Log(url, notifier=told.append) as log:
        assert index_of(log).untold(log.topic("t").uid) == []


def test_opening_a_log_sends_untold_notices(url: str) -> None:
    with Log(url) as log:
        log.create_topic("t", partitions=1)
        log.append("t", value=b"1")
    told = threading.Event()
    with Log(url, notifier=lambda _: told.set()):
        assert told.wait(60)


def test_slow_notifier_delays_no_other_partition(url: str) -> None:
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
        for _ in range(20):  # more than there are notifier threads
            clock.advance(10)
            log.append("t", value=b"", partition=0)
        log.append("t", value=b"", partition=1)
        try:
            assert told.wait(PATIENCE_S)
        finally:
            release.set()


def test_second_notice_is_sent_after_clock_rollback(url: str) -> None:
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


def test_post_starts_a_function_that_catches_up(url: str) -> None:
    done = threading.Event()
    read: list[bytes | None] = []
    statuses = iter([503, 200])

    class Function(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            started = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status = next(statuses, 200)
            if status == 200:
                with Log(url) as log:
                    log.read_until_current(started["topic"], "g", started["partition"], take)
            self.send_response(status)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    def take(event: Event) -> None:
        read.append(event.value)
        if len(read) == 3:
            done.set()

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Function) as server:
        threading.Thread(target=server.serve_forever).start()
        notifier = f"http://127.0.0.1:{server.server_port}/start"
        with Log(url, notifier=notifier, max_latency_ms=10) as log:
            log.create_topic("t", partitions=1)
            log.append_many("t", [NewEvent(value=str(n).encode()) for n in range(3)])
            assert done.wait(60)
        server.shutdown()
    assert read == [b"0", b"1", b"2"]


@pytest.mark.parametrize("url", ["ftp://somewhere", "nowhere", "http://"])
def test_a_notifier_that_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match="callable or an http"):
        post_to(url)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirect_counts_as_a_failed_notification(status: int) -> None:
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
