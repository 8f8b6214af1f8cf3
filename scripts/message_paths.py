"""The path of one message through each part: the files and functions of Chronoline that it passes.

`python -m scripts.message_paths` prints them as JSON; with the name of a path, it prints each function.

Everything runs in this process, and a profile function records the calls of all its threads. Each path is
warm: one message has passed before. Then `PASSES` messages are recorded one after the other, and only the
functions that run for each of them count. So background work, such as pings and readings of the clock, is
left out, unless it runs more often than the messages: on a busy machine a message takes longer, and more is
counted.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import aiohttp

import chronoline
from chronoline.client import Client
from chronoline.core.message import NewMessage
from chronoline.core.topic import TopicSettings
from chronoline.delivery.lane_settings import LaneSettings
from chronoline.log import Log
from chronoline.node.timer_service import ServiceOptions, TimerService
from chronoline.pipe.contract import Contract, SourceRecord
from chronoline.pipe.intake import PipeIntake
from chronoline.pipe.lane_work import LaneWork
from chronoline.pipe.places import Place
from chronoline.pipe.readers import ReadRange
from chronoline.pipe.worker_cache import close_all
from chronoline.runtime.timestamps import show_moment
from chronoline.stores.factory import open_store
from chronoline.stores.members import pipe_group
from chronoline.testing.broker import LocalBroker

_ROOT = Path(chronoline.__file__).parent
_GENERATED = "_pb2.py"
_SOON_MS = 50
_HOUR_MS = 3_600_000
_PATIENCE_S = 20
_AFTER_S = 0.03
"""The time for work that follows an ack without an answer: the consumer's next credit."""
PASSES = 12
"""The number of recorded messages."""


class Recorder:
    """Records the code of Chronoline that runs in any thread while it is switched on."""

    def __init__(self) -> None:
        self._codes: set[CodeType] = set()
        # The code that ran in each recording; None before the first one.
        self._common: set[CodeType] | None = None
        self._is_on = False

    def install(self) -> None:
        """Must run before other threads start: a thread takes the profile function at its start."""
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        if self._is_on and event == "call":
            self._codes.add(frame.f_code)

    @contextmanager
    def on(self) -> Iterator[None]:
        """Makes a recording."""
        self._codes = set()
        self._is_on = True
        try:
            yield
        finally:
            self._is_on = False
            self._common = self._codes if self._common is None else self._common & self._codes

    def take_functions(self) -> list[str]:
        """Returns `file:function` for each that ran in all recordings, sorted, and forgets these.

        Comprehensions and lambdas belong to their function.
        """
        common, self._common = self._common or set(), None
        found = set()
        for code in common:
            path = Path(code.co_filename)
            if path.is_relative_to(_ROOT) and not path.name.endswith(_GENERATED):
                name = code.co_qualname.partition(".<locals>")[0]
                if not name.startswith("<"):
                    found.add(f"{path.relative_to(_ROOT)}:{name}")
        return sorted(found)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def library(recorder: Recorder, folder: Path) -> None:
    """Create, reserve and ack, in a SQLite store."""
    with open_store(f"sqlite:///{folder}/library.db") as store:
        topic = store.create_topic("t", now_ms=_now_ms())

        def passes(name: str) -> None:
            now_ms = _now_ms()
            store.create(topic.uid, [NewMessage(id=name, due=now_ms, body=b"x")], now_ms=now_ms)
            (leased,) = store.reserve(
                topic.uid, topic.all_buckets, consumer="c", lease_ms=30_000, limit=1, now_ms=now_ms
            ).leased
            store.ack(topic.uid, [leased.lease], now_ms=now_ms)

        passes("warm")
        for number in range(PASSES):
            with recorder.on():
                passes(f"message {number}")


def broker(recorder: Recorder, folder: Path) -> None:
    """Send, push and ack, with the SDK and a broker on SQLite."""
    with (
        open_store(f"sqlite:///{folder}/broker.db") as store,
        LocalBroker(store) as node,
        Client(node.address) as client,
    ):
        client.create_topic("t")
        leases = client.consume("t")

        def passes() -> None:
            client.send("t", b"x", delay=_SOON_MS / 1000)
            next(leases).ack()
            time.sleep(_AFTER_S)

        passes()
        for _ in range(PASSES):
            with recorder.on():
                passes()


