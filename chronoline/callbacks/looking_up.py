"""The addresses of names, as the machine finds them."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import socket
import threading
from contextlib import suppress
from queue import SimpleQueue

_MOST_THREADS = 256

Name = tuple[str, int]
"""A host and a port."""


class Lookups:
    """Asks in threads of its own, and one for each name: a name that nobody answers for delays no other.

    Who asks while a name is looked up shares the answer; nothing is remembered. A machine may take half a
    minute to find that nobody answers, so threads are many, and the end of the process waits for none.
    """

    def __init__(self, most_threads: int = _MOST_THREADS) -> None:
        self._most_threads = most_threads
        self._names: SimpleQueue[Name | None] = SimpleQueue()
        self._threads = 0
        self._asked: dict[Name, asyncio.Future[list[str]]] = {}

    async def __call__(self, host: str, port: int) -> list[str]:
        """In the order in which they are to be tried. Raises `OSError`, and `UnicodeError` for no name."""
        with suppress(ValueError):
            return [str(ipaddress.ip_address(host))]
        asked = self._asked.get((host, port))
        if asked is None:
            asked = self._ask((host, port))
        return await asyncio.shield(asked)

    def close(self) -> None:
        """Nobody waits for what is still being looked up."""
        for _ in range(self._threads):
            self._names.put(None)

    def _ask(self, name: Name) -> asyncio.Future[list[str]]:
        if len(self._asked) == self._threads:  # none is idle
            if self._threads == self._most_threads:
                raise OSError(errno.EAGAIN, "too many names are being looked up")
            self._start_thread()
        asked = self._asked[name] = asyncio.get_running_loop().create_future()
        self._names.put(name)
        return asked

    def _start_thread(self) -> None:
        loop = asyncio.get_running_loop()
        run = threading.Thread(
            target=self._answer_all, args=(loop,), name="chronoline-lookup", daemon=True
        )
        run.start()
        self._threads += 1

    def _answer_all(self, loop: asyncio.AbstractEventLoop) -> None:
        while (name := self._names.get()) is not None:
            found: list[str] | Exception
            try:
                found = _look_up(*name)
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


def _look_up(host: str, port: int) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[4][0]) for address in found))
