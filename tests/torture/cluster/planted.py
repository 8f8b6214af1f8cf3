"""The command `chronoline` with a planted defect: shows that the judge finds it in the history of a real run.

    python -m tests.torture.cluster.planted DEFECT up …
    python -m tests.torture.cluster [DEFECT …]

Each defect is a patch of one place, which every broker of the scene has.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from chronoline.broker.carrier import Carrier
from chronoline.broker.cluster.member import ClusterMember
from chronoline.broker.gate import Gate, TopicGate
from chronoline.broker.loader import Loader
from chronoline.broker.subscription import Subscription
from chronoline.broker.trusted_clock import TrustedClock
from chronoline.cli import main
from chronoline.core.dealer import Share
from chronoline.core.generation import Generation
from chronoline.core.message import LeasedMessage, NewMessage
from chronoline.core.outcome import Outcome
from chronoline.databases.postgres import PostgresDatabase, Row
from chronoline.databases.queries import load_queries
from chronoline.runtime.tasks import TaskSet
from tests.torture.brokers import judge as of_messages
from tests.torture.brokers.doors import now_ms
from tests.torture.cluster.judge import GRANTED_WITHOUT_ETCD, KEPT_WAITING, SERVED_TWICE

_FORGOTTEN = ("ada", "eve")
"""Consumers whose ranges are forgotten."""
_COMMIT_AFTER_S = 1.0
_EARLY_MS = 800
_TAKEN_MS = 2_000
"""A lease that ends within this time is taken."""


@dataclass(frozen=True, slots=True)
class Defect:
    """A planted defect, and a run in which it shows."""

    plant: Callable[[], None]
    rule: str
    """The rule by which the judge finds it."""
    faults: Sequence[str] = ()
    """The faults of the run."""
    seconds: float = 6.0
    brokers: int = 1
    has_racks: bool = True
    """With racks a message that waits for one consumer is served by its backups."""
    drain_s: float = 1.0


def _change_query(name: str, *changes: tuple[str, str]) -> None:
    """Replaces parts of a query of the store."""
    query = changed = load_queries("chronoline.stores.postgres")[name]
    for old, new in changes:
        assert old in changed, f"{name} has no {old!r}"
        changed = changed.replace(old, new)
    run = PostgresDatabase.run

    def run_changed(
        self: PostgresDatabase, asked: str, values: dict[str, Any], **bounds: Any
    ) -> list[Row]:
        return run(self, changed if asked == query else asked, values, **bounds)

    PostgresDatabase.run = run_changed  # type: ignore[method-assign,assignment]  # the defect


def _ignore_the_gate() -> None:
    """A broker without its session goes on to grant leases."""
    ClusterMember.problem = property(lambda _: "")  # type: ignore[method-assign,assignment]  # the defect


def _hide_the_cut() -> None:
    """A broker without its store calls itself healthy, and keeps its consumers and their buckets."""
    Gate.store_problem = property(lambda _: "")  # type: ignore[method-assign,assignment]  # the defect
    TopicGate.store_problem = property(lambda _: "")  # type: ignore[method-assign,assignment]  # the defect


def _forget_a_range() -> None:
    """The own buckets of some consumers have no consumer, and no backup."""
    served_by = Generation.served_by

    def forgetful(self: Generation, *given: Any, **more: Any) -> Mapping[str, Share]:
        shares = served_by(self, *given, **more)
        return {
            name: share._replace(backups=())
            for name, share in shares.items()
            if not name.startswith(_FORGOTTEN)
        }

    Generation.served_by = forgetful  # type: ignore[method-assign,assignment]  # the defect


def _skip_the_version_check() -> None:
    """A holder changes its message under any version, also after the lease that it had."""
    for name in ("ack", "retry", "release"):
        _change_query(name, ("AND m.version = b.version ", ""))


def _acknowledge_before_commit() -> None:
    """A create is answered before it is written."""
    create, writes = Carrier.create, TaskSet()

    async def hasty(
        self: Carrier, topic_uid: int, messages: Sequence[NewMessage], *, replace: bool = False
    ) -> list[Outcome]:
        async def write() -> None:
            await asyncio.sleep(_COMMIT_AFTER_S)
            await create(self, topic_uid, messages, replace=replace)

        writes.start(write())
        return [Outcome(id=each.id, version=now_ms()) for each in messages]

    Carrier.create = hasty  # type: ignore[method-assign]  # the defect


def _deliver_before_due() -> None:
    """Messages leave before their due. The SDK keeps them until then; a poll shows it."""
    take_due, push_at = Subscription.take_due, Subscription.push_at

    def early(self: Subscription, now_ms: int, most: int | None = None) -> list[LeasedMessage]:
        return take_due(self, now_ms + _EARLY_MS, most)

    def wakes(self: Subscription, now_ms: int) -> int | None:
        moment = push_at(self, now_ms)
        return None if moment is None else moment - _EARLY_MS

    Subscription.take_due = early  # type: ignore[method-assign]  # the defect
    Subscription.push_at = wakes  # type: ignore[method-assign]  # the defect


def _serve_a_name_twice() -> None:
    """A process that lost its name to one at another broker is not told, and is still served."""

    def of_any_broker(self: Generation, _: str, *given: Any, **more: Any) -> Mapping[str, Share]:
        shares = self.shares_in(*given, **more)
        return {name: shares[name] for name in shares if name not in self.lost}

    Generation.served_by = of_any_broker  # type: ignore[method-assign,assignment]  # the defect
    Loader.returned = lambda *_: None  # type: ignore[method-assign]  # the defect


def _take_a_live_lease() -> None:
    """A reservation takes messages whose leases have not ended."""
    for name in ("reserve", "reserve_for"):
        _change_query(name, ("m.ts <= %(now)s", f"m.ts <= %(now)s + {_TAKEN_MS}"))


def _serve_after_ack() -> None:
    """An ack puts the message back instead of marking it as deleted."""
    _change_query("ack", ("life = 1, ts = %(until)s", "ts = %(now)s, lock_consumer = NULL"))


def _revive_a_dropped_topic() -> None:
    """The name of a deleted topic is free before its messages are removed, and the next topic gets them."""
    _change_query("purge_dropped", ("WHERE w.topic = dropped.topic", "WHERE false"))
    _change_query("free_names", ("AND (SELECT true", "AND true OR (SELECT true"))
    _change_query(
        "insert_topic",
        ("INSERT INTO", "WITH made AS (INSERT INTO"),
        (
            "RETURNING uid",
            """RETURNING uid), kept AS (
                UPDATE chronoline.messages m SET topic = %(uid)s
                FROM chronoline.topics t WHERE t.uid = m.topic AND t.name = %(name)s
            ) SELECT uid FROM made""",
        ),
    )


def _write_by_a_wrong_clock() -> None:
    """A broker never compares its clock with the store's."""
    TrustedClock.compare = lambda *_: None  # type: ignore[method-assign]  # the defect


