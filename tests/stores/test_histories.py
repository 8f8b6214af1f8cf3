"""Random histories of all operations with moving time, on every engine, against a small model."""

from dataclasses import replace
from itertools import count

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from chronoline.core.errors import TopicNotFound
from chronoline.core.limits import MAX_TIME_MS
from chronoline.core.message import Lease, NewMessage
from chronoline.core.outcome import Outcome
from chronoline.core.topic import Topic, TopicSettings
from chronoline.stores.contract import Counts, Store
from tests.stores.conftest import Engine, empty
from tests.stores.line import NOW
from tests.stores.model import Model, Row

names = st.sampled_from(["a", "b", "c"])
groups = st.sampled_from(["g1", "g1", "g1", "g2"])
consumers = st.sampled_from(["c1", "c2"])
waits = st.sampled_from([0, 0, 0, 0, 0, 0, 0, 0, 1, 9, 10, 11, 30, 30, 100, 100, 1_001])
skews = st.sampled_from([0, 70, 900, 1_000])
dues = st.sampled_from([-60, -1, 0, 0, 0, 1, 10, 60])
ends = st.sampled_from([0, 9, 10, 11, 60, 60, 200, 200])
aheads = st.sampled_from([0, 20])
lease_lengths = st.sampled_from([10, 30, 100, 300, 300])
lives = st.sampled_from([None, None, 1, 60])
picks = st.sampled_from([0, 0, 0, 0, 1, 1, 2, 3, 5, 8])
lease_operations = st.sampled_from(["extend", "release", "retry", "bury", "unreserve", "ack"])
topic_numbers = count()


