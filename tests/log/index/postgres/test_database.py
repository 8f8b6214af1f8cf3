"""The index on one PostgreSQL server: lost servers, locks, and notifications between processes."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from queue import Empty, SimpleQueue
from threading import Thread

import psycopg
import pytest

from chronoline.core.errors import (
    InvalidInput,
    OutcomeUnknown,
    StoreBusy,
    StoreClosed,
    StoreUnavailable,
)
from chronoline.databases import postgres as database
from chronoline.databases import postgres_listener
from chronoline.databases.postgres import split_notify
from chronoline.log.index.postgres import PostgresIndex
from chronoline.log.index.postgres.notifications import Voice, parse_word
from chronoline.testing.postgres import PostgresServer
from tests.log.index.steps import (
    NOW,
    PATIENCE_S,
    TOPIC,
    all_chunks,
    append,
    ends,
    fill,
    merge,
    new_chunks,
    take,
)

Heard = SimpleQueue[set[int] | None]


@pytest.fixture(scope="module")
def mortal_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """A server of its own, which the test may kill."""
    with PostgresServer(tmp_path_factory.mktemp("mortal") / "data") as server:
        yield server


@pytest.fixture
def url(mortal_server: PostgresServer, request: pytest.FixtureRequest) -> str:
    """An empty database of this test."""
    return mortal_server.create_database(request.node.name[-60:])


@pytest.fixture
def index(url: str) -> Iterator[PostgresIndex]:
    with closing(PostgresIndex(url)) as index:
        index.create_topic(TOPIC)
        yield index


def wait_until_back(index: PostgresIndex) -> None:
    """Repeats a read until the index answers."""
    for _ in range(100):
        try:
            index.list_topics()
        except StoreUnavailable:
            continue
        return
    pytest.fail("the index did not come back")


@contextmanager
def paused(server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Pauses the server; the time-out of an answer is short."""
    with monkeypatch.context() as patch:
        patch.setattr(database, "ANSWER_TIMEOUT_S", 0.2)
        server.pause()
        try:
            yield
        finally:
            server.resume()


# A lost server


def test_commit_to_a_lost_server_is_settled_by_repetition(
    mortal_server: PostgresServer, index: PostgresIndex
) -> None:
    append(index, "a", {0: 2})
    mortal_server.kill()
    with pytest.raises(OutcomeUnknown):
        append(index, "b", {0: 3})
    mortal_server.start()
    wait_until_back(index)
    assert append(index, "b", {0: 3}) == [2]
    assert append(index, "a", {0: 2}) == [0]
    assert ends(index)[0] == (0, 5)


def test_lost_and_restored_connections_are_reported(
    mortal_server: PostgresServer, index: PostgresIndex, url: str
) -> None:
    heard: Heard = SimpleQueue()
    index.listen(heard.put)
    assert heard.get(timeout=PATIENCE_S) is None
    assert index.hearing
    mortal_server.kill()
    assert heard.get(timeout=PATIENCE_S) is None
    assert not index.hearing
    mortal_server.start()
    assert heard.get(timeout=PATIENCE_S) is None
    assert index.hearing
    with closing(PostgresIndex(url)) as other:
        append(other, "a", {0: 1})
    assert heard.get(timeout=PATIENCE_S) == {TOPIC.uid}


