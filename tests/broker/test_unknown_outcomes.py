"""Changes of unknown outcome, from the SDK through a broker to its store: done or not, and answered late."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from chronoline.broker.loaders import Loaders
from chronoline.client import TopicSettings
from chronoline.client.aio import AsyncClient
from chronoline.client.leases import AsyncLease
from chronoline.core.agenda import Agenda
from chronoline.core.errors import OutcomeUnknown, StoreUnavailable
from chronoline.core.message import NewMessage
from chronoline.core.session import Session
from chronoline.runtime.clock import SystemClock
from chronoline.stores.contract import Page, Store
from chronoline.stores.factory import open_store
from chronoline.testing.postgres import PostgresServer
from tests.broker.http.served import Served, serving
from tests.broker.raw_streams import raw_consumer
from tests.deadline import until
from tests.delivery.inbox import times
from tests.delivery.stores import Tap

LOST = OutcomeUnknown("the answer was lost")
HOUR = timedelta(hours=1)
SETTINGS = TopicSettings(window=0.1, default_lease=60)
OF_LEASES: dict[str, Callable[[AsyncLease], Awaitable[None]]] = {
    "extend": lambda lease: lease.extend(90),
    "release": lambda lease: lease.release(delay=HOUR),
    "retry": lambda lease: lease.retry(delay=HOUR),
    "bury": lambda lease: lease.bury("no use"),
    "unreserve": lambda lease: lease.give_back(),
    "ack": lambda lease: lease.ack(),
}
OF_OWNERS: dict[str, Callable[[AsyncClient], Awaitable[Any]]] = {
    "reschedule": lambda client: client.reschedule("jobs", "a", delay=HOUR),
    "cancel": lambda client: client.cancel("jobs", "a"),
}


class _Tap(Tap):
    """Also records whether the broker looked for its leases."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.looked = threading.Event()

    def select_held(self, *given: Any, **named: Any) -> Page:
        page = self.store.select_held(*given, **named)
        self.looked.set()
        return page


class _LateTap(_Tap):
    """The first reservation fails, and is stored after the broker looked for its leases."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._late: Callable[[], Any] | None = None
        self._failed = False

    def reserve(self, *given: Any, **named: Any) -> Any:
        if self._failed:
            return self.store.reserve(*given, **named)
        self._failed = True
        self._late = partial(self.store.reserve, *given, **named)
        raise LOST

    def select_held(self, *given: Any, **named: Any) -> Page:
        page = super().select_held(*given, **named)
        if self._late is not None:
            late, self._late = self._late, None
            assert late().leased
        return page


class _BlindTap(_Tap):
    """The first reservation is stored without an answer; its leases are found after the next one."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._grants: list[int] = []

    def reserve(self, *given: Any, **named: Any) -> Any:
        grant = self.store.reserve(*given, **named)
        if grant.leased and not self._grants:
            self._grants.append(len(grant.leased))
            raise LOST
        if self._grants:
            self._grants.append(len(grant.leased))
        return grant

    def select_held(self, *given: Any, **named: Any) -> Page:
        if len(self._grants) < 2:
            raise StoreUnavailable("not now")
        return super().select_held(*given, **named)


@asynccontextmanager
async def tapped(store: Store) -> AsyncIterator[tuple[_Tap, Served]]:
    tap: Any = _Tap(store)
    async with serving(tap) as served:
        yield tap, served


def hasty(served: Served) -> AsyncClient:
    """A client with a short time-out."""
    return AsyncClient(served.address, timeout=1.5)


def lose(tap: Tap, operation: str, *, done: bool) -> None:
    """The next answer to this operation, which is carried out before that or not."""
    once = times(1, operation, LOST)
    if done:
        tap.lose = once
    else:
        tap.fail = once


def version(store: Store, topic: Any, message_id: str = "a") -> int:
    return store.lookup(topic.uid, [message_id])[message_id].version


