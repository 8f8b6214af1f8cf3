"""Hearing of changes that other processes made: LISTEN, and looking again after a reconnection."""

from __future__ import annotations

import logging
import threading

from chronoline.core.errors import StoreError
from chronoline.databases.postgres import CONNECT_TIMEOUT_S, Connection, PostgresDatabase
from chronoline.stores.contract import Notice
from chronoline.stores.notices import NoticeBoard

CHANNEL = "chronoline"
_RECONNECT_S = 0.5
_CHECK_S = 5.0
_LONGEST_NOTICE = 50

logger = logging.getLogger(__name__)


class Listener:
    """One thread that listens on a connection of its own and tells a notice board."""

    def __init__(self, database: PostgresDatabase, board: NoticeBoard) -> None:
        self._database = database
        self._board = board
        self._stopped = threading.Event()
        self._listening = threading.Event()
        self._thread = threading.Thread(target=self._run, name="chronoline-listener", daemon=True)

    def start(self) -> None:
        """Returns when it listens, so that what is looked at next cannot be missed."""
        self._thread.start()
        self._listening.wait(CONNECT_TIMEOUT_S)

    def stop(self) -> None:
        """Ends the thread; it hears of it by a word on its own channel."""
        self._stopped.set()
        try:
            self._database.run("SELECT pg_notify(%(channel)s, '')", {"channel": CHANNEL})
        except StoreError as error:
            logger.warning("the listener is left to end by itself: %s", error)
        else:
            self._thread.join(_CHECK_S)

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                with self._database.connect() as connection:
                    self._listen(connection)
            except Exception as error:  # whatever it is, sleepers must go on hearing
                logger.warning("listening for changes failed, trying again: %s", error)
                self._stopped.wait(_RECONNECT_S)

    def _listen(self, connection: Connection) -> None:
        connection.execute(f"LISTEN {CHANNEL}".encode())
        self._listening.set()
        self._board.tell(Notice())
        while not self._stopped.is_set():
            for notify in connection.notifies(timeout=_CHECK_S, stop_after=1):
                self._board.tell(parse_notice(notify.payload))
            connection.execute("SELECT 1")  # a line that is dead would be silent for ever


def parse_notice(payload: str) -> Notice:
    """A notice from "topic uid:due"; anything else means: look."""
    uid, _, due = payload.partition(":")
    if len(payload) < _LONGEST_NOTICE and uid.isdecimal() and due.isdecimal():
        return Notice(topic_uid=int(uid), due=int(due))
    return Notice()