def test_commit_to_a_silent_server_happens_once(
    mortal_server: PostgresServer, index: PostgresIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(index, "a", {0: 2})
    with paused(mortal_server, monkeypatch), pytest.raises(OutcomeUnknown):
        append(index, "b", {0: 3})
    for _ in range(2):
        assert append(index, "b", {0: 3}) == [2]
    assert ends(index)[0] == (0, 5)


CHANGES: dict[str, Callable[[PostgresIndex], object]] = {
    "trim": lambda index: index.trim(TOPIC.uid, 0, before_sequence=2),
    "replace": lambda index: merge(index, all_chunks(index), "merged"),
    "sweep": lambda index: index.sweep(["a", "o0"], now_ms=NOW),
    "hold": lambda index: take(index, "a"),
    "notice": lambda index: index.begin_notice(TOPIC.uid, 0, max_latency_ms=1, now_ms=NOW),
}


@pytest.mark.parametrize("change", ["trim", "sweep", "hold", "notice"])
def test_unanswered_change_is_unknown(
    mortal_server: PostgresServer,
    index: PostgresIndex,
    monkeypatch: pytest.MonkeyPatch,
    change: str,
) -> None:
    fill(index, 4)
    with paused(mortal_server, monkeypatch), pytest.raises(OutcomeUnknown):
        CHANGES[change](index)
    CHANGES[change](index)
    assert ends(index)[0][1] == 4


def test_unanswered_read_is_unavailable(
    mortal_server: PostgresServer, index: PostgresIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    with paused(mortal_server, monkeypatch), pytest.raises(StoreUnavailable):
        index.heads(TOPIC.uid)
    assert len(index.heads(TOPIC.uid)) == 4


def test_a_closed_index_says_so(url: str) -> None:
    index = PostgresIndex(url)
    index.close()
    with pytest.raises(StoreClosed):
        index.list_topics()
    with pytest.raises(StoreClosed):
        index.trim(TOPIC.uid, 0, before_sequence=1)


# Locks


@pytest.mark.parametrize("change", ["commit", "trim", "replace"])
def test_change_that_waits_too_long_has_no_effect(
    url: str, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    # No setting: the test does not wait for the usual time.
    monkeypatch.setitem(database._SESSION_SETTINGS, "lock_timeout", "50ms")
    changes = CHANGES | {"commit": lambda index: append(index, "b", {0: 1, 1: 1})}
    with closing(PostgresIndex(url)) as index, psycopg.connect(url) as foreign:
        index.create_topic(TOPIC)
        chunks = fill(index, 4)
        foreign.execute("SELECT 1 FROM chronoline_log.heads WHERE partition = 0 FOR UPDATE")
        with pytest.raises(StoreBusy):
            changes[change](index)
        foreign.rollback()
        assert all_chunks(index) == chunks
        assert ends(index)[:2] == [(0, 4), (0, 0)]
        assert index.sweep(["b", "merged"], now_ms=NOW) == ["b", "merged"]


def test_commits_in_opposite_order_do_not_deadlock(
    mortal_server: PostgresServer, index: PostgresIndex
) -> None:
    before = mortal_server.log_path.read_text().count("deadlock detected")

    def write(number: int) -> None:
        order = [0, 1, 2, 3] if number % 2 else [3, 2, 1, 0]
        for each in range(25):
            append(index, f"w{number}-{each}", dict.fromkeys(order, 1))

    writers = [Thread(target=write, args=(number,)) for number in range(6)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(PATIENCE_S)
    assert ends(index) == [(0, 150)] * 4
    assert mortal_server.log_path.read_text().count("deadlock detected") == before


# Notifications of other processes


def nothing_more(heard: Heard) -> bool:
    try:
        heard.get(timeout=0.1)
    except Empty:
        return True
    return False


def test_silently_dead_connection_is_found(
    mortal_server: PostgresServer, index: PostgresIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No setting: the test does not wait for the usual time.
    monkeypatch.setattr(postgres_listener, "_CHECK_S", 0.05)
    # No setting: the test does not wait for the usual time.
    monkeypatch.setattr(postgres_listener, "_PATIENCE_S", 0.2)
    heard: Heard = SimpleQueue()
    index.listen(heard.put)
    assert heard.get(timeout=PATIENCE_S) is None
    assert nothing_more(heard)
    mortal_server.pause()
    try:
        assert heard.get(timeout=PATIENCE_S) is None
        assert not index.hearing
    finally:
        mortal_server.resume()
    assert heard.get(timeout=PATIENCE_S) is None
    assert index.hearing


def test_refused_commit_is_not_announced(index: PostgresIndex, url: str) -> None:
    heard: Heard = SimpleQueue()
    index.listen(heard.put)
    assert heard.get(timeout=PATIENCE_S) is None
    with closing(PostgresIndex(url)) as other:
        append(other, "a", {0: 1})
        assert heard.get(timeout=PATIENCE_S) == {TOPIC.uid}
        append(other, "a", {0: 1})
        other.sweep(["b"], now_ms=NOW)
        with pytest.raises(Exception, match="swept"):
            append(other, "b", {0: 1})
        with pytest.raises(LookupError):
            other.commit("c", new_chunks({9: 1}), now_ms=NOW)
    assert nothing_more(heard)


def test_unknown_own_commit_is_heard_as_foreign(
    mortal_server: PostgresServer, index: PostgresIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: Heard = SimpleQueue()
    index.listen(heard.put)
    assert heard.get(timeout=PATIENCE_S) is None
    with paused(mortal_server, monkeypatch), pytest.raises(OutcomeUnknown):
        append(index, "a", {0: 1})
    # Once when the commit times out, and again when it is applied. A repetition could overtake it.
    assert heard.get(timeout=PATIENCE_S) == {TOPIC.uid}
    assert heard.get(timeout=PATIENCE_S) == {TOPIC.uid}
    assert append(index, "a", {0: 1}) == [0]


def test_listener_stops_on_a_silent_server(
    mortal_server: PostgresServer, index: PostgresIndex
) -> None:
    heard: Heard = SimpleQueue()
    index.listen(heard.put)
    assert heard.get(timeout=PATIENCE_S) is None
    # Its thread is looked at.
    listener = index._listener
    assert listener is not None
    mortal_server.pause()
    try:
        listener.close()
        # Its end is the rule.
        assert not listener._thread.is_alive()
    finally:
        mortal_server.resume()
    assert not index.hearing


def test_disabled_notify_sends_and_hears_nothing(index: PostgresIndex, url: str) -> None:
    heard: Heard = SimpleQueue()
    index.listen(heard.put)
    assert heard.get(timeout=PATIENCE_S) is None
    with closing(PostgresIndex(f"{url}?notify=off")) as silent:
        silent.listen(heard.put)
        assert not silent.hearing
        append(silent, "a", {0: 1})
        append(index, "b", {0: 1})
    assert nothing_more(heard)
    assert ends(index)[0] == (0, 2)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("postgresql://h/d", ("postgresql://h/d", True)),
        ("postgresql://h/d?notify=on", ("postgresql://h/d", True)),
        ("postgresql://h/d?notify=off", ("postgresql://h/d", False)),
        ("postgresql:///d?host=/tmp&notify=off", ("postgresql:///d?host=/tmp", False)),
        (
            "postgresql://h/d?notify=off&sslmode=require",
            ("postgresql://h/d?sslmode=require", False),
        ),
        ("postgresql://u:a?b@h/d", ("postgresql://u:a?b@h/d", True)),
    ],
)
def test_notify_parameter_is_removed_from_the_url(given: str, expected: tuple[str, bool]) -> None:
    assert split_notify(given) == expected


def test_invalid_notify_parameter_is_refused() -> None:
    for query in ("notify=", "notify=maybe", "notify=on&notify=off"):
        with pytest.raises(InvalidInput):
            split_notify(f"postgresql://h/d?{query}")


def test_notifications_name_topics() -> None:
    voice = Voice(lambda count: b"\x01" * count)
    word = voice.word({3, 1, 2})
    assert word == "0101010101010101:1,2,3"
    assert voice.is_own(word)
    assert parse_word(word) == {1, 2, 3}
    many = voice.word(set(range(10**18, 10**18 + 1_000)))
    assert len(many) < 8_000
    assert parse_word(many) is None
    for strange in ("", "x", "x:", "x:1,", "x:a", "x:-1", "x:²", "1,2"):
        assert parse_word(strange) is None
