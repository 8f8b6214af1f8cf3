"""Measures how long the console's pages take on a full store.

python -m scripts.console_times fill sqlite FOLDER --messages 10000000 --topics 1000
python -m scripts.console_times measure sqlite FOLDER

Nine in ten messages are on one topic and fall due during a year; the others are spread over the other topics.
Each page is asked for cold, by the first request to a node that has just been started, with the files of the
store dropped from the cache of the system; and warm, as the median of five. `browser` opens pages in one, and
says when all of a page is drawn. The output is a table in Markdown.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import psycopg
from playwright.sync_api import Page, sync_playwright

from chronoline.core.ids import bucket_of
from chronoline.core.topic import Topic, TopicSettings
from chronoline.runtime.child_process import free_ports
from chronoline.stores.factory import open_store
from chronoline.stores.stripes import STRIPES
from chronoline.testing.cluster import BrokerPlan, BrokerProcess
from chronoline.testing.postgres import PostgresServer
from chronoline_bench.engines.postgres import fill_table, shared_buffers_mb
from chronoline_bench.engines.sqlite import connect
from chronoline_bench.servers.chromium import find_browser
from chronoline_bench.workload import DAY_MS, ID_DIGITS, Filling

_BIG = "orders-0000"
_BIG_PARTS, _PARTS = 9, 10
_BODY_BYTES = 100
_DATABASE = "console"
_ROUNDS = 5
_HELD = 50
_HOUR_MS = 3_600_000
_TIMEOUT_S = 120
_COUNTING_S = 0.1
"""How often a browser's script would ask again while a count is made."""


_BUCKETS = 64
_SQLITE_INDEXES = (
    "SELECT name, sql FROM sqlite_master WHERE tbl_name = 'messages' AND type = 'index'"
)
_POSTGRES_INDEXES = """
SELECT indexname, indexdef FROM pg_indexes
WHERE schemaname = 'chronoline' AND tablename = 'messages' AND indexdef NOT LIKE 'CREATE UNIQUE%'
"""
_FILL_SQLITE = f"""
WITH RECURSIVE numbers (number) AS (
    SELECT 0 UNION ALL SELECT number + 1 FROM numbers WHERE number + 1 < :total
), named AS (
    SELECT printf('m%0{ID_DIGITS}d', number) AS id, :start + number * :span / :total AS due FROM numbers
), placed AS MATERIALIZED (SELECT id, due, bucket_of(id) AS bucket FROM named)
INSERT INTO messages (topic, bucket, stripe, id, ts, due, version, producer_group, body)
SELECT :topic, bucket, bucket * {STRIPES} / {_BUCKETS}, id, due, due, :now, 'default', :body FROM placed
"""


class Shown(NamedTuple):
    """A page, or the data of a chart."""

    name: str
    path: str
    is_data: bool = False


def _shown(now_ms: int) -> list[Shown]:
    big = f"/topics/{_BIG}"
    spans = {"hour": _HOUR_MS, "day": DAY_MS, "month": 30 * DAY_MS, "year": 365 * DAY_MS}
    return [
        Shown("overview", "/"),
        Shown("topics", "/topics"),
        Shown("topics by name", "/topics?q=99"),
        Shown("topic", big),
        *(
            Shown(
                f"its forecast, next {name}",
                f"{big}/forecast.json?from={now_ms}&to={now_ms + span_ms}&steps=200",
                is_data=True,
            )
            for name, span_ms in spans.items()
        ),
        Shown("its counts", f"{big}/counts.json", is_data=True),
        Shown("messages by time", f"{big}/messages?from=%2B30d"),
        Shown("messages by status", f"{big}/messages?status=waiting"),
        Shown("messages by producer group", f"{big}/messages?group=default"),
        Shown("messages by holder", f"{big}/messages?consumer=worker"),
        Shown("messages by id", f"{big}/messages?prefix=m{4_200:025}"),
        Shown("messages of a group that has none", f"{big}/messages?group=nobody"),
        Shown("message", f"{big}/messages/m{4_200:025}"),
        Shown("dead letters", f"{big}/dead"),
        Shown("schedules", "/schedules"),
        Shown("pipes", "/pipes"),
    ]


# Filling


