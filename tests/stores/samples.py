"""Sample values for every named query, the indexes that serve it, and rows to try it on.

A query that is added without a sample fails the test of plans.
"""

import json
from typing import Any

NOW = 1_800_000_000_000
TOPIC = 77
BUCKETS = 64
STRIPES = 16
CONSUMER, GROUP = "c7", "g7"
SMALL = [f"m{number}" for number in range(1_000, 1_010)]

# Of 100 rows 92 are messages, 4 marks, 4 dead letters; of 100 messages 3 are leased. They lie in the hour
# around NOW; n is the number of a row.
COLUMNS = "topic, bucket, stripe, id, life, ts, due, version, producer_group, lock_consumer, body"
VALUES = f"""
    {TOPIC}, n % {BUCKETS}, n % {BUCKETS} * {STRIPES} / {BUCKETS}, 'm' || n,
    CASE n % 25 WHEN 23 THEN 1 WHEN 24 THEN 2 ELSE 0 END,
    {NOW} - 1800000 + (n * 7919) % 3600000, {NOW} - 1800000 + (n * 7919) % 3600000, {NOW},
    'g' || (n % 50), CASE WHEN n % 32 = 0 THEN 'c' || (n % 20) END, NULL
"""


def bucket(message_id: str) -> int:
    """Where the row with this id was put; the plans do not mind that it is not the hash."""
    return int(message_id[1:]) % BUCKETS


_CHANGES = [
    *("extend", "release", "retry", "bury", "unreserve", "ack", "ack_remove"),
    *("cancel", "cancel_remove", "reschedule", "redrive", "discard", "discard_remove"),
]

# Inputs and members: the same for both

_CLAIM = ["pipe/in", 0, "node", 1, NOW + 10_000, 0]
_INPUTS: dict[str, dict[str, Any]] = {
    "claim_inputs": {
        "source": "pipe/in",
        "starts": "[[0, 0], [1, 5]]",
        "holder": "node",
        "until": NOW + 10_000,
        "now": NOW,
    },
    "renew_claims": {"claims": json.dumps([_CLAIM]), "until": NOW + 10_000, "now": NOW},
    "release_claims": {"claims": json.dumps([_CLAIM])},
    "positions": {"claims": json.dumps([_CLAIM]), "now": NOW},
    "move_inputs": {"moves": json.dumps([["pipe/in", 0, 10, 1, 2, 3, 4, 5, 6, 7]])},
    "input_accounts": {"source": "pipe/in"},
    "forget_inputs": {"source": "pipe/in", "now": NOW},
    "beat": {"group": "pipe", "name": "node", "until": NOW + 1_000, "details": "{}"},
    "forget_members": {"before": NOW},
    "members": {"group": "pipe"},
    "live_groups": {"now": NOW},
    "ask_to_stop": {"group": "pipe", "name": None},
    "leave": {"group": "pipe", "name": "node"},
}

_SCHEDULE = {
    "name": "s7",
    "uid": 7,
    "topic": TOPIC,
    "version": 1,
    "next_ms": NOW,
    "paused": False,
    "producer_group": GROUP,
    "rule": "{}",
    "key": None,
    "headers": None,
    "body": b"x",
}
_SCHEDULES: dict[str, dict[str, Any]] = {
    "insert_schedule": _SCHEDULE,
    "replace_schedule": _SCHEDULE | {"was_uid": 7, "was_version": 1},
    "remove_schedule": {"name": "s7", "uid": 7, "version": 1, "floor": NOW},
    "count_schedules": {"topic": TOPIC, "most": 100},
    "schedule_floor": {"name": "s7"},
    "forget_floors": {"before": NOW},
    "move_schedules": {"moves": json.dumps([["s7", 7, 1, NOW], ["s8", 8, 1, None]])},
    "schedule_named": {"name": "s7"},
    "schedules": {"topic": None, "after": "s", "limit": 100},
    "due_schedules": {"before": NOW + 1_000, "after_ms": NOW, "after": "s7", "limit": 200},
    "next_schedule": {"after_ms": NOW},
}

