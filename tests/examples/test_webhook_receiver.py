"""The example of a receiver, called by a real node and by those who forge and replay its calls."""

from __future__ import annotations

import importlib.util
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import httpx
import pytest

from chronoline.callbacks.signature import Signer
from tests.deadline import run_scene, until
from tests.examples.test_examples import EXAMPLES
from tests.timers.scene import cluster, timer

_SECRET = f"whsec_{'A' * 32}"
_NOW_S = 1_700_000_000


def _example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("webhook", EXAMPLES / "webhook_receiver.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@dataclass
class Receiver:
    """The example on a free port, in a thread, with a clock of its own."""

    now_s: float = _NOW_S
    done: list[tuple[str, bytes]] = field(default_factory=list)
    problem: Exception | None = None
    port: int = 0

    def work(self, call_id: str, body: bytes) -> None:
        if self.problem is not None:
            raise self.problem
        self.done.append((call_id, body))

    def call(
        self,
        body: bytes = b"hello",
        *,
        signed: bytes = b"hello",
        secret: str = _SECRET,
        at_s: int = _NOW_S,
        **changed: str,
    ) -> int:
        headers = Signer(secret).headers("a", signed, wall_s=at_s)
        headers |= {name.replace("_", "-"): value for name, value in changed.items()}
        return httpx.post(
            f"http://127.0.0.1:{self.port}/", content=body, headers=headers
        ).status_code


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    found = Receiver()
    with _example().server(0, _SECRET, found.work, clock=lambda: found.now_s) as server:
        server.handle_error = lambda *_: None  # work that fails is part of a test
        found.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield found
        server.shutdown()
        thread.join()


def test_signed_call_is_done_once_however_often_it_comes(receiver: Receiver) -> None:
    assert [receiver.call() for _ in range(3)] == [204, 200, 200]
    receiver.now_s += 3_600  # another attempt, whose signature is a new one
    assert receiver.call(at_s=_NOW_S + 3_600) == 200
    assert receiver.done == [("a", b"hello")]


def test_replayed_call_is_refused_when_its_time_is_over(receiver: Receiver) -> None:
    receiver.now_s += 300
    assert receiver.call() == 204
    receiver.now_s += 1
    assert receiver.call() == 401
    receiver.now_s = _NOW_S - 301
    assert receiver.call() == 401


@pytest.mark.parametrize(
    "changed",
    [
        {"body": b"other"},
        {"secret": f"whsec_{'B' * 32}"},
        {"webhook_id": "b"},
        {"webhook_timestamp": str(_NOW_S + 1)},
        {"webhook_timestamp": "x"},
        {"webhook_signature": ""},
        {"webhook_signature": "v1,"},
        {"webhook_signature": "v2,c2lnbmF0dXJl v1,x"},
    ],
)
def test_forged_call_is_refused(receiver: Receiver, changed: dict[str, str]) -> None:
    assert receiver.call(**changed) == 401  # type: ignore[arg-type]  # one of them is the body
    assert receiver.done == []


def test_one_of_two_signatures_is_enough_while_the_secret_is_replaced(receiver: Receiver) -> None:
    right = Signer(_SECRET).headers("a", b"hello", wall_s=_NOW_S)["webhook-signature"]
    assert receiver.call(webhook_signature=f"v1,b3RoZXI= {right}") == 204


def test_failed_work_is_done_at_the_next_attempt(receiver: Receiver) -> None:
    receiver.problem = OSError("the disk is full")
    with pytest.raises(httpx.RemoteProtocolError):
        receiver.call()
    receiver.problem = None
    assert receiver.call() == 204


def test_node_calls_the_receiver(receiver: Receiver, tmp_path: Path) -> None:
    async def scene() -> None:
        async with cluster(tmp_path, secret=_SECRET) as nodes:
            receiver.now_s = time.time()
            made = await nodes.ask("POST", "/timers", timer(f"http://127.0.0.1:{receiver.port}/"))
            assert made.status == 200
            await until(lambda: bool(receiver.done))

    run_scene(scene)
    assert [body for _, body in receiver.done] == [b"hello"]
