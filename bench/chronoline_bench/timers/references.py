"""The references of the bench `timers`: the same work without Chronoline, or without storage."""

from __future__ import annotations

import asyncio
import heapq
import json
import sqlite3
import time
from pathlib import Path

import aiohttp
import psutil  # type: ignore[import-untyped]  # it ships no types
from aiohttp import web

from chronoline.core.errors import ChronolineError
from chronoline_bench.engines.sqlite import connect
from chronoline_bench.harness.agent import freeze_heap
from chronoline_bench.timers.requests import OPAQUE, SentTimer, When, now_us, write_sent

_COLUMNS = "id, start_ms, wall_start_ms, boot, record, confirmed"
_INSERT = f"INSERT INTO timers ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)"


async def call(
    *, uri: str, first: int, timers: int, when: dict[str, int], path: str
) -> dict[str, float]:
    """Sleeps until each timer is due and calls by aiohttp, without other nodes or a disk."""
    loop = asyncio.get_running_loop()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def post(number: int) -> None:
            async with session.post(uri, data=OPAQUE % number) as response:
                await response.read()

        interval_ms = When(**when).intervals(timers)
        freeze_heap()
        started_us = now_us()
        sent = []
        calls: list[asyncio.Task[None]] = []
        for place in range(timers):
            number = first + place
            begun_us = now_us()
            interval = interval_ms(place, begun_us - started_us)
            due_us = begun_us + interval * 1_000
            sent.append(SentTimer(number, 0, due_us, interval))
            loop.call_at(
                due_us / 1e6,
                lambda n=number: calls.append(loop.create_task(post(n))),  # type: ignore[misc]  # mypy does not see the default
            )
        write_sent(Path(path), sent)
        last_us = max(each.due_us for each in sent)
        while len(calls) < timers:
            await asyncio.sleep(max(0.01, (last_us - now_us()) / 1e6))  # until the last is due
        await asyncio.gather(*calls)
    return {"started_us": started_us, "ended_us": now_us(), "taken": timers}


async def serve_nothing() -> web.ServerRunner:
    """Starts an aiohttp server that reads a timer, and answers without storing it."""

    async def answer(request: web.BaseRequest) -> web.Response:
        json.loads(await request.read())
        return web.Response(headers={"Location": f"/timers/{0:032x}", "X-Copies": "1/1"})

    runner = web.ServerRunner(web.Server(answer, access_log=None), handle_signals=False)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return runner


def hold(timers: int, uri: str) -> float:
    """Returns the bytes of a timer as a plain tuple in a dict, with its due time in a heap."""
    process = psutil.Process()
    freeze_heap()
    before_bytes = process.memory_info().rss
    held = {}
    heap: list[tuple[int, int]] = []
    for number in range(timers):
        # Each timer has its own numbers and opaque text.
        timer_id, due_ms = number * 0x9E3779B97F4A7C15 % (1 << 64), 86_400_000 + number
        held[timer_id] = (timer_id, due_ms, 86_400_000, uri, (OPAQUE % number).decode())
        heapq.heappush(heap, (due_ms, timer_id))
    taken: int = process.memory_info().rss - before_bytes
    return taken / len(held)


def insert(journal: Path, scratch: Path, rows: int, batch: int) -> float:
    """Copies a journal's rows by raw SQLite, `batch` rows per commit; returns rows per second."""
    source = sqlite3.connect(f"file:{journal}?mode=ro", uri=True)
    copied = source.execute(
        f"SELECT {_COLUMNS} FROM timers ORDER BY start_ms LIMIT ?", [rows]
    ).fetchall()
    tables = source.execute("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL").fetchall()
    source.close()
    if len(copied) < rows:
        raise ChronolineError(f"the journal has {len(copied)} rows, not {rows}")
    target = connect(scratch)
    for (table,) in tables:
        target.execute(table)
    started = time.perf_counter()
    for start in range(0, rows, batch):
        target.execute("BEGIN IMMEDIATE")
        target.executemany(_INSERT, copied[start : start + batch])
        target.execute("COMMIT")
    took_s = time.perf_counter() - started
    target.close()
    scratch.unlink()
    return rows / took_s


def read_all(journal: Path) -> float:
    """Returns the seconds to read all rows of a journal, and to parse their JSON."""
    started = time.perf_counter()
    source = sqlite3.connect(f"file:{journal}?mode=ro", uri=True)
    held = {
        row[0]: (row, json.loads(row[-2]))
        for row in source.execute(f"SELECT {_COLUMNS} FROM timers")
    }
    source.close()
    return (time.perf_counter() - started) if held else 0.0