def _resume_under_the_old_version() -> None:
    """A consumer that returns gets its leases under the versions that another process has."""
    _change_query("resume", ("version = m.version + 1, ", ""))


DEFECTS: dict[str, Defect] = {
    "serve-after-ack": Defect(_serve_after_ack, of_messages.SERVED_AGAIN, seconds=1),
    "deliver-before-due": Defect(_deliver_before_due, of_messages.EARLY, seconds=3),
    "take-a-live-lease": Defect(_take_a_live_lease, of_messages.RUN_TWICE),
    "skip-the-version-check": Defect(
        _skip_the_version_check, of_messages.STALE_SUCCESS, ["twin at the same broker"], seconds=12
    ),
    "acknowledge-before-commit": Defect(
        _acknowledge_before_commit, of_messages.LOST, ["kill -9 a broker"]
    ),
    "resume-under-the-old-version": Defect(
        _resume_under_the_old_version,
        of_messages.OLD_VERSION_RETURNED,
        ["kill -9 a consumer, same name", "twin at the same broker"],
        seconds=12,
    ),
    "revive-a-dropped-topic": Defect(
        _revive_a_dropped_topic,
        of_messages.DROPPED_RETURNED,
        ["drop a topic and create it again"],
    ),
    "write-by-a-wrong-clock": Defect(
        _write_by_a_wrong_clock, of_messages.WRONG_CLOCK, ["clock beyond the bound"]
    ),
    "ignore-the-gate": Defect(
        _ignore_the_gate, GRANTED_WITHOUT_ETCD, ["stop etcd"], seconds=10, brokers=3
    ),
    "serve-a-name-twice": Defect(
        _serve_a_name_twice, SERVED_TWICE, ["twin at another broker"], seconds=12, brokers=3
    ),
    "hide-the-cut": Defect(
        _hide_the_cut,
        KEPT_WAITING,
        ["cut a broker off from postgres, silently"],
        seconds=3,
        brokers=3,
        has_racks=False,
    ),
    "forget-a-range": Defect(
        _forget_a_range, of_messages.STARVED, seconds=3, brokers=3, drain_s=15
    ),
}
"""By name, the cheap ones first."""


if __name__ == "__main__":
    DEFECTS[sys.argv.pop(1)].plant()
    main.run()
