"""Each change of a message has its traits, and the layers derive from them what they need to know of it.

The literals here are the rules.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from chronoline.broker.http.consumer_routes import CONSUMER_PATHS
from chronoline.broker.metrics import BrokerMetrics
from chronoline.cli import messages
from chronoline.core.change import CHANGES, DELETIONS, EXTENSIONS, LEASE_OPERATIONS, Change
from chronoline.core.outcome import Outcome, Refusal
from chronoline.core.permissions import (
    PERMISSIONS,
    TRAITS,
    NewTime,
    Operation,
    Role,
    changes_with,
)
from chronoline.stores.guards import NEEDS_TIME_AHEAD, SETS_TIME, dues_of

ROOT = Path(__file__).parents[2]
NO_CHANGES = {"create", "read_body", "update_body", "lease", "dead_letter", "purge"}
"""Operations without traits: they make, read or lease messages, or are a part of the store's own work."""
NOW, TO = 1_000, 5_000

MESSAGES, LEASES = "topic_messages", "topic_leases"
COUNTED: dict[str, tuple[str, str] | None] = {
    "create": (MESSAGES, "create"),
    "extend": (LEASES, "extend"),
    "release": (MESSAGES, "released"),
    "retry": (MESSAGES, "released"),
    "bury": (MESSAGES, "buried"),
    "unreserve": (MESSAGES, "unreserved"),
    "ack": (MESSAGES, "delete"),
    "reschedule": (MESSAGES, "rescheduled"),
    "cancel": (MESSAGES, "delete"),
    "redrive": None,
    "discard": None,
}
QUERIES = {
    "create": ("create", "lookup", "all"),
    "extend": ("update", "lookup", "processing"),
    "release": ("update", "lookup", "processing"),
    "retry": ("update", "lookup", "processing"),
    "bury": ("delete", "lookup", "processing"),
    "unreserve": ("update", "lookup", "processing"),
    "ack": ("delete", "lookup", "processing"),
    "reschedule": ("update", "lookup", "waiting"),
    "cancel": ("delete", "lookup", "waiting"),
    "redrive": ("update", "lookup", "all"),
    "discard": ("delete", "lookup", "all"),
}
WAKES_AT = {"release": TO, "retry": TO, "reschedule": TO, "redrive": TO, "unreserve": NOW}


def test_every_operation_has_traits_or_is_no_change() -> None:
    assert set(Operation) - set(TRAITS) == NO_CHANGES


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_every_change_has_its_queries(engine: str) -> None:
    queries = (ROOT / "chronoline" / "stores" / engine / "queries.sql").read_text("utf-8")
    named = set(re.findall(r"^-- name: (\w+)", queries, re.M))
    assert named >= CHANGES | {f"{each}_remove" for each in DELETIONS}


def test_every_change_of_owners_is_a_command() -> None:
    assert [each for each in changes_with(Role.OWNER) if not hasattr(messages, each)] == []


@pytest.mark.parametrize("operation", TRAITS)
def test_the_permissions_allow_a_change_to_its_role_alone(operation: Operation) -> None:
    roles = {role for role in Role if None in PERMISSIONS[role, operation].values()}
    of_letters = {Role.SYSTEM, Role.OWNER}
    assert roles == (of_letters if Role.SYSTEM in roles else {TRAITS[operation].role})
    assert TRAITS[operation].role in roles


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (LEASE_OPERATIONS, "extend release retry bury unreserve ack"),
        (CHANGES, "extend release retry bury unreserve ack reschedule cancel redrive discard"),
        (EXTENSIONS, "extend"),
        (DELETIONS, "ack cancel discard"),
        (NEEDS_TIME_AHEAD, "extend release retry"),
        (SETS_TIME, "extend release retry reschedule redrive"),
        (changes_with(NewTime.ANY), "reschedule redrive"),
        (changes_with(Role.SYSTEM), "redrive discard"),
    ],
)
def test_changes_by_their_traits(found: frozenset[Operation], wanted: str) -> None:
    assert found == set(wanted.split())


@pytest.mark.parametrize("operation", TRAITS)
def test_a_move_wakes_sleepers(operation: Operation) -> None:
    change = Change(operation, "a", "c", to=TO, until=TO)
    wakes_at = WAKES_AT.get(operation)
    assert dues_of([(0, change)], NOW) == ({} if wakes_at is None else {"a": wakes_at})


@pytest.mark.parametrize("operation", TRAITS)
def test_a_shortened_lease_wakes_sleepers(operation: Operation) -> None:
    change = Change(operation, "a", "c", to=TO, until=TO + 1)
    wakes_at = TO if operation == "extend" else WAKES_AT.get(operation)
    assert dues_of([(0, change)], NOW) == ({} if wakes_at is None else {"a": wakes_at})


def counts_of(metrics: BrokerMetrics) -> set[tuple[str, tuple[str, ...]]]:
    """Returns the counters that are not 0, with their labels."""
    return {(name, labels) for name, labels, value in metrics.snapshot().samples if value}


@pytest.mark.parametrize("command", [*TRAITS, "create"])
def test_outcomes_are_counted_under_their_words(command: str) -> None:
    metrics = BrokerMetrics()
    metrics.changed(command, "t", [Outcome(id="a"), Outcome(id="b", refusal=Refusal.STALE)])
    counted = COUNTED[command]
    wanted = set()
    if counted is not None:
        family, op = counted
        wanted = {(f"{family}_{each}", (op, "t")) for each in ("count", "errors")}
    assert counts_of(metrics) == wanted


@pytest.mark.parametrize("command", [*TRAITS, "create"])
def test_queries_are_counted_under_their_words(command: str) -> None:
    metrics = BrokerMetrics()
    metrics.query_failed(command, "t")
    labels = (*QUERIES[command], "t")
    names = ("storage_queries_count", "storage_queries_errors")
    assert counts_of(metrics) == {(name, labels) for name in names}


def test_owners_changes_are_commands_in_this_order() -> None:
    assert [each for each in TRAITS if TRAITS[each].role is Role.OWNER] == ["reschedule", "cancel"]


def test_paths_of_consumers() -> None:
    assert CONSUMER_PATHS == ("/receive", "/ack", "/extend", "/release", "/retry", "/bury")