# SQLite: one statement for each item

_ITEM = {
    "topic": TOPIC,
    "bucket": bucket(SMALL[0]),
    "id": SMALL[0],
    "name": CONSUMER,
    "version": NOW,
    "to": NOW + 60_000,
    "expires": NOW + 90_000,
    "reason": "no use",
    "now": NOW,
    "min_lease_ms": 10,
    "max_attempts": 20,
    "max_lateness_ms": None,
    "until": NOW + 300_000,
}
_CELL = {"topic": TOPIC, "stripe": 3, "start": 12, "stop": 16, "limit": 500}
_LEASE = {"horizon": NOW + 100, "consumer": CONSUMER, "session": "i/p.1", "lease_ms": 1_000}
_ROW = {"no": 1_000}
_NEW = (TOPIC, 5, 1, "new", NOW, NOW, None, GROUP, 0, None, None, b"x", None, NOW)
_PURGE = {"topic": TOPIC, "now": NOW, "settled": NOW - 3_000, "limit": 1_000}
_LOOK = {
    "topic": TOPIC,
    "consumer": CONSUMER,
    "session": "i/p.1",
    "producer_group": GROUP,
    "after": "m2",
    "first": "m",
    "died": NOW - 60_000,
    "limit": 500,
}
_SPAN = {"from": NOW, "end": NOW + 60_000, "step_ms": 1_000, "now": NOW}

_CHANGED_TOPIC = {
    "uid": TOPIC,
    "settings": "{}",
    "revision": 1,
    "paused_at": NOW,
    "paused_by": "ada",
    "pause_reason": "",
}

SQLITE: dict[str, dict[str, Any] | tuple[Any, ...]] = {
    "insert_topic": {"uid": 78, "name": "other", "settings": "{}"},
    "topic": {"uid": TOPIC},
    "floor": {"uid": TOPIC},
    "served_topic": {"uid": TOPIC},
    "topic_named": {"name": "t"},
    "name_taken": {"name": "t"},
    "identity": {},
    "topics": {},
    "unfinished_drops": {},
    "drop_topic": {"uid": TOPIC, "now": NOW},
    "changed_topics": {},
    "change_topic": _CHANGED_TOPIC,
    "create": _NEW,
    "create_new": _NEW,
    "replace": _NEW,
    "put_body": _ROW | {"body": b"x"},
    "body": _ROW,
    "due": _CELL | _LEASE | {"now": NOW},
    "due_at_version": _ITEM | _LEASE,
    "take": _ITEM | _LEASE | {"nos": "[1, 2]"},
    "dead_letter": _ITEM | _LEASE | _ROW,
    "held_live": _LOOK | {"now": NOW},
    "resume": _ROW | {"session": "i/p.1"},
    **dict.fromkeys(
        [*_CHANGES, "row", "lookup"],
        _ITEM,
    ),
    "select": _CELL | {"max_ts": NOW},
    "select_held": _LOOK,
    "scan_held": _LOOK,
    "select_owned": _LOOK,
    "select_keys": _LOOK | {"bucket": bucket(SMALL[0]), "end": "n"},
    "count_owned": _LOOK | {"most": 1_000},
    "next_group": {"topic": TOPIC, "after": ""},
    "next_ts": _CELL,
    "forecast": _CELL | _SPAN,
    "scan": _CELL | _SPAN | {"after": "m2"},
    "dead_letters": _LOOK,
    "raise_floor": _PURGE,
    "purge_marks": _PURGE,
    "topics_without_dead_letters": {},
    "purge_dead": _PURGE,
    "dropped_topics": {},
    "purge_dropped": _PURGE,
    "forget_topic": _PURGE,
    "reject": {
        "topic": TOPIC,
        "keys": json.dumps([[bucket(each), each] for each in SMALL]),
        "now": NOW,
    },
    "keep_letter": _ITEM | {"kept_bucket": 1, "kept_stripe": 0, "kept_id": "kept", "header": b"x"},
    "keep_body": _ITEM | _ROW,
    "restore": _ITEM | {"due": NOW, "attempts": 2, "death": None, "died": 0},
    "mark_early": _ITEM | {"stripe": 1, "producer_group": GROUP, "partition": "pipe/in/0"},
    "free": _ITEM,
    "forget_schedules": {"topic": TOPIC},
    **_SCHEDULES,
    **_INPUTS,
}