@pytest.mark.parametrize("operation", OF_LEASES)
@pytest.mark.parametrize("done", [True, False])
def test_consumer_repeats_a_change_after_a_lost_answer(
    tmp_path: Path, operation: str, done: bool
) -> None:
    async def play() -> None:
        with open_store(f"sqlite:///{tmp_path / 'timeline.db'}") as store:
            async with tapped(store) as (tap, served), served.client() as client:
                topic = await client.create_topic("jobs", SETTINGS)
                await client.send("jobs", b"work", id="a")
                leases = client.consume("jobs", consumer="c")
                lease = await anext(leases)
                before = lease.version
                lose(tap, operation, done=done)
                # The message is leased again before the unreserve is repeated.
                overtaken = operation == "unreserve" and done
                with suppress(OutcomeUnknown) if overtaken else nullcontext():
                    await OF_LEASES[operation](lease)
                assert tap.commits.count((operation, 1)) == 2
                if operation == "extend":
                    assert lease.version == version(store, topic) == before + 1
                    assert not lease.is_lost
                    await lease.ack()
                if operation in ("release", "retry"):
                    found = store.lookup(topic.uid, ["a"])["a"]
                    assert (found.version, found.lock_consumer) == (before + 1, None)
                    assert found.attempts == (operation == "retry")
                    assert found.due > SystemClock().now_ms() + 3_000_000
                if operation in ("ack", "bury", "extend"):
                    assert store.lookup(topic.uid, ["a"]) == {}
                if operation == "unreserve":
                    again = await anext(leases)
                    assert (again.id, again.attempts) == ("a", 0)
                await leases.aclose()

    asyncio.run(play())


@pytest.mark.parametrize("operation", OF_OWNERS)
@pytest.mark.parametrize("done", [True, False])
def test_producer_repeats_a_change_after_a_lost_answer(
    tmp_path: Path, operation: str, done: bool
) -> None:
    async def play() -> None:
        with open_store(f"sqlite:///{tmp_path / 'timeline.db'}") as store:
            async with tapped(store) as (tap, served), served.client() as client:
                topic = await client.create_topic("jobs", SETTINGS)
                await client.send("jobs", b"work", id="a", delay=60)
                lose(tap, operation, done=done)
                await OF_OWNERS[operation](client)
                left = store.lookup(topic.uid, ["a"])
                assert bool(left) == (operation == "reschedule")

    asyncio.run(play())


def test_reschedule_overtaken_by_a_lease_is_unknown(tmp_path: Path) -> None:
    async def play() -> None:
        with open_store(f"sqlite:///{tmp_path / 'timeline.db'}") as store:
            async with tapped(store) as (tap, served), served.client() as client:
                topic = await client.create_topic("jobs", SETTINGS)
                await client.send("jobs", b"work", id="a", delay=60)

                def lose_and_lease(name: str) -> None:
                    if name == "reschedule":
                        tap.lose = lambda _: None
                        now_ms = SystemClock().now_ms()
                        buckets = store.get_topic(topic.uid).all_buckets
                        store.reserve(
                            topic.uid,
                            buckets,
                            consumer="d",
                            limit=1,
                            lease_ms=60_000,
                            reserve_ahead_ms=1_000,
                            now_ms=now_ms,
                        )
                        raise LOST

                tap.lose = lose_and_lease
                with pytest.raises(OutcomeUnknown):
                    await client.reschedule("jobs", "a", due=datetime.now(UTC))

    asyncio.run(play())


