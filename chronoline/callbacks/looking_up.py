"""The addresses of names, as the machine finds them."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

_THREADS = 32


class Lookups:
    """Asks in threads of its own, and one for each name: a name that nobody answers for delays no other.

    Who asks while a name is looked up shares the answer; nothing is remembered.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, "chronoline-lookup")
        self._asked: dict[tuple[str, int], asyncio.Future[list[str]]] = {}

    async def __call__(self, host: str, port: int) -> list[str]:
        """In the order in which they are to be tried. Raises `OSError`, and `UnicodeError` for no name."""
        with suppress(ValueError):
            return [str(ipaddress.ip_address(host))]
        asked = self._asked.get((host, port))
        if asked is None:
            loop = asyncio.get_running_loop()
            asked = loop.run_in_executor(self._threads, _look_up, host, port)
            self._asked[host, port] = asked
            asked.add_done_callback(lambda done: self._answered((host, port), done))
        return await asyncio.shield(asked)

    def close(self) -> None:
        """Nobody waits for what is still being looked up."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _answered(self, name: tuple[str, int], done: asyncio.Future[list[str]]) -> None:
        del self._asked[name]
        if not done.cancelled():
            done.exception()  # whoever still waits is told; there may be nobody


def _look_up(host: str, port: int) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[4][0]) for address in found))
