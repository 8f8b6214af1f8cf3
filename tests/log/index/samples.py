"""Sample values for every named query of the SQL engines, and 50,000 chunks to try them on.

A query that is added without a sample fails the test of plans.
"""

from typing import Any

CHUNKS = 50_000
PARTITIONS = 5
GROUPS = 2_000
NOW = 1_800_000_000_000
TOPIC = 77
FEW = 99
"""A topic with few readers."""
SOURCES = 200
MIDDLE = CHUNKS // 2
NAMES = [f"o{number}" for number in range(1_000, 1_010)]

_PLACE = {"topic": TOPIC, "partition": 0}
_GROUP = {"topic": TOPIC, "group": "g7"}
_CURSOR = _GROUP | {"partition": 0, "holder": "h", "fence": 1}
_TIME = {"now": NOW, "until": NOW + 1_000}
_NEW = {"count": 2, "start": 8, "length": 20}
_COMMON: dict[str, dict[str, Any]] = {
    "topics": {},
    "topic": {"name": "t"},
    "heads": {"topic": TOPIC},
    "object": {"name": NAMES[0]},
    "chunks": _PLACE | {"from": MIDDLE, "limit": 100},
    "sequence_at": _PLACE | {"ts": NOW + MIDDLE},
    "groups": {"topic": TOPIC},
    "untold": {"topic": TOPIC},
    "unreferenced": {"limit": 100},
    "leave": _GROUP | {"member": "m7"},
    "begin_notice": _PLACE | {"now": NOW, "latency": 100},
    "untell": _PLACE | {"sequence": 5},
    "end_notice": _PLACE | {"now": NOW, "sequence": 5, "since": 0},
    "deleted_topics": {},
    "purge_cursors": {"uid": TOPIC, "limit": 100},
    "forget_topic": {"uid": TOPIC},
    "floor_above": {"name": "new", "prefix": "once-7-"},
    "group_uid": _GROUP,
    "open_group": _GROUP | {"uid": 1},
    "delete_group": _GROUP,
    "has_gone": {"floor": "gone1"},
    "raise_floor": {"floor": "gone1"},
}

SQLITE: dict[str, dict[str, Any]] = _COMMON | {
    "log_id": {},
    "tie": {"id": "log"},
    "insert_topic": {"uid": 1_078, "name": "other", "partitions": 4},
    "insert_head": {"topic": 1_078, "partition": 0},
    "delete_topic": {"uid": TOPIC},
    "delete_heads": {"uid": TOPIC},
    "note_deleted": {"uid": 1_078},
    "chunks_of_topic": {"uid": TOPIC, "limit": 100},
    "purge_members": {"uid": FEW},
    "purge_groups": {"uid": FEW},
    "purge_floors": {"uid": FEW},
    "delete_cursors": _GROUP,
    "delete_members": _GROUP,
    "settle_source": {"prefix": "once-7-", "topic": TOPIC, "floor": "once-7-3"},
    "gone_names": {"limit": 100},
    "forget_name": {"name": "gone1"},
    "claim_object": {"name": "new", "refs": 1, "prefix": "once-7-"},
    "note_given": {"name": NAMES[0], "given": "[1]"},
    "advance": _PLACE | {"count": 2, "now": NOW},
    "insert_chunk": _PLACE | _NEW | {"first": CHUNKS, "object": "new", "appended": NOW},
    "join": _GROUP | {"member": "m7", "until": NOW},
    "forget_members": _GROUP | {"now": NOW},
    "members": _GROUP,
    "hold": _CURSOR | _TIME,
    "renew": _CURSOR | _TIME,
    "progress": _CURSOR | {"sequence": 7, "now": NOW},
    "let_go": _CURSOR,
    "seek": _GROUP | {"partition": 0, "sequence": 7},
    "notice_wait": _PLACE,
    "sweep": {"name": "new", "now": NOW},
    "doomed": _PLACE | {"before": 50, "limit": 100},
    "delete_chunk": _PLACE | {"first": MIDDLE, "object": f"o{MIDDLE}"},
    "unrefer": {"object": NAMES[0]},
    "move_first": _PLACE | {"first": 7},
    "forget": {"name": NAMES[0]},
}

_HOLDS = {
    "topic": [TOPIC] * 5,
    "group": ["g7"] * 5,
    "partition": list(range(5)),
    "holder": ["h"] * 5,
    "fence": [1] * 5,
}

