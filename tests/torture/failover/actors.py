"""Producers and consumers of a store whose server is replaced while they work."""

from __future__ import annotations

import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from chronoline.core.change import Change, lease_change
from chronoline.core.errors import OutcomeUnknown, StoreError, StoreUnavailable
from chronoline.core.message import After, Lease, LeasedMessage, NewMessage
from chronoline.core.outcome import Outcome, Refusal
from chronoline.core.permissions import Operation
from chronoline.core.session import Session
from chronoline.stores.contract import Store
from chronoline.stores.postgres import PostgresStore
from tests.torture.brokers.doors import digest, now_ms
from tests.torture.history import DELIVERY, DONE, REFUSED, UNKNOWN, Recorder

TOPIC = "failover-main"
GROUP = "owners"
LEASE_MS = 1_500
_REST_S = 0.02
_TRIES_S = 15.0
"""A call is repeated for this long while nobody answers it."""


class Site:
    """The server that all use now, and how far the run is."""

    def __init__(self, url: str, topic_uid: int) -> None:
        self.url = url
        self.topic_uid = topic_uid
        self.is_calm = threading.Event()
        """No more messages are created, and consumers only ack."""
        self.is_over = threading.Event()


class Actor(ABC):
    """Works in a thread of its own until the run is over, and records all that it does."""

    def __init__(self, folder: Path, name: str, site: Site, seed: int) -> None:
        self.name = name
        self.recorder = Recorder(folder, f"{name}.1")
        self._site = site
        self._chance = random.Random(seed)
        self._store: PostgresStore | None = None
        self._url = ""
        self._thread: Future[None] | None = None

    def begin(self, threads: ThreadPoolExecutor) -> None:
        self._thread = threads.submit(self._run)

    def check(self) -> None:
        """Raises what ended its thread."""
        if self._thread is not None and self._thread.done():
            self._thread.result()

    def close(self) -> None:
        if self._store is not None:
            self._store.close()
        self.recorder.close()

    def _run(self) -> None:
        while not self._site.is_over.is_set():
            with suppress(StoreUnavailable, OutcomeUnknown):
                self._work()
            self._site.is_over.wait(_REST_S)

    @abstractmethod
    def _work(self) -> None:
        """One round. Raises the store's error if nobody answers."""

    @property
    def store(self) -> Store:
        """The store at the server of now. Raises `StoreUnavailable` while it cannot be opened."""
        if self._store is None or self._url != self._site.url:
            if self._store is not None:
                self._store.close()
                self._store = None
            url = self._site.url
            try:
                self._store = PostgresStore(url, notify=False)
            except StoreError as error:
                raise StoreUnavailable(f"the server is away: {error}") from error
            self._url = url
        return self._store

    def _ask(self, call: str, ask: Callable[[Store, bool], Sequence[Outcome]]) -> Outcome | None:
        """Asks until the store answers; None if it did not in time, which is recorded.

        A repeated question says so. The answer has the version that the change made.
        """
        give_up = time.monotonic() + _TRIES_S
        again = False
        while time.monotonic() < give_up and not self._site.is_over.is_set():
            try:
                (outcome,) = ask(self.store, again)
            except OutcomeUnknown:
                again = True
            except StoreUnavailable:
                pass
            else:
                if not outcome.unknown:
                    return outcome
                again = True
            self._site.is_over.wait(_REST_S)
        self.recorder.outcome(call, UNKNOWN)
        return None


class Producer(Actor):
    """Creates messages, and cancels some of them."""

    def __init__(self, folder: Path, name: str, site: Site, seed: int) -> None:
        super().__init__(folder, name, site, seed)
        self._count = 0

    def _work(self) -> None:
        if self._site.is_calm.is_set():
            return
        self._count += 1
        id = f"{self.name}-{self._count}"
        due = now_ms() + self._chance.choice([0, 0, 300, 1_000])
        message = {"topic": TOPIC, "id": id, "group": GROUP}
        body = id.encode()
        new = NewMessage(id=id, due=due, body=body, producer_group=GROUP, digest=body)
        call = self.recorder.call("create", **message, due=due, content=digest(body, None))
        made = self._ask(
            call, lambda store, _: store.create(self._site.topic_uid, [new], now_ms=now_ms())
        )
        if made is not None:
            self._note(call, made)
        if made is not None and self._chance.random() < 0.1:
            call = self.recorder.call("cancel", **message)
            gone = self._ask(
                call,
                lambda store, again: store.cancel(
                    self._site.topic_uid, [id], producer_group=GROUP, again=again, now_ms=now_ms()
                ),
            )
            if gone is not None:
                self._note(call, gone)

    def _note(self, call: str, outcome: Outcome) -> None:
        if outcome.done:
            self.recorder.outcome(call, DONE, version=outcome.version)
        elif outcome.refusal is Refusal.EXISTS and outcome.repeated:
            self.recorder.outcome(call, DONE)  # by an earlier attempt, whose version nobody knows
        else:
            self.recorder.outcome(call, REFUSED, str(outcome.refusal))


