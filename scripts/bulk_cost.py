"""Measures the work of operators on many messages: export, and cancelling by the beginning of the id.

`python -m scripts.bulk_cost sqlite|postgres [MESSAGES]`. The messages are written to the store; then a node
serves it, and the commands run as for an operator, each in a process of its own. The dues are spread over an
hour and shuffled, so that they lie in another order than the ids: the worst case for a SQLite file.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil  # type: ignore[import-untyped]  # it ships no types

from chronoline.core.message import NewMessage
from chronoline.runtime.child_process import free_addresses
from chronoline.stores.factory import open_store
from chronoline.testing.postgres import PostgresServer

_BODY = bytes(100)
_BATCH = 5_000
_HOUR_MS = 3_600_000
_CHRONOLINE = (sys.executable, "-m", "chronoline")


def _fill(url: str, count: int) -> None:
    now_ms = time.time_ns() // 1_000_000
    dues = [now_ms + 2 * _HOUR_MS + number * _HOUR_MS // count for number in range(count)]
    random.Random(1).shuffle(dues)
    with open_store(url) as store:
        topic = store.create_topic("t", now_ms=now_ms)
        for first in range(0, count, _BATCH):
            numbers = range(first, min(first + _BATCH, count))
            messages = [
                NewMessage(id=f"order-{number:07}", due=dues[number], body=_BODY)
                for number in numbers
            ]
            store.create(topic.uid, messages, now_ms=time.time_ns() // 1_000_000)


@contextmanager
def _node(folder: Path, url: str) -> Iterator[tuple[str, psutil.Process]]:
    (address,) = free_addresses(1)
    command = [*_CHRONOLINE, "up", "--quiet", "--until-eof", "--data", str(folder)]
    command += ["--store", url, "--grpc", address, "--http", ""]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            _until_it_answers(address)
            yield address, psutil.Process(process.pid)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait()


def _until_it_answers(address: str) -> None:
    asking = [*_CHRONOLINE, "topic", "list", "--address", address]
    for _ in range(30):
        if subprocess.run(asking, capture_output=True, check=False).returncode == 0:
            return
        time.sleep(0.5)  # a node that starts sends no signal to strangers
    raise TimeoutError("the node does not start")


def _timed(name: str, node: psutil.Process, count: int, *arguments: str) -> str:
    before, begun_s = node.cpu_times(), time.monotonic()
    done = subprocess.run([*_CHRONOLINE, *arguments], capture_output=True, text=True, check=False)
    took_s, after = time.monotonic() - begun_s, node.cpu_times()
    if done.returncode:
        raise RuntimeError(done.stderr)
    busy_s = after.user + after.system - before.user - before.system
    memory_mib = node.memory_info().rss / 2**20
    print(
        f"{name:28} {took_s:7.1f} s {count / took_s:10,.0f}/s   node: {busy_s:6.1f} s of a core, "
        f"{memory_mib:5.0f} MiB",
        flush=True,
    )
    return done.stdout


def _measure(url: str, folder: Path, count: int) -> None:
    begun_s = time.monotonic()
    _fill(url, count)
    print(f"{count:,} messages written in {time.monotonic() - begun_s:.1f} s", flush=True)
    with _node(folder, url) as (address, node):
        at = ("--address", address)
        for name in ("t.jsonl", "t.parquet"):
            _timed(f"export to {name[2:]}", node, count, "export", "t", str(folder / name), *at)
        cancel = ("bulk", "cancel", "t", "--prefix", "order-", "--yes", "--json", *at)
        _timed("cancel by prefix, dry run", node, count, *cancel, "--dry-run")
        answer = json.loads(_timed("cancel by prefix", node, count, *cancel))
        assert answer["done"] == count, answer


def main() -> None:
    engine = sys.argv[1] if len(sys.argv) > 1 else "sqlite"
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 1_000_000  # noqa: PLR2004 - the second argument
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url = f"sqlite:///{folder / 't.db'}"
        if engine == "postgres":
            server = stack.enter_context(PostgresServer(folder / "postgres"))
            url = server.create_database("bulk")
        _measure(url, folder, count)


if __name__ == "__main__":
    main()