POSTGRES: dict[str, dict[str, Any]] = _COMMON | {
    "log_id": {},
    "tie": {"id": "log"},
    "create_topic": {"uid": 1_078, "name": "other", "partitions": 4},
    "commit": {
        "name": "new",
        "now": NOW,
        "chunks": 3,
        "topic": [TOPIC] * 3,
        "partition": [0, 1, 2],
        "count": [2, 2, 2],
        "start": [8, 28, 48],
        "length": [20, 20, 20],
        "word": "me:77",
        "prefix": "once-7-",
        "floor": "once-7-3",
    },
    "delete_topic": {"uid": TOPIC, "word": "me:77"},
    "purge_chunks": {"uid": TOPIC, "limit": 100},
    "purge_rest": {"uid": FEW},
    "is_deleted": {"uid": TOPIC},
    "open_source": {"prefix": "once-new-", "topic": TOPIC},
    "delete_progress": _GROUP,
    "raise_heads": {"topic": TOPIC, "floor": "gone1"},
    "reach_floor": {"floor": "gone1"},
    "forget_names": {"limit": 100},
    "join": _GROUP | _TIME | {"member": "m7", "group_uid": 7},
    "hold": _GROUP | _TIME | {"partitions": [0, 1, 2], "holder": "h", "group_uid": 7},
    "renew": _HOLDS | _TIME,
    "progress": _HOLDS | {"sequence": [7] * 5, "now": NOW},
    "let_go": _HOLDS,
    "seek": _GROUP | {"partition": [0, 1], "sequence": [7, 8]},
    "sweep": {"names": [*NAMES, "new"], "now": NOW},
    "swept": {"names": NAMES},
    "lock_head": _PLACE,
    "trim": _PLACE | {"before": 50, "limit": 100},
    "claim_object": {"name": "new"},
    "replace": _PLACE
    | _NEW
    | {"first": MIDDLE, "stop": MIDDLE + 10, "name": NAMES[0], "appended": NOW},
    "forget": {"names": NAMES},
}

# Rows by table: columns, and their values by a number n. Partition 0 has most of the chunks.
ROWS: dict[str, tuple[int, str, str]] = {
    "topics": (100, "uid, name, partitions", "n, CASE n WHEN 77 THEN 't' ELSE 't' || n END, 5"),
    "heads": (
        100 * PARTITIONS,
        "topic, partition, next_sequence",
        f"n / {PARTITIONS}, n % {PARTITIONS}, {CHUNKS}",
    ),
    "objects": (
        2 * CHUNKS,
        "name, refs",
        f"CASE WHEN n < {CHUNKS} THEN 'o' ELSE 'gone' END || (n % {CHUNKS}),"
        f" CASE WHEN n < {CHUNKS} THEN 1 ELSE -2 END",
    ),
    "floors": (
        SOURCES,
        "prefix, topic, floor",
        f"'once-' || n || '-', CASE n % 100 WHEN 0 THEN {FEW} ELSE {TOPIC} END, 'once-' || n || '-2'",
    ),
    "deleted_topics": (10, "uid", f"{TOPIC} + n"),
    "reader_groups": (
        GROUPS,
        "topic, reader_group, uid",
        f"CASE n % 100 WHEN 0 THEN {FEW} ELSE {TOPIC} END, 'g' || n, n",
    ),
    "chunks": (
        CHUNKS,
        "topic, partition, first_sequence, count, object, start, length, appended_ms",
        f"{TOPIC}, CASE n % 10 WHEN 9 THEN 1 ELSE 0 END, n, 1, 'o' || n, 8, 10, {NOW} + n",
    ),
    "cursors": (
        GROUPS * PARTITIONS,
        "topic, reader_group, partition, holder, fence, until_ms",
        f"{TOPIC} + n % 3, 'g' || (n / {PARTITIONS}), n % {PARTITIONS}, 'h', 1, {NOW} + 1",
    ),
    "members": (
        GROUPS * 3,
        "topic, reader_group, member, until_ms",
        f"{TOPIC}, 'g' || (n / 3), 'm' || n, {NOW} + 1",
    ),
}

FLOOR = "UPDATE {floors} SET floor = 'gone5' WHERE prefix = ''"