class Consumer(Actor):
    """Leases messages, extends some of the leases, and settles them in different ways."""

    def __init__(self, folder: Path, name: str, site: Site, seed: int) -> None:
        super().__init__(folder, name, site, seed)
        self._session = Session(name, "here")
        self._delivered = 0

    def _work(self) -> None:
        grant = self.store.reserve(
            self._site.topic_uid,
            self.store.get_topic(self._site.topic_uid).all_buckets,
            consumer=self.name,
            limit=5,
            lease_ms=LEASE_MS,
            session=self._session.new_grant(),
            now_ms=now_ms(),
        )
        held = [(self._record(leased), leased.lease) for leased in grant.leased]
        for delivery, lease in held:
            self._handle(delivery, lease)

    def _record(self, leased: LeasedMessage) -> str:
        self._delivered += 1
        delivery = f"{self.name}.1/{self._delivered}"
        message = leased.message
        self.recorder.record(
            DELIVERY,
            delivery=delivery,
            consumer=self.name,
            door="store",
            topic=TOPIC,
            topic_uid=self._site.topic_uid,
            id=message.id,
            version=leased.lease.version,
            until=leased.lease.until,
            due=message.due,
            attempts=message.attempts,
            group=message.producer_group,
            content=digest(leased.body, message.key),
        )
        return delivery

    def _handle(self, delivery: str, lease: Lease) -> None:
        chance = self._chance.random()
        if not self._site.is_calm.is_set():
            if chance < 0.05:
                return  # until it lapses
            if chance < 0.25:
                extended = self._extend(delivery, lease)
                if extended is None:
                    return
                lease = extended
            if chance < 0.3:
                self._site.is_over.wait(self._chance.uniform(0, LEASE_MS / 1_000))
        ops = ["ack"] if self._site.is_calm.is_set() else ["ack"] * 8 + ["retry", "release"]
        self._settle(delivery, lease, Operation(self._chance.choice(ops)))

    def _extend(self, delivery: str, lease: Lease) -> Lease | None:
        """The lease as it is now; None if that is not known, or it is over."""
        delay_s = LEASE_MS / 1_000
        call = self._call("extend", delivery, lease, delay_s=delay_s)
        change = lease_change(Operation.EXTEND, lease, After(LEASE_MS))
        outcome = self._ask(call, self._applying(change))
        if outcome is None:
            return None
        if not outcome.done:
            self.recorder.outcome(call, REFUSED, str(outcome.refusal))
            return None
        self.recorder.outcome(call, DONE, version=outcome.version, until=outcome.at)
        return lease.extended(outcome.version, outcome.at)

    def _settle(self, delivery: str, lease: Lease, operation: Operation) -> None:
        delay_s = 0.0 if operation is Operation.ACK else 0.2
        call = self._call(operation.value, delivery, lease, delay_s=delay_s)
        to = After(int(delay_s * 1_000)) if delay_s else 0
        change = lease_change(operation, lease, to)
        outcome = self._ask(call, self._applying(change))
        if outcome is not None and outcome.done:
            self.recorder.outcome(call, DONE, version=lease.version)
        elif outcome is not None:
            self.recorder.outcome(call, REFUSED, str(outcome.refusal), version=lease.version)

    def _applying(self, change: Change) -> Callable[[Store, bool], Sequence[Outcome]]:
        return lambda store, again: store.apply(
            self._site.topic_uid,
            [change],
            again=again,
            now_ms=now_ms(),
        )

    def _call(self, op: str, delivery: str, lease: Lease, *, delay_s: float) -> str:
        about = {"delivery": delivery, "version": lease.version, "until": lease.until}
        return self.recorder.call(op, **about, delay_s=delay_s)
