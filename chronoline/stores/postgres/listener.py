"""Notices of other processes: LISTEN, and a notice to look again after a reconnection."""

from __future__ import annotations

import json
import re
import threading

from chronoline.databases.postgres import CONNECT_TIMEOUT_S, PostgresDatabase
from chronoline.databases.postgres_listener import PostgresListener
from chronoline.stores.contract import Notice, Returned
from chronoline.stores.notices import NoticeBoard

CHANNEL = "chronoline"
_NOTICE = re.compile(r"(\d{1,19}):(\d{1,19})(?::(\d{1,5}(?:,\d{1,5}){0,99}))?", re.ASCII)
_RETURNED = "returned:"
_CHANGED = "changed:"
_MOST_DIGITS = 19
_SCHEDULES = "schedules"


def start_listening(database: PostgresDatabase, board: NoticeBoard) -> PostgresListener:
    """Forwards notices to a board. Returns once it listens, so that a read that follows misses nothing."""
    listening = threading.Event()

    def missed() -> None:
        board.notify(Notice())
        listening.set()

    listener = PostgresListener(
        database, CHANNEL, heard=lambda payload: board.notify(parse_notice(payload)), missed=missed
    )
    listening.wait(CONNECT_TIMEOUT_S)
    return listener


def write_notice(notice: Notice) -> str:
    """The payload that `parse_notice` reads."""
    if notice.schedules:
        return _SCHEDULES
    returned = notice.returned
    if notice.topic_changed:
        return f"{_CHANGED}{notice.topic_uid}"
    if returned is None:
        when = f"{notice.topic_uid}:{notice.due}"
        return when if notice.buckets is None else f"{when}:{','.join(map(str, notice.buckets))}"
    told = [notice.topic_uid, returned.at, returned.session, returned.consumer]
    return _RETURNED + json.dumps(told)


def parse_notice(payload: str) -> Notice:
    """A notice from "topic uid:due:bucket,…", of schedules, of a changed topic, or a returned consumer.

    Anything else means: look. Without buckets it is of any: so writes the SQL function `chronoline.send`.
    """
    if payload == _SCHEDULES:
        return Notice(schedules=True)
    if payload.startswith(_CHANGED):
        uid = payload.removeprefix(_CHANGED)
        is_uid = uid.isascii() and uid.isdigit() and len(uid) <= _MOST_DIGITS
        return Notice(topic_uid=int(uid), topic_changed=True) if is_uid else Notice()
    if payload.startswith(_RETURNED):
        return _parse_returned(payload.removeprefix(_RETURNED))
    told_of = _NOTICE.fullmatch(payload)
    if told_of is None:
        return Notice()
    uid, due, named = told_of.groups()
    buckets = None if named is None else tuple(int(each) for each in named.split(","))
    return Notice(topic_uid=int(uid), due=int(due), buckets=buckets)


def _parse_returned(payload: str) -> Notice:
    try:
        told = json.loads(payload)
    except ValueError:
        return Notice()
    if isinstance(told, list) and [type(each) for each in told] == [int, int, str, str]:
        return Notice(topic_uid=told[0], returned=Returned(*told[1:]))
    return Notice()