def test_ack_after_an_unknown_extend_names_the_right_version(
    tmp_path: Path,
) -> None:
    """The extension is given up before it is answered; the ack settles it first."""

    async def play() -> None:
        with open_store(f"sqlite:///{tmp_path / 'timeline.db'}") as store:
            async with tapped(store) as (tap, served), hasty(served) as client:
                topic = await client.create_topic("jobs", SETTINGS)
                await client.send("jobs", b"work", id="a")
                leases = client.consume("jobs", consumer="c")
                lease = await anext(leases)
                before = lease.version
                tap.lose = times(1_000, "extend", LOST)
                with pytest.raises(OutcomeUnknown):
                    await lease.extend(90)
                assert (lease.version, version(store, topic)) == (before, before + 1)
                tap.lose = lambda _: None
                await lease.ack()
                assert store.lookup(topic.uid, ["a"]) == {}
                await leases.aclose()

    asyncio.run(play())


def test_unknown_ack_can_be_repeated(tmp_path: Path) -> None:
    async def play() -> None:
        with open_store(f"sqlite:///{tmp_path / 'timeline.db'}") as store:
            async with tapped(store) as (tap, served), hasty(served) as client:
                topic = await client.create_topic("jobs", SETTINGS)
                await client.send("jobs", b"work", id="a")
                leases = client.consume("jobs", consumer="c")
                lease = await anext(leases)
                tap.lose = times(1_000, "ack", LOST)
                with pytest.raises(OutcomeUnknown):
                    await lease.ack()
                assert store.lookup(topic.uid, ["a"]) == {}
                tap.lose = lambda _: None
                await lease.ack()
                await leases.aclose()

    asyncio.run(play())


# Two brokers, or two processes of one name


@asynccontextmanager
async def two_brokers(tmp_path: Path) -> AsyncIterator[tuple[_Tap, Served, Served]]:
    """The first one's store can be tampered with."""
    url = f"sqlite:///{tmp_path / 'timeline.db'}"
    with open_store(url) as first, open_store(url) as second:
        async with tapped(first) as (tap, one), serving(second) as other:
            yield tap, one, other


def test_unanswered_reservation_takes_no_lease_of_a_twin(
    tmp_path: Path,
) -> None:
    async def play() -> None:
        async with two_brokers(tmp_path) as (tap, one, other), other.client() as client:
            topic = await client.create_topic("jobs", SETTINGS)
            async with raw_consumer(one.address, "c", "frozen") as frozen:
                tap.fail = times(1_000_000, "reserve", StoreUnavailable("not now"))
                await frozen.subscribe(topic.uid, 10)
                await frozen.hears("subscribed")
                leases = client.consume("jobs", consumer="c")
                await client.send("jobs", b"work", id="the twin's")
                lease = await anext(leases)
                before = version(tap.store, topic, "the twin's")
                tap.lose = times(1, "reserve", LOST)
                tap.fail = lambda _: None
                await until(tap.looked.is_set)
                await client.send("jobs", b"work", id="next")
                assert (await anext(leases)).id == "next"
                assert version(tap.store, topic, "the twin's") == before
                await lease.ack()
                await leases.aclose()

    asyncio.run(play())


def test_unanswered_reservation_is_served_again_at_once(tmp_path: Path) -> None:
    async def play() -> None:
        with open_store(f"sqlite:///{tmp_path / 'timeline.db'}") as store:
            async with tapped(store) as (tap, served), served.client() as client:
                await client.create_topic("jobs", SETTINGS)
                leases = client.consume("jobs", consumer="c", lease=3_600)
                coming = asyncio.ensure_future(anext(leases))
                await until(lambda: bool(served.subscriptions))
                tap.lose = times(2, "reserve", LOST)
                await client.send("jobs", b"work", id="a")
                lease = await asyncio.wait_for(coming, 60)
                assert (lease.id, lease.attempts) == ("a", 0)
                await lease.ack()
                await leases.aclose()

    asyncio.run(play())


