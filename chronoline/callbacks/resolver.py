"""Look-ups of host names by the system, in threads."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import socket
import threading
from contextlib import suppress

_MOST_AT_ONCE = 256

Name = tuple[str, int]
"""A host and a port."""


class Lookups:
    """Looks up each name in a separate thread: a name without an answer delays no other.

    Callers that ask for a name at the same time share the answer; nothing is cached. The system can take half
    a minute to fail, so up to 256 look-ups run at once, and the process does not wait for them at its end.
    """

    def __init__(self, most_at_once: int = _MOST_AT_ONCE) -> None:
        self._most_at_once = most_at_once
        self._asked: dict[Name, asyncio.Future[list[str]]] = {}

    async def __call__(self, host: str, port: int) -> list[str]:
        """The addresses in the order to try them.

        Raises `OSError`, also for an invalid name, and `RuntimeError` if no thread can be started.
        """
        with suppress(ValueError):
            return [str(ipaddress.ip_address(host))]
        asked = self._asked.get((host, port))
        if asked is None:
            asked = self._ask((host, port))
        return await asyncio.shield(asked)

    def _ask(self, name: Name) -> asyncio.Future[list[str]]:
        if len(self._asked) >= self._most_at_once:
            raise OSError(errno.EAGAIN, "too many names are being looked up")
        loop = asyncio.get_running_loop()
        asked: asyncio.Future[list[str]] = loop.create_future()
        threading.Thread(
            target=self._look_up, args=(loop, name), name="chronoline-lookup", daemon=True
        ).start()
        self._asked[name] = asked  # once its thread runs
        return asked

    def _look_up(self, loop: asyncio.AbstractEventLoop, name: Name) -> None:
        found: list[str] | Exception
        try:
            host, port = name
            # As bytes: of a text Python refuses the labels that its own codec cannot encode.
            addresses = socket.getaddrinfo(host.encode(), port, type=socket.SOCK_STREAM)
            found = list(dict.fromkeys(str(each[4][0]) for each in addresses))
        except Exception as error:  # the callers get it
            found = error
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(self._answered, name, found)

    def _answered(self, name: Name, found: list[str] | Exception) -> None:
        asked = self._asked.pop(name)
        if isinstance(found, Exception):
            asked.set_exception(found)
            asked.exception()  # marks it as retrieved: the callers may be gone
        else:
            asked.set_result(found)
