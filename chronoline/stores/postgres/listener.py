"""Notices of other processes: LISTEN, and a notice to look again after a reconnection."""

from __future__ import annotations

import json
import threading

from chronoline.databases.postgres import CONNECT_TIMEOUT_S, PostgresDatabase
from chronoline.databases.postgres_listener import PostgresListener
from chronoline.stores.contract import Notice, Returned
from chronoline.stores.notices import NoticeBoard

CHANNEL = "chronoline"
_LONGEST_NOTICE = 50
_RETURNED = "returned:"


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
    returned = notice.returned
    if returned is None:
        return f"{notice.topic_uid}:{notice.due}"
    told = [notice.topic_uid, returned.at, returned.session, returned.consumer]
    return _RETURNED + json.dumps(told)


def parse_notice(payload: str) -> Notice:
    """A notice from "topic uid:due", or of a consumer that returned; anything else means: look."""
    if payload.startswith(_RETURNED):
        try:
            told = json.loads(payload.removeprefix(_RETURNED))
        except ValueError:
            return Notice()
        if isinstance(told, list) and [type(each) for each in told] == [int, int, str, str]:
            return Notice(topic_uid=told[0], returned=Returned(*told[1:]))
        return Notice()
    uid, _, due = payload.partition(":")
    if len(payload) < _LONGEST_NOTICE and uid.isdecimal() and due.isdecimal():
        return Notice(topic_uid=int(uid), due=int(due))
    return Notice()