def timers(recorder: Recorder, folder: Path) -> None:
    """POST of a timer, its callback, and the tombstone that it leaves."""
    called = threading.Semaphore(0)

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(200)
            self.end_headers()
            called.release()

        def log_message(self, *_: Any) -> None:
            pass

    receiver = HTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=receiver.serve_forever, daemon=True).start()
    uri = f"http://127.0.0.1:{receiver.server_port}/"

    async def serve() -> None:
        service = TimerService(ServiceOptions(port=0, data=folder, allow=("127.0.0.0/8",)))
        await service.start()
        timer = {
            "timing": {"interval": 1, "repeat-for": 1},
            "callback": {"http": {"uri": uri, "opaque": "x"}},
        }
        async with aiohttp.ClientSession() as session:

            async def passes() -> None:
                async with session.post(f"http://{service.me}/timers", json=timer) as answer:
                    answer.raise_for_status()
                await asyncio.to_thread(called.acquire, timeout=_PATIENCE_S)

            await passes()
            for _ in range(PASSES):
                with recorder.on():
                    await passes()
        await service.stop()

    asyncio.run(serve())
    receiver.shutdown()


def log(recorder: Recorder, folder: Path) -> None:
    """Append and read for a group, in files with an index in SQLite."""
    with Log((folder / "log").as_uri()) as opened:
        opened.create_topic("t", partitions=1)

        events = opened.read("t", group="g")

        def passes() -> None:
            opened.append("t", value=b"x")
            next(events)

        passes()
        for _ in range(PASSES):
            with recorder.on():
                passes()
        events.close()


def pipe(recorder: Recorder, folder: Path) -> None:
    """Intake of a record into SQLite and its publication on a log, without Spark around them."""
    url, output = f"sqlite:///{folder}/pipe.db", (folder / "out").as_uri()
    with open_store(url) as store, Log(output) as out:
        out.create_topic("out", partitions=1)
        topic = store.create_topic("p", TopicSettings(buckets=8, dedupe_ms=0), now_ms=_now_ms())
        until_ms = _now_ms() + _HOUR_MS
        group = pipe_group(topic)
        claims = store.claim_inputs("p/in", {0: 0}, "node", until_ms=until_ms, now_ms=_now_ms())
        held = {claim.partition: claim for claim in claims}
        contract = Contract(topic="in", producer_group="pipe")
        taker = PipeIntake(store, topic.uid, contract, now_ms=_now_ms)
        work = LaneWork(
            pipe="p",
            node="node",
            store=url,
            topic_uid=topic.uid,
            output=Place.of_log("out", output),
            lane=0,
            lanes=2,
            ranges=1,
            window_ms=400,
            look_ms=10,
            delivery_timeout_ms=4_000,
            settings=LaneSettings(),
        )

        def passes(offset: int) -> None:
            deadline_text = show_moment(_now_ms() + _SOON_MS)
            headers = (
                ("chronosMessageId", f"m{offset}".encode()),
                ("chronosDeadline", deadline_text.encode()),
            )
            record = SourceRecord(0, offset, None, b"x", headers, _now_ms())
            taker.take_in(held, [ReadRange(0, offset, offset + 1, [record])])
            store.beat(group, "node", until_ms=until_ms, now_ms=_now_ms())
            task = threading.Thread(target=work.serve, args=(0, offset))
            task.start()
            deadline = time.monotonic() + _PATIENCE_S
            while store.next_ts(topic.uid, topic.all_buckets) is not None:
                if time.monotonic() > deadline:
                    raise TimeoutError("no task published the record")
                time.sleep(_SOON_MS / 1000)  # a deletion sends no signal
            store.ask_to_stop(group, "node")
            task.join()
            store.leave(group, "node")

        passes(0)
        for offset in range(1, PASSES + 1):
            with recorder.on():
                passes(offset)
    close_all()


PATHS: dict[str, Callable[[Recorder, Path], None]] = {
    path.__name__: path for path in (library, broker, timers, log, pipe)
}


def measure() -> dict[str, list[str]]:
    """Returns the functions that a message passes, by path."""
    recorder = Recorder()
    recorder.install()
    found = {}
    for name, path in PATHS.items():
        with tempfile.TemporaryDirectory() as folder:
            path(recorder, Path(folder))
        found[name] = recorder.take_functions()
    return found


def main() -> None:
    found = measure()
    if len(sys.argv) > 1:
        print("\n".join(found[sys.argv[1]]))
        return
    counts = {
        name: {"files": len({each.partition(":")[0] for each in names}), "functions": len(names)}
        for name, names in found.items()
    }
    print(json.dumps(counts, indent=2))


if __name__ == "__main__":
    main()