# PostgreSQL: one statement for each batch

_ITEMS = {
    "topic": TOPIC,
    "topics": [TOPIC] * len(SMALL),
    "bucket": [bucket(each) for each in SMALL],
    "id": SMALL,
    "expires": [None] * len(SMALL),
    "name": [CONSUMER] * len(SMALL),
    "version": [NOW] * len(SMALL),
    "to": [NOW + 60_000] * len(SMALL),
    "reason": ["no use"] * len(SMALL),
    "now": NOW,
    "min_lease_ms": 10,
    "max_attempts": 20,
    "max_lateness_ms": None,
    "until": NOW + 300_000,
}
CELLS = {
    "topic": TOPIC,
    "stripe": list(range(STRIPES)),
    "start": [stripe * 4 for stripe in range(STRIPES)],
    "stop": [stripe * 4 + 4 for stripe in range(STRIPES)],
    "limit": 500,
    "reach": 500,
    "share": 32,
}
_SHARES = {**CELLS, "share": list(range(1, STRIPES + 1))}
"""One cell each."""
RESERVE = CELLS | _LEASE | {"now": NOW, "since": 0, "max_attempts": 20, "max_lateness_ms": None}
_NEWS = {
    "topic": TOPIC,
    "now": NOW,
    "bucket": [5, 6],
    "stripe": [1, 1],
    "id": ["new1", "new2"],
    "due": [NOW, NOW],
    "expires": [None, NOW + 60_000],
    "producer_group": [GROUP, GROUP],
    "key": [None, b"k"],
    "headers": [None, None],
    "body": [b"x", None],
    "digest": [None, b"d"],
    "replace": True,
}

_DROPPED = _PURGE | {"topics": [TOPIC, 78], "before": NOW}

POSTGRES: dict[str, dict[str, Any]] = {
    "insert_topic": {"uid": 78, "name": "other", "settings": "{}"},
    "topic": {"uid": TOPIC},
    "topic_named": {"name": "t"},
    "name_taken": {"name": "t"},
    "identity": {},
    "topics": {},
    "unfinished_drops": {},
    "drop_topic": {"uid": TOPIC, "now": NOW},
    "changed_topics": {},
    "change_topic": _CHANGED_TOPIC,
    "create": _NEWS,
    "notify": {"payload": f"{TOPIC}:{NOW}"},
    "reserve": RESERVE,
    "reserve_for": RESERVE
    | _SHARES
    | {
        "most": [4] * STRIPES,
        "consumers": [f"c{stripe}" for stripe in range(STRIPES)],
        "sessions": [f"i/p.{stripe}" for stripe in range(STRIPES)],
    },
    "lease": _ITEMS | _LEASE,
    "resume": _LOOK | {"now": NOW},
    **dict.fromkeys(
        [*_CHANGES, "rows", "bodies", "lookup"],
        _ITEMS,
    ),
    "select": CELLS | {"max_ts": NOW},
    "select_held": _LOOK,
    "scan_held": _LOOK,
    "select_owned": _LOOK,
    "select_keys": _LOOK | {"start": 3, "stop": 5, "end": "n"},
    "count_owned": _LOOK | {"most": 1_000},
    "next_group": {"topic": TOPIC, "after": ""},
    "next_times": _SHARES,
    "forecast": CELLS | _SPAN,
    "scan": _CELL | _SPAN | {"after": "m2"},
    "dead_letters": _LOOK,
    "raise_floors": _DROPPED,
    "purge_marks": _PURGE,
    "topics_without_dead_letters": {},
    "purge_dead": _PURGE,
    "dropped_topics": _DROPPED,
    "purge_dropped": _DROPPED,
    "free_names": _DROPPED,
    "forget_topics": _DROPPED,
    "clock": {},
    "reject": _ITEMS,
    "keep_letters": _ITEMS
    | {
        "kept_bucket": [1] * len(SMALL),
        "kept_stripe": [0] * len(SMALL),
        "kept_id": [f"kept {each}" for each in SMALL],
        "header": [b"x"] * len(SMALL),
    },
    "restore": _ITEMS
    | {
        "due": [NOW] * len(SMALL),
        "attempts": [2] * len(SMALL),
        "death": [None] * len(SMALL),
        "died": [0] * len(SMALL),
    },
    "mark_early": _ITEMS
    | {
        "stripe": [1] * len(SMALL),
        "until": [NOW + 1_000] * len(SMALL),
        "partition": ["pipe/in/0"] * len(SMALL),
        "producer_group": GROUP,
    },
    "free": _ITEMS,
    "forget_schedules": {"topics": [TOPIC, 78]},
    **_SCHEDULES,
    **_INPUTS,
}

