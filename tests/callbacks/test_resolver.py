"""Names are looked up in parallel: a hanging one delays no other."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
from collections import Counter
from typing import Any

import pytest

from chronoline.callbacks.resolver import Lookups
from tests.deadline import run_scene


def test_hanging_name_takes_one_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    let_go = threading.Event()
    asked: Counter[bytes] = Counter()

    def getaddrinfo(host: bytes, port: int, **_: Any) -> list[Any]:
        asked[host] += 1
        if host == b"hangs.example":
            let_go.wait(60)
            raise socket.gaierror(-2, "Name or service not known")
        return [(2, 1, 6, "", (address, port)) for address in ("192.0.2.1", "192.0.2.1", "::1")]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)

    async def scene() -> None:
        lookups = Lookups()
        try:
            hanging = [asyncio.create_task(lookups("hangs.example", 80)) for _ in range(200)]
            given_up = asyncio.create_task(lookups("hangs.example", 80))
            await asyncio.sleep(0)  # they have all begun
            given_up.cancel()
            assert await lookups("quick.example", 80) == ["192.0.2.1", "::1"]
            assert not any(each.done() for each in hanging)
            let_go.set()
            failed = await asyncio.gather(*hanging, return_exceptions=True)
            assert {type(each) for each in failed} == {socket.gaierror}
            assert await lookups("quick.example", 80) == ["192.0.2.1", "::1"]
        finally:
            let_go.set()
        assert asked == {b"hangs.example": 1, b"quick.example": 2}

    run_scene(scene)


def test_hanging_names_are_bounded_and_do_not_block_exit() -> None:
    program = """
import asyncio, socket, threading
from chronoline.callbacks.resolver import Lookups

async def main():
    socket.getaddrinfo = lambda *_, **__: threading.Event().wait()
    lookups = Lookups(most_at_once=2)
    hanging = [asyncio.create_task(lookups(f"{number}.example", 80)) for number in range(2)]
    await asyncio.sleep(0)  # they have begun
    try:
        await lookups("another.example", 80)
    except OSError as error:
        print(error.strerror)

asyncio.run(main())
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert ended.stdout == "too many names are being looked up\n"


def test_an_address_needs_no_thread() -> None:
    async def scene() -> None:
        lookups = Lookups()
        assert await lookups("127.0.0.1", 80) == ["127.0.0.1"]
        assert await lookups("::1", 80) == ["::1"]

    run_scene(scene)


@pytest.mark.parametrize("name", ["a..b", "xn--a", "xn--", "a" * 64])
def test_name_that_cannot_be_encoded_is_unknown(name: str) -> None:
    async def scene() -> None:
        with pytest.raises(socket.gaierror):
            await Lookups()(name, 80)

    run_scene(scene)
