"""The blocking client: several threads, its end, forks, interrupts."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from chronoline.client import Selection, event_loop
from chronoline.client.aio import ToSend
from chronoline.client.event_loop import shared_loop
from chronoline.client.sync import Client
from chronoline.core.errors import ChronolineError, ClientClosed, InvalidInput, Refused
from chronoline.stores.memory import MemoryStore
from chronoline.testing import scheduled
from tests.deadline import until


def test_threads_share_a_client(chronoline_broker: str, chronoline_store: MemoryStore) -> None:
    with Client(chronoline_broker) as client, ThreadPoolExecutor(8) as threads:
        client.create_topic("t")

        def send(thread: int) -> list[str]:
            return [client.send("t", b"x", id=f"{thread}-{n}", delay=60) for n in range(50)]

        sent = [each for ids in threads.map(send, range(8)) for each in ids]
        assert sorted(each.message.id for each in scheduled(chronoline_store, "t")) == sorted(sent)


def test_threads_share_the_leases_of_a_client(chronoline_broker: str) -> None:
    with Client(chronoline_broker) as client, ThreadPoolExecutor(4) as threads:
        client.create_topic("t")
        client.send_many("t", [ToSend(id=f"m{number}") for number in range(40)])
        leases = client.consume("t", prefetch=40)
        acks = [threads.submit(next(leases).ack) for _ in range(40)]
        for each in acks:
            each.result()
        assert client.count("t").total == 0


def test_stopped_consumer_returns_prefetched_leases(chronoline_broker: str) -> None:
    with Client(chronoline_broker) as client:
        client.create_topic("t")
        client.send_many("t", [ToSend(id=f"m{number}") for number in range(10)])
        for lease in client.consume("t"):
            lease.ack()
            break
        assert client.count("t").processing == 0
        assert client.count("t").total == 9


def _forgotten(client: Client) -> weakref.ref[Any]:
    """Takes a message, and leaves the generator in a cycle that only a garbage collection ends."""
    leases = client.consume("t")
    next(leases).ack()
    cycle: list[Any] = [leases]
    cycle.append(cycle)
    return weakref.ref(leases)


def test_collection_in_the_clients_thread_ends_a_forgotten_consumer(chronoline_broker: str) -> None:
    with Client(chronoline_broker) as client:
        client.create_topic("t")
        client.send_many("t", [ToSend(id=f"m{number}") for number in range(10)])
        gc.collect()
        gc.disable()
        try:
            leases = _forgotten(client)
            shared_loop().call_soon_threadsafe(gc.collect)
            with ThreadPoolExecutor(1) as threads:
                assert threads.submit(client.count, "t").result(20).total == 9
            assert leases() is None
            asyncio.run(until(lambda: client.count("t").processing == 0))
        finally:
            gc.enable()


def test_collection_under_a_lock_that_the_client_wants_ends(
    chronoline_broker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_loop, "_ENDING_S", 3_600)  # a collection that waits would not end
    lock, collected = threading.Lock(), threading.Event()

    def collect() -> None:
        with lock:
            shared_loop().call_soon_threadsafe(lock.acquire)
            gc.collect()
            collected.set()

    with Client(chronoline_broker) as client:
        client.create_topic("t")
        client.send_many("t", [ToSend(id=f"m{number}") for number in range(10)])
        leases = _forgotten(client)
        threading.Thread(target=collect, daemon=True).start()
        assert collected.wait(20)
        assert leases() is None
        count = client.count("t")
        assert (count.processing, count.total) == (0, 9)  # given back before the next call


def test_two_threads_do_not_take_from_one_iterator(chronoline_broker: str) -> None:
    with Client(chronoline_broker) as client, ThreadPoolExecutor(1) as threads:
        client.create_topic("t")
        leases = client.consume("t")
        taking = threads.submit(next, leases)
        asyncio.run(until(leases._taking.locked))  # no signal tells that the thread waits
        with pytest.raises(InvalidInput, match="another thread"):
            next(leases)
        client.send("t", b"x", id="a")
        assert taking.result().id == "a"
        leases.close()
        leases.close()
        assert list(leases) == []


def test_blocking_call_in_a_callback_is_refused(chronoline_broker: str) -> None:
    with Client(chronoline_broker) as client:
        client.create_topic("t")
        client.send("t", b"x", delay=60)
        with pytest.raises(ChronolineError, match="the client's own thread"):
            client.change_matching(
                "t", "cancel", Selection(), progress=lambda _: print(client.count("t"))
            )
        assert client.count("t").total == 0


def test_closed_client_refuses_every_call(chronoline_broker: str) -> None:
    client = Client(chronoline_broker)
    client.create_topic("t")
    client.send("t", b"x", id="a")
    leases = client.consume("t")
    lease = next(leases)
    client.close()
    client.close()
    for ask in (
        lambda: client.send("t", b"x"),
        lambda: client.cancel("t", "a"),
        client.topics,
        lambda: client.lookup("t", "a"),
        lambda: next(client.consume("t")),
        lambda: next(leases),
        lease.ack,
        lease.extend,
    ):
        with pytest.raises(ClientClosed):
            ask()


def test_close_wakes_waiting_threads(chronoline_broker: str) -> None:
    client = Client(chronoline_broker)
    client.create_topic("t")
    leases = client.consume("t")
    begun = threading.Event()

    def wait() -> object:
        begun.set()
        return next(leases)

    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(wait)
        begun.wait()
        client.close()
        with pytest.raises(ClientClosed):
            waiting.result()


def test_refusal_raises_in_the_calling_thread(chronoline_broker: str) -> None:
    with Client(chronoline_broker) as client:
        client.create_topic("t")
        client.send("t", b"x", id="a", delay=60)
        with pytest.raises(Refused):
            client.send("t", b"x", id="a", delay=60)
        outcomes = client.send_many("t", [ToSend(id="a"), ToSend(id="b")])
        assert [each.id for each in outcomes.refused] == ["a"]


def _run(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "script.py").write_text(script)
    return subprocess.run(
        [sys.executable, "script.py"],
        cwd=folder,
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.usefixtures("chronoline_broker")
def test_forked_client_is_refused(tmp_path: Path) -> None:
    done = _run(
        """