class Histories(RuleBasedStateMachine):
    """Asks store and model the same, and compares what they answer and what they hold.

    No rule has a precondition that an engine's choice among equals could change: when one is played again,
    Hypothesis wants the same rules to be open.
    """

    def __init__(self, store: Store) -> None:
        super().__init__()
        self.store = store
        self.now = NOW
        self.latest = NOW
        """The latest reading of any clock before the clocks last changed."""
        self.leases: list[tuple[int, Lease]] = []
        """Every lease so far, with the uid of its topic."""

    @initialize(
        dedupe_ms=st.sampled_from([0, 40]),
        max_attempts=st.integers(1, 3),
        max_lateness_ms=st.sampled_from([None, None, 0, 60]),
        buckets=st.sampled_from([1, 8]),
    )
    def begin(
        self, dedupe_ms: int, max_attempts: int, max_lateness_ms: int | None, buckets: int
    ) -> None:
        self.settings = TopicSettings(
            buckets=buckets,
            dedupe_ms=dedupe_ms,
            max_attempts=max_attempts,
            max_lateness_ms=max_lateness_ms,
        )
        self._new_topic(f"history {next(topic_numbers)}")
        for name in ("a", "b", "c"):
            self.create(wait_ms=0, name=name, offset=0, group="g1", lives=None, anew=False)

    def _new_topic(self, name: str) -> None:
        self.topic: Topic = self.store.create_topic(name, self.settings, now_ms=self.now)
        self.model = Model(
            self.settings.dedupe_ms, self.settings.max_attempts, self.settings.max_lateness_ms
        )

    def teardown(self) -> None:
        empty(self.store)

    # Producers

    @rule(wait_ms=waits, name=names, offset=dues, group=groups, lives=lives, anew=st.booleans())
    def create(
        self, *, wait_ms: int, name: str, offset: int, group: str, lives: int | None, anew: bool
    ) -> None:
        self.now += wait_ms
        due = self.now + offset
        expires = None if lives is None else due + lives
        message = NewMessage(id=name, due=due, producer_group=group, expires=expires)
        (outcome,) = self.store.create(
            self.topic.uid,
            [message],
            if_exists="replace" if anew else "refuse",
            now_ms=self.now,
        )
        assert outcome.done == self.model.may_create(name, group, anew, self.now)
        if outcome.done:
            latest = max(self.latest, self.now)
            assert outcome.version in self.model.first_versions(name, self.now, latest)
            assert outcome.version >= self.model.highest.get(name, 0)
            row = Row(group=group, ts=due, due=due, version=outcome.version, expires=expires)
            self.model.create(name, row)

    @rule(wait_ms=waits, name=names, offset=dues, group=groups, moves=st.booleans())
    def owner_acts(self, wait_ms: int, name: str, offset: int, group: str, moves: bool) -> None:
        self.now += wait_ms
        uid, now = self.topic.uid, self.now
        if moves:
            expected = self.model.reschedule(name, now + offset, group, now)
            outcomes = self.store.reschedule(
                uid, [(name, now + offset)], producer_group=group, now_ms=now
            )
        else:
            expected = self.model.cancel(name, group, now)
            outcomes = self.store.cancel(uid, [name], producer_group=group, now_ms=now)
        self._same(name, outcomes, expected)

    # Leases

    @rule(
        wait_ms=waits,
        consumer=consumers,
        limit=st.integers(1, 3),
        lease_ms=lease_lengths,
        ahead_ms=aheads,
    )
    def reserve(
        self, wait_ms: int, consumer: str, limit: int, lease_ms: int, ahead_ms: int
    ) -> None:
        self.now += wait_ms
        ready = self.model.ready(self.now, ahead_ms)
        grant = self.store.reserve(
            self.topic.uid,
            self.topic.all_buckets,
            consumer=consumer,
            limit=limit,
            lease_ms=lease_ms,
            reserve_ahead_ms=ahead_ms,
            now_ms=self.now,
        )
        leased = {each.lease.id for each in grant.leased}
        died = {each.id for each in grant.refused}
        taken = leased | died
        # Of those with the same ts an engine may choose.
        assert len(taken) == min(limit, len(ready))
        assert sorted(ready[name] for name in taken) == sorted(ready.values())[:limit]
        assert leased == {
            name for name in taken if self.model.take(name, consumer, lease_ms, self.now)
        }
        self.leases += [(self.topic.uid, each.lease) for each in grant.leased]

    @rule(
        wait_ms=waits,
        name=names,
        off=st.sampled_from([0, 0, 0, -1, 1]),
        consumer=consumers,
        lease_ms=lease_lengths,
        ahead_ms=aheads,
    )
    def lease(
        self, *, wait_ms: int, name: str, off: int, consumer: str, lease_ms: int, ahead_ms: int
    ) -> None:
        self.now += wait_ms
        row = self.model.rows.get(name)
        version = (row.version if row else self.now) + off
        may = row is not None and off == 0 and name in self.model.ready(self.now, ahead_ms)
        expected = may and self.model.take(name, consumer, lease_ms, self.now)
        grant = self.store.lease(
            self.topic.uid,
            [(name, version)],
            consumer=consumer,
            lease_ms=lease_ms,
            reserve_ahead_ms=ahead_ms,
            now_ms=self.now,
        )
        assert (len(grant.leased), len(grant.refused)) == ((1, 0) if expected else (0, 1))
        self.leases += [(self.topic.uid, each.lease) for each in grant.leased]

    @rule(wait_ms=waits, consumer=consumers)
    def resume(self, wait_ms: int, consumer: str) -> None:
        self.now += wait_ms
        grant = self.store.resume(self.topic.uid, consumer, limit=100, now_ms=self.now)
        assert {each.lease.id for each in grant.leased} == self.model.resume(consumer, self.now)
        self.leases += [(self.topic.uid, each.lease) for each in grant.leased]

    @rule(acts=st.lists(st.tuples(waits, picks, ends, lease_operations), min_size=1, max_size=4))
    def holders_act(self, acts: list[tuple[int, int, int, str]]) -> None:
        """Holders use leases of the past; recent ones, which may be live, more often."""
        for wait_ms, pick, offset, operation in acts if self.leases else ():
            self.now += wait_ms
            uid, lease = self.leases[-1 - pick % len(self.leases)]
            self._hold(uid, lease, self.now + offset, operation)

    def _hold(self, uid: int, lease: Lease, to: int, operation: str) -> None:
        beside = {"extend": to, "release": to, "retry": to, "bury": "no use"}.get(operation)
        items = [lease if beside is None else (lease, beside)]
        try:
            outcomes = getattr(self.store, operation)(uid, items, now_ms=self.now)
        except TopicNotFound:
            assert uid != self.topic.uid
            return
        assert uid == self.topic.uid
        self._same(lease.id, outcomes, self.model.hold(operation, lease, to, self.now))
        if operation == "extend" and outcomes[0].done:
            young = replace(lease, version=outcomes[0].version, until=to)
            self.leases.append((uid, young))

    # Dead letters and upkeep

    @rule(wait_ms=waits, name=names, offset=st.sampled_from([0, 1, 60]), back=st.booleans())
    def undertaker_acts(self, wait_ms: int, name: str, offset: int, back: bool) -> None:
        self.now += wait_ms
        uid, now = self.topic.uid, self.now
        if back:
            expected = self.model.redrive(name, now + offset, now)
            outcomes = self.store.redrive(uid, [name], due=now + offset, now_ms=now)
        else:
            expected = self.model.discard(name, now)
            outcomes = self.store.discard(uid, [name], now_ms=now)
        self._same(name, outcomes, expected)

    @rule(wait_ms=waits, limit=st.integers(1, 3), dropped=st.sampled_from([False] * 5 + [True]))
    def upkeep(self, wait_ms: int, limit: int, dropped: bool) -> None:
        self.now += wait_ms
        gone = [row for row in self.model.rows.values() if row.life == "gone"]
        assert self.store.purge(limit=limit, now_ms=self.now) <= min(limit, len(gone))
        if dropped:
            assert self.store.delete_topic(self.topic.uid, now_ms=self.now)
            while self.store.purge(now_ms=self.now):
                pass
            self._new_topic(self.topic.name)

    # Another process: by whose clock a dedupe time is over would be open, so there is none here

    @precondition(lambda self: self.settings.dedupe_ms == 0)
    @rule(behind_ms=skews)
    def another_clock(self, behind_ms: int) -> None:
        self.latest = max(self.latest, self.now)
        self.now = self.latest - behind_ms

    # Comparison of the content

    @invariant()
    def the_same_messages(self) -> None:
        page = self.store.select(
            self.topic.uid, self.topic.all_buckets, limit=100, max_ts=MAX_TIME_MS
        )
        found = {
            m.id: (m.producer_group, m.ts, m.due, m.lock_consumer, m.version, m.attempts, m.expires)
            for m in page.messages
        }
        assert found == {
            name: (row.group, row.ts, row.due, row.lock, row.version, row.attempts, row.expires)
            for name, row in self.model.rows.items()
            if row.life == "live"
        }
        assert self.store.lookup(self.topic.uid, ["a", "b", "c"]) == {
            message.id: message for message in page.messages
        }

    @invariant()
    def the_same_dead_letters(self) -> None:
        found = {
            letter.message.id: (letter.died, letter.message.version, letter.message.attempts)
            for letter in self.store.dead_letters(self.topic.uid, limit=100)
        }
        assert found == {
            name: (row.ts, row.version, row.attempts)
            for name, row in self.model.rows.items()
            if row.life == "dead"
        }

    @invariant()
    def the_same_counts(self) -> None:
        live = [row for row in self.model.rows.values() if row.life == "live"]
        expected = Counts(
            available=sum(row.ts <= self.now for row in live),
            processing=sum(row.ts > self.now and row.lock is not None for row in live),
            waiting=sum(row.ts > self.now and row.lock is None for row in live),
        )
        buckets = self.topic.all_buckets
        counted = self.store.count(
            self.topic.uid, buckets, start=0, end=MAX_TIME_MS, now_ms=self.now
        )
        assert counted == expected
        next_ts = self.store.next_ts(self.topic.uid, buckets)
        assert next_ts == min((row.ts for row in live), default=None)

    # Helpers

    def _same(self, name: str, outcomes: list[Outcome], expected: bool) -> None:
        (outcome,) = outcomes
        assert outcome.id == name
        assert outcome.done == expected
        if expected:
            assert outcome.version == self.model.rows[name].version


EXAMPLES = {"memory": 100, "sqlite": 40, "postgres": 30}


def test_random_histories(engine: Engine, store: Store) -> None:
    class HistoriesHere(Histories):
        def __init__(self) -> None:
            super().__init__(store)

    run_state_machine_as_test(
        HistoriesHere,
        settings=settings(
            max_examples=EXAMPLES[engine.name],
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
