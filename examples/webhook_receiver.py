"""A receiver of signed calls: it checks who calls, when, and whether it did the work before.

    export WEBHOOK_SECRET=whsec_…           # the `callbacks.secret` of the nodes
    python examples/webhook_receiver.py 9000

It needs the standard library alone. Any library for https://www.standardwebhooks.com checks the first two.
"""

import base64
import hashlib
import hmac
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOLERANCE_S = 300
"""A call that is older was replayed, or the clocks differ: each attempt has a time of its own."""
KEPT_S = 24 * 3600
"""The time for which an id is remembered: longer than any call is tried again."""
MOST_BYTES = 1024 * 1024


class Forged(Exception):
    """The call is not of a node, or not of now."""


def check(secret: str, headers: Mapping[str, str], body: bytes, now_s: float) -> str:
    """The id of a call that a node has signed a moment ago. Raises `Forged`."""
    named = {name.lower(): value for name, value in headers.items()}
    key = base64.b64decode(secret.removeprefix("whsec_"))
    call_id, sent = named.get("webhook-id", ""), named.get("webhook-timestamp", "")
    signed = f"{call_id}.{sent}.".encode() + body
    right = base64.b64encode(hmac.digest(key, signed, hashlib.sha256))
    given = (each.partition(",") for each in named.get("webhook-signature", "").split())
    # Compared in constant time; there are two while the secret is replaced.
    if not any(
        version == "v1" and hmac.compare_digest(right, one.encode()) for version, _, one in given
    ):
        raise Forged("the signature is missing or wrong")
    # The signature covers both, so they are as the node wrote them.
    if abs(now_s - int(sent)) > TOLERANCE_S:
        raise Forged("the call is too old, or from the future")
    return call_id


class Once:
    """Does the work of each id once, also when its call comes again.

    It forgets when the process ends: where that matters, store the id together with the work, in one
    transaction.
    """

    def __init__(self, work: Callable[[str, bytes], None]) -> None:
        self._work = work
        self._lock = threading.Lock()
        self._done: dict[str, float] = {}
        self._under_way: set[str] = set()

    def __call__(self, call_id: str, body: bytes, now_s: float) -> int:
        """The status to answer. Only 2xx tells the node that the work is done."""
        with self._lock:
            while self._done and next(iter(self._done.values())) < now_s - KEPT_S:
                del self._done[next(iter(self._done))]
            if call_id in self._done:
                return 200
            if call_id in self._under_way:
                return 409  # the node tries again
            self._under_way.add(call_id)
        try:
            self._work(call_id, body)
            with self._lock:
                self._done[call_id] = now_s
            return 204
        finally:
            with self._lock:
                self._under_way.discard(call_id)


def server(
    port: int,
    secret: str,
    work: Callable[[str, bytes], None],
    clock: Callable[[], float] = time.time,
) -> ThreadingHTTPServer:
    once = Once(work)

    class Handler(BaseHTTPRequestHandler):
        timeout = 10

        def do_POST(self) -> None:
            size = self.headers.get("Content-Length", "")
            if not size.isdecimal() or int(size) > MOST_BYTES:
                self.answer(413)
                return
            body = self.rfile.read(int(size))
            try:
                call_id = check(secret, dict(self.headers.items()), body, clock())
            except Forged as error:
                self.log_error("refused: %s", error)
                self.answer(401)
            else:
                self.answer(once(call_id, body, clock()))

        def answer(self, status: int) -> None:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

    return ThreadingHTTPServer(("127.0.0.1", port), Handler)


if __name__ == "__main__":
    with server(int(sys.argv[1]), os.environ["WEBHOOK_SECRET"], print) as receiver:
        receiver.serve_forever()
