"""Requests that announce a body and do not send it: a server that reads it before it answers waits for it."""

from __future__ import annotations

import asyncio


async def ask_without_body(port: int, method: str, path: str, **headers: str) -> int:
    """The status of the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    given = {"host": "localhost", "content-length": "1000", **headers}
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in given.items()]
    writer.write("\r\n".join([f"{method} {path} HTTP/1.1", *lines, "", ""]).encode())
    try:
        return int((await reader.readline()).split()[1])
    finally:
        writer.close()
