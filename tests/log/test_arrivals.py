"""Waiting readers wake by appends of the same and of other processes."""

import threading
from collections.abc import Callable

import pytest

from chronoline.core.errors import OutcomeUnknown, StoreError, StoreUnavailable
from chronoline.log import Log, NewEvent, Notification
from tests.log.internals import index_of, objects_of
from tests.log.places import place
from tests.log.waiters import NEVER_MS, PATIENCE_S, Waiter, opened


@pytest.fixture(params=[None, "g"], ids=["alone", "group"])
def group(request: pytest.FixtureRequest) -> str | None:
    return request.param  # type: ignore[no-any-return]  # one of the params above


def test_own_append_wakes_a_reader(
    url: str, group: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(url) as log:
        waiter = Waiter(log, group)
        with waiter.reading(monkeypatch):
            log.append("t", value=b"0")
            assert waiter.values() == [b"0"]


def test_foreign_append_wakes_a_reader_of_a_listening_index(
    request: pytest.FixtureRequest, group: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = place(request, "folder", "postgres")
    with opened(url) as log, Log(url) as other:
        waiter = Waiter(log, group)
        with waiter.reading(monkeypatch):
            assert waiter.hears.wait(PATIENCE_S)
            other.append("t", value=b"0")
            assert waiter.values() == [b"0"]


def test_reader_polls_an_index_without_a_listener(
    url: str, group: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(url, max_latency_ms=50) as log, Log(url) as other:
        waiter = Waiter(log, group)
        with waiter.reading(monkeypatch):
            other.append("t", value=b"0")
            assert waiter.values() == [b"0"]


@pytest.mark.parametrize("error", [StoreUnavailable("full"), StoreError("full")])
@pytest.mark.parametrize("value", [b"", bytes(99)], ids=["by the writer", "by the committer"])
def test_partly_failed_append_is_announced(
    url: str, monkeypatch: pytest.MonkeyPatch, value: bytes, error: StoreError
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
                patch.setattr(objects_of(log), "put", _after_one(objects_of(log).put, error))
                patch.setattr(index_of(log), "max_chunks_per_commit", 1)
                with pytest.raises(OutcomeUnknown, match=r"a part .* the rest is not: full"):
                    log.append_many("t", [NewEvent(value=value, partition=p) for p in (0, 1)])
            assert waiter.values() == [value]
            assert heard.wait(PATIENCE_S)
    assert told == [Notification(topic="t", partition=0, sequence=1)]


def _after_one(
    put: Callable[[str, bytes], None], error: StoreError
) -> Callable[[str, bytes], None]:
    """Returns a function that works once and then fails."""
    puts = iter([put])

    def put_one(name: str, data: bytes) -> None:
        for each in puts:
            return each(name, data)
        raise error

    return put_one


def test_fully_failed_append_raises(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    put = _after_one(objects_of(log).put, StoreUnavailable("full"))
    put("0000000000000000000before", b"")
    monkeypatch.setattr(objects_of(log), "put", put)
    with pytest.raises(StoreUnavailable, match="full"):
        log.append_many("t", [NewEvent(value=b"", partition=p) for p in (0, 1)])