# The indexes of messages by which each query finds them. Queries that are not here read no messages.

_OF_BOTH: dict[str, frozenset[str]] = {
    **dict.fromkeys(["select", "forecast", "scan"], frozenset({"messages_due"})),
    **dict.fromkeys(["select_held", "scan_held"], frozenset({"messages_held"})),
    **dict.fromkeys(["select_owned", "count_owned", "next_group"], frozenset({"messages_owned"})),
    "dead_letters": frozenset({"messages_dead"}),
    "topics_without_dead_letters": frozenset({"messages_dead"}),
}

POSTGRES_INDEXES: dict[str, frozenset[str]] = {
    **dict.fromkeys(
        [
            *_CHANGES,
            "rows",
            "bodies",
            "lookup",
            "select_keys",
            "lease",
            "reject",
            "restore",
            "keep_letters",
            "free",
            "purge_dropped",
            "free_names",
            "forget_topics",
        ],
        frozenset({"messages_pkey"}),
    ),
    **_OF_BOTH,
    **dict.fromkeys(["reserve", "reserve_for"], frozenset({"messages_due", "messages_pkey"})),
    "next_times": frozenset({"messages_due"}),
    "resume": frozenset({"messages_held", "messages_pkey"}),
    "purge_marks": frozenset({"messages_gone", "messages_pkey"}),
    "purge_dead": frozenset({"messages_dead", "messages_pkey"}),
}

BY_NUMBER = "INTEGER PRIMARY KEY"
SQLITE_INDEXES: dict[str, frozenset[str]] = {
    **dict.fromkeys(
        [
            *_CHANGES,
            "row",
            "lookup",
            "select_keys",
            "due_at_version",
            "forget_topic",
            "restore",
            "keep_letter",
            "keep_body",
            "free",
        ],
        frozenset({"messages_id"}),
    ),
    **dict.fromkeys(["take", "dead_letter", "resume"], frozenset({BY_NUMBER})),
    **_OF_BOTH,
    **dict.fromkeys(["due", "next_ts"], frozenset({"messages_due"})),
    "held_live": frozenset({"messages_held"}),
    "reject": frozenset({"messages_id", BY_NUMBER}),
    "purge_marks": frozenset({"messages_gone", BY_NUMBER}),
    "purge_dead": frozenset({"messages_dead", BY_NUMBER}),
    "purge_dropped": frozenset({"messages_id", BY_NUMBER}),
}

SORTED = {"forecast", "scan"}
"""One counts by step; the other has messages of one millisecond in the order of their ids."""
