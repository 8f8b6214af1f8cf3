"""The addresses of names, as the machine finds them."""

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
    """Asks in a thread for each name: one that nobody answers for delays no other.

    Who asks while a name is looked up shares the answer; nothing is remembered. A machine may take half a
    minute to find that nobody answers, so there may be many at once, and the end of the process waits for
    none.
    """

    def __init__(self, most_at_once: int = _MOST_AT_ONCE) -> None:
        self._most_at_once = most_at_once
        self._asked: dict[Name, asyncio.Future[list[str]]] = {}

    async def __call__(self, host: str, port: int) -> list[str]:
        """In the order in which they are to be tried. Raises `OSError`, and `UnicodeError` for no name.

        Where no thread can be started, `RuntimeError`.
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
        self._asked[name] = asked  # once there is a thread that answers it
        return asked

    def _look_up(self, loop: asyncio.AbstractEventLoop, name: Name) -> None:
        found: list[str] | Exception
        try:
            addresses = socket.getaddrinfo(*name, type=socket.SOCK_STREAM)
            found = list(dict.fromkeys(str(each[4][0]) for each in addresses))
        except Exception as error:  # whoever asked is told
            found = error
        with suppress(RuntimeError):  # the loop is closed, and nobody asks any more
            loop.call_soon_threadsafe(self._answered, name, found)

    def _answered(self, name: Name, found: list[str] | Exception) -> None:
        asked = self._asked.pop(name)
        if isinstance(found, Exception):
            asked.set_exception(found)
            asked.exception()  # whoever still waits is told; there may be nobody
        else:
            asked.set_result(found)