def _fill(engine: str, folder: Path, messages: int, topics: int) -> None:
    folder.mkdir(parents=True)
    folder.chmod(0o755)
    big = messages * _BIG_PARTS // _PARTS
    shares = [big] + [(messages - big) // (topics - 1)] * (topics - 1)
    with _filler(engine, folder) as (make, fill):
        for number, share in enumerate(shares):
            now_ms = time.time_ns() // 1_000_000
            filling = Filling(
                total=share,
                start_ms=now_ms + _HOUR_MS // 2,
                span_ms=365 * DAY_MS,
                now_ms=now_ms,
                shuffled=False,
                body_bytes=_BODY_BYTES,
            )
            fill(make(f"orders-{number:04}", now_ms), filling)


Make = Callable[[str, int], Topic]
Fill = Callable[[Topic, Filling], None]


@contextmanager
def _filler(engine: str, folder: Path) -> Iterator[tuple[Make, Fill]]:
    """Rows are written without indexes, which are made afterwards: that takes a tenth of the time."""
    if engine == "sqlite":
        path = folder / "timeline.db"
        with open_store(f"sqlite:///{path}") as store, connect(path) as raw:
            raw.execute("PRAGMA synchronous=OFF")
            raw.create_function(
                "bucket_of", 1, lambda id: bucket_of(id, _BUCKETS), deterministic=True
            )
            indexes = raw.execute(_SQLITE_INDEXES).fetchall()
            for name, _ in indexes:
                raw.execute(f"DROP INDEX {name}")
            yield (
                lambda name, now_ms: store.create_topic(
                    name, TopicSettings(buckets=_BUCKETS), now_ms=now_ms
                ),
                lambda topic, filling: _fill_sqlite(raw, topic, filling),
            )
            for _, definition in indexes:
                raw.execute(definition)
            raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return
    with PostgresServer(folder / "postgres") as server:
        url = server.create_database(_DATABASE)
        with open_store(url) as store, psycopg.connect(url, autocommit=True) as connection:
            indexes = connection.execute(_POSTGRES_INDEXES).fetchall()
            for name, _ in indexes:
                connection.execute(f"DROP INDEX chronoline.{name}".encode())
            yield (
                lambda name, now_ms: store.create_topic(
                    name, TopicSettings(buckets=_BUCKETS), now_ms=now_ms
                ),
                lambda topic, filling: fill_table(url, topic, filling, _ignore),
            )
            connection.execute("SET maintenance_work_mem = '512MB'")
            for _, definition in indexes:
                connection.execute(definition.encode())
            connection.execute("VACUUM (ANALYZE) chronoline.messages")
            memory = f"ALTER SYSTEM SET shared_buffers = '{shared_buffers_mb()}MB'"
            connection.execute(memory.encode())
            connection.execute("CHECKPOINT")


def _fill_sqlite(raw: sqlite3.Connection, topic: Topic, filling: Filling) -> None:
    values = {
        "topic": topic.uid,
        "total": filling.total,
        "start": filling.start_ms,
        "span": filling.span_ms,
        "now": filling.now_ms,
        "body": bytes(filling.body_bytes),
    }
    raw.execute(_FILL_SQLITE, values)


def _ignore(_: int) -> None:
    """No progress is shown."""


# Measuring


@contextmanager
def _node(engine: str, folder: Path) -> Iterator[str]:
    """The address of a console whose node has just been started, with nothing in its caches."""
    _forget(folder)
    server = PostgresServer(folder / "postgres") if engine == "postgres" else None
    grpc, http = (f"127.0.0.1:{port}" for port in free_ports(2))
    try:
        store = f"sqlite:///{folder}/timeline.db"
        if server is not None:
            server.start()
            store = server.url(_DATABASE)
        plan = BrokerPlan(
            name="b1",
            grpc=grpc,
            http=http,
            data=folder / "node",
            store=store,
            coordination="embedded:",
        )
        with BrokerProcess(plan):
            yield f"http://{http}"
    finally:
        if server is not None:
            server.stop()


def _forget(folder: Path) -> None:
    """Drops the files of the store from the system's cache."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _hold(url: str) -> None:
    """Leases some messages to a consumer, for an hour."""
    topic = f"{url}/v1/topics/{_BIG}"
    for number in range(_HELD):
        httpx.put(f"{topic}/messages/held-{number}", json={"body": "x"}, timeout=_TIMEOUT_S)
    asked = {"consumer": "worker", "lease": "1h", "count": _HELD}
    httpx.post(f"{topic}/receive", json=asked, timeout=_TIMEOUT_S).raise_for_status()


def _ask_ms(http: httpx.Client, shown: Shown) -> tuple[float, float]:
    """The time until the first answer, and until the data are there."""
    started = time.perf_counter()
    first_s = None
    while True:
        answer = http.get(f"/console{shown.path}")
        answer.raise_for_status()
        took_s = time.perf_counter() - started
        first_s = took_s if first_s is None else first_s
        if not shown.is_data or not answer.json()["counting"]:
            return first_s * 1000, took_s * 1000
        time.sleep(_COUNTING_S)  # as the page does, which asks again until all is counted


def _measure_requests(engine: str, folder: Path) -> None:
    with _node(engine, folder) as url:
        _hold(url)
    now_ms = time.time_ns() // 1_000_000
    cold: dict[str, tuple[float, float]] = {}
    warm: dict[str, tuple[float, float]] = {}
    for shown in _shown(now_ms):
        with _node(engine, folder) as url, httpx.Client(base_url=url, timeout=_TIMEOUT_S) as http:
            cold[shown.name] = _ask_ms(http, shown)
            again = [_ask_ms(http, shown) for _ in range(_ROUNDS)]
            warm[shown.name] = _median(again)
    print(
        "\n| page or data | cold, first answer | cold, complete | warm |\n| --- | ---: | ---: | ---: |"
    )
    for name, (first, complete) in cold.items():
        print(f"| {name} | {first:,.0f} ms | {complete:,.0f} ms | {warm[name][1]:,.0f} ms |")


def _median(times: list[tuple[float, float]]) -> tuple[float, float]:
    first, complete = zip(*times, strict=True)
    return statistics.median(first), statistics.median(complete)


_DRAWN = {
    "overview": ("/", "() => document.querySelector('[data-chart=lateness] path')"),
    "topics": ("/topics", "() => document.querySelector('tbody tr')"),
    "topic": (
        f"/topics/{_BIG}",
        "() => document.querySelector('[data-chart=forecast]').dataset.loaded",
    ),
    "messages": (f"/topics/{_BIG}/messages", "() => document.querySelector('tbody tr')"),
    "message": (
        f"/topics/{_BIG}/messages/m{4_200:025}",
        "() => document.querySelector('pre')",
    ),
}
_SPANS = ("minute", "day", "month", "year")


def _measure_browser(engine: str, folder: Path) -> None:
    found = find_browser()
    with sync_playwright() as playwright, _node(engine, folder) as url:
        browser = playwright.chromium.launch(
            executable_path=found.program,
            args=list(found.arguments),
            env=dict(found.environment) or None,
        )
        print("\n| in a browser, until drawn | cold | warm |\n| --- | ---: | ---: |")
        for name, (path, drawn) in _DRAWN.items():
            times = []
            for _ in range(_ROUNDS + 1):
                page = browser.new_page()
                page.goto(f"{url}/console{path}", wait_until="commit")
                times.append(_drawn_ms(page, drawn))
                page.close()
            print(f"| {name} | {times[0]:,.0f} ms | {statistics.median(times[1:]):,.0f} ms |")
        for span in _SPANS:
            times = [_zoom_ms(browser.new_page(), url, span) for _ in range(_ROUNDS + 1)]
            print(
                f"| forecast, next {span} | {times[0]:,.0f} ms | {statistics.median(times[1:]):,.0f} ms |"
            )
        browser.close()


def _drawn_ms(page: Page, drawn: str) -> float:
    page.wait_for_function(drawn, polling=10, timeout=_TIMEOUT_S * 1000)
    return float(page.evaluate("performance.now()"))


def _zoom_ms(page: Page, url: str, span: str) -> float:
    """From the button of a range until its counts are drawn."""
    path, drawn = _DRAWN["topic"]
    page.goto(f"{url}/console{path}")
    _drawn_ms(page, drawn)
    button = page.get_by_role("button", name=f"Next {span}")
    span_ms = int(str(button.get_attribute("data-span")))
    page.evaluate(
        """label => [...document.querySelectorAll('[data-span]')].find((each) => each.dataset.span === label)
            .addEventListener('click', () => { window.clicked = performance.now(); })""",
        str(span_ms),
    )
    button.click()
    page.wait_for_function(
        """span => {
            const [from, to] = document.querySelector('[data-chart=forecast]').dataset.loaded.split('-');
            return to - from === span;
        }""",
        arg=span_ms,
        polling=10,
        timeout=_TIMEOUT_S * 1000,
    )
    took = float(page.evaluate("performance.now() - window.clicked"))
    page.close()
    return took


def _say(words: str) -> None:
    print(words, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["fill", "measure", "browser"])
    parser.add_argument("engine", choices=["sqlite", "postgres"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--messages", type=int, default=10_000_000)
    parser.add_argument("--topics", type=int, default=1_000)
    asked: Any = parser.parse_args()
    folder = asked.folder.absolute()
    started = time.monotonic()
    if asked.what == "fill":
        _fill(asked.engine, folder, asked.messages, asked.topics)
    elif asked.what == "measure":
        _measure_requests(asked.engine, folder)
    else:
        _measure_browser(asked.engine, folder)
    _say(f"\n{asked.what} took {time.monotonic() - started:,.0f} s")


if __name__ == "__main__":
    main()