def test_given_back_message_needs_no_notice_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No settings: without a notice, and without this sleep's end, only the loader itself can wake.
    monkeypatch.setattr(Loaders, "noticed", lambda *_: None)
    defaults = Agenda.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "max_sleep_ms", 3_600_000)

    async def play() -> None:
        with open_store(f"sqlite:///{tmp_path / 'timeline.db'}") as store:
            tap: Any = _BlindTap(store)
            async with serving(tap) as served, served.client() as client:
                await client.create_topic("jobs", SETTINGS)
                leases = client.consume("jobs", consumer="c", lease=3_600)
                coming = asyncio.ensure_future(anext(leases))
                await until(lambda: bool(served.subscriptions))
                await client.send("jobs", b"work", id="a")
                lease = await asyncio.wait_for(coming, 60)
                assert (lease.id, lease.attempts) == ("a", 0)
                await leases.aclose()

    asyncio.run(play())


def test_late_reservation_is_served_again(tmp_path: Path) -> None:
    async def play() -> None:
        with open_store(f"sqlite:///{tmp_path / 'timeline.db'}") as store:
            tap: Any = _LateTap(store)
            async with serving(tap) as served, served.client() as client:
                await client.create_topic("jobs", SETTINGS)
                await client.send("jobs", b"work", id="a")
                leases = client.consume("jobs", consumer="c", lease=3_600)
                lease = await asyncio.wait_for(anext(leases), 60)
                assert tap.looked.is_set()
                assert (lease.id, lease.attempts) == ("a", 0)
                await leases.aclose()

    asyncio.run(play())


@pytest.mark.parametrize("extending", [True, False])
def test_frozen_twin_does_not_inherit_the_new_version(tmp_path: Path, extending: bool) -> None:
    async def play() -> None:
        with open_store(f"sqlite:///{tmp_path / 'timeline.db'}") as store:
            now_ms = SystemClock().now_ms()
            topic = store.create_topic("jobs", SETTINGS.in_ms(), now_ms=now_ms)
            store.create(topic.uid, [NewMessage(id="a", due=1)], now_ms=now_ms)
            (held,) = store.reserve(
                topic.uid,
                topic.all_buckets,
                consumer="c",
                limit=1,
                lease_ms=600_000,
                session=Session("frozen", "elsewhere").new_grant(),
                now_ms=now_ms,
            ).leased
            store.resume(
                topic.uid,
                "c",
                limit=1,
                session=Session("twin", "elsewhere").new_grant(),
                now_ms=now_ms,
            )
            async with (
                serving(store) as served,
                raw_consumer(served.address, "c", "frozen") as stream,
            ):
                unanswered = int(extending)
                await stream.subscribe(topic.uid, 0, unanswered=unanswered, a=held.lease.version)
                assert list((await stream.hears("subscribed")).kept) == []

    asyncio.run(play())


def test_name_taken_at_another_broker_ends_the_consumer(
    postgres_server: PostgresServer,
) -> None:
    url = postgres_server.create_database("taken_name")

    async def play() -> None:
        with open_store(url) as first, open_store(url) as second:
            async with serving(first) as one, serving(second) as other, other.client() as client:
                topic = await client.create_topic("jobs", SETTINGS)
                async with raw_consumer(one.address, "c", "1") as stream:
                    await stream.subscribe(topic.uid, 1)
                    await stream.hears("subscribed")
                    polling = asyncio.ensure_future(
                        one.http.post(
                            "/v1/topics/jobs/receive", json={"consumer": "d", "wait": "15s"}
                        )
                    )
                    await until(lambda: len(one.subscriptions) == 2)
                    async with raw_consumer(other.address, "c", "2") as twin:
                        await twin.subscribe(topic.uid, 1)
                        await twin.hears("subscribed")
                        assert (await stream.hears("go_away")).code == "replaced"
                        async with raw_consumer(other.address, "d", "2") as another:
                            await another.subscribe(topic.uid, 1)
                            answer = await polling
                            assert answer.status_code == 409, answer.text
                            assert answer.json()["code"] == "consumer_replaced"
                        await client.send("jobs", b"work", id="a")
                        (pushed,) = (await twin.hears("push")).deliveries
                        assert pushed.id == "a"

    asyncio.run(play())