import os
from chronoline.client import Client

unused = Client()
used = Client()
used.create_topic("t")
if os.fork() == 0:
    try:
        used.send("t", b"x")
    except Exception as error:
        print("child:", error, flush=True)
    os._exit(0)
os.wait()
used.send("t", b"x")
print("parent: sent")
""",
        tmp_path,
    )
    assert done.stdout.splitlines() == [
        "child: this process was forked from one that used the client; make a new one in each process",
        "parent: sent",
    ], done.stderr


@pytest.mark.usefixtures("chronoline_broker")
def test_script_ends_without_closing_its_client(tmp_path: Path) -> None:
    done = _run(
        """
from chronoline.client import Client

client = Client()
client.create_topic("t")
client.send("t", b"x", id="a")
client.send("t", b"x", id="b")
leases = client.consume("t")
print(next(leases).id)
""",
        tmp_path,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "a\n", "")
    with Client() as client:
        assert client.count("t").processing == 1  # what was not handed over was given back


def test_interrupt_ends_a_consumer_and_returns_leases(chronoline_broker: str) -> None:
    with Client(chronoline_broker) as client:
        client.create_topic("t")
        leases = client.consume("t")

        def interrupt() -> None:
            os.kill(os.getpid(), signal.SIGINT)

        timer = threading.Timer(0.2, interrupt)
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            next(leases)
        timer.join()
        assert client.send("t", b"x", id="after") == "after"
        again = client.consume("t")
        assert next(again).id == "after"


def test_address_of_http_instead_of_grpc_is_named() -> None:
    with (
        HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server,
        ThreadPoolExecutor(1) as threads,
    ):
        threads.submit(server.serve_forever)
        try:
            with pytest.raises(ChronolineError, match="not that of HTTP"):
                Client(f"127.0.0.1:{server.server_port}").topics()
        finally:
            server.shutdown()


def test_blocking_client_reports_a_missing_broker() -> None:
    with pytest.raises(ChronolineError, match="no broker answers"):
        Client("127.0.0.1:1").topics()
