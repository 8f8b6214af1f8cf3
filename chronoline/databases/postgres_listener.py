"""LISTEN on a channel: one thread with a connection of its own.

State: connected, or connecting. Notifications are missed meanwhile, so it calls `missed` when the connection
is lost, from when on callers must ask the store themselves, and again when it is back, since they must ask
once more.

Failure: it reconnects forever. It finds a dead and silent connection by a query when nothing arrived for a
while.
"""

from __future__ import annotations

import logging
import selectors
import socket
import threading
from collections.abc import Callable

from chronoline.databases.postgres import CONNECT_TIMEOUT_S, Connection, PostgresDatabase
from chronoline.runtime.fork_guard import ForkGuard

_RECONNECT_S = 0.5
_CHECK_S = 5.0
_PATIENCE_S = 5.0
"""A connection that leaves a query unanswered for this long is dead."""

logger = logging.getLogger(__name__)


class PostgresListener:
    """Calls `heard` with each payload of a channel, and `missed` when some may have been missed.

    Both are called by its thread, one after the other, and should be quick.
    """

    def __init__(
        self,
        database: PostgresDatabase,
        channel: str,
        *,
        heard: Callable[[str], None],
        missed: Callable[[], None],
    ) -> None:
        self._database = database
        self._channel = channel
        self._heard = heard
        self._missed = missed
        self._connected = False
        self._stopped = False
        self._fork_guard = ForkGuard("the listener")
        self._bell, self._bell_rope = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="chronoline-listener", daemon=True)
        self._thread.start()

    @property
    def connected(self) -> bool:
        """Whether it is connected, so that no notification is missed."""
        return self._connected and not self._stopped

    def close(self) -> None:
        """Ends the thread, whether or not the server answers. May be called twice.

        In a fork it does nothing: the thread, and the bell that ends it, are its parent's.
        """
        if self._stopped or self._fork_guard.is_forked:
            return
        self._stopped = True
        self._bell_rope.send(b"x")
        self._thread.join(CONNECT_TIMEOUT_S + _PATIENCE_S)
        if not self._thread.is_alive():
            self._bell.close()
            self._bell_rope.close()

    def _run(self) -> None:
        said = False  # warn of a lost connection once, not at each try
        while not self._stopped:
            try:
                with self._database.connect(patience_s=_PATIENCE_S) as connection:
                    connection.execute(f"LISTEN {self._channel}".encode())
                    said = False
                    self._listen(connection)
            except (
                Exception
            ) as error:  # an error of any kind must not end the thread: sleepers depend on it
                if not said and not self._stopped:
                    logger.warning("listening on %r failed, trying again: %s", self._channel, error)
                    said = True
                self._lose()
                self._rings(_RECONNECT_S)

    def _listen(self, connection: Connection) -> None:
        self._connected = True
        self._missed()
        while not self._stopped:
            for notify in connection.notifies(timeout=0):
                self._heard(notify.payload)
            if not self._rings(_CHECK_S, connection):
                connection.execute("SELECT 1")

    def _lose(self) -> None:
        """Marks the connection as lost, then calls `missed`: from then on callers poll the store."""
        if self._connected:
            self._connected = False
            self._missed()

    def _rings(self, timeout_s: float, connection: Connection | None = None) -> bool:
        """Waits until the connection is readable or the listener closes; false after a time-out."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._bell, selectors.EVENT_READ)
            if connection is not None:
                selector.register(connection, selectors.EVENT_READ)
            ready = [key.fileobj for key, _ in selector.select(timeout_s)]
        if self._bell in ready:
            self._bell.recv(1)  # so that it wakes once
        return bool(ready)
