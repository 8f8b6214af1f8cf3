"""Measures what access costs: TLS on beside off, and the checks of rights. `python -m scripts.access_cost`

A node on SQLite runs in a process of its own, the producer and the consumer in this one. The rounds of both
take turns.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
import timeit
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import jwt
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from chronoline.broker.auth import Door, Shown
from chronoline.broker.jwt_issuer import JwtIssuer, JwtRules, KeySet
from chronoline.broker.tokens import Tokens
from chronoline.client import AsyncClient
from chronoline.client.aio import ToSend
from chronoline.core.rights import RightKind, Rights
from chronoline.runtime.child_process import free_addresses

_ROUNDS = 3
_RATES = (100, 1_000)
_STEADY_S = 5
_CREATE_S = 2.0
_BODY = bytes(100)
_BATCH = 500
_TASKS = 32


@contextmanager
def _node(folder: Path, certificate: Path | None, key: Path | None) -> Iterator[str]:
    (address,) = free_addresses(1)
    command = [sys.executable, "-m", "chronoline", "up", "--quiet", "--until-eof"]
    command += ["--data", str(folder), "--grpc", address, "--http", ""]
    if certificate is not None:
        command += ["--tls-certificate", str(certificate), "--tls-key", str(key)]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        try:
            yield address
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait()


async def _lateness(client: AsyncClient, topic: str, rate: int) -> list[float]:
    """How late each message came, in ms, by the producer's clock: it is this process's too."""
    await client.create_topic(topic)
    late: list[float] = []
    count = rate * _STEADY_S

    async def consume() -> None:
        async for lease in client.consume(topic, prefetch=1_000):
            late.append((time.time() - lease.due.timestamp()) * 1000)
            _keep(asyncio.create_task(lease.ack()))
            if len(late) == count:
                return

    consuming = asyncio.create_task(consume())
    begin = time.monotonic()
    for number in range(count):
        await asyncio.sleep(max(0, begin + number / rate - time.monotonic()))
        _keep(asyncio.create_task(client.send(topic, _BODY, delay=1)))
    await consuming
    return late


_running: set[asyncio.Task[object]] = set()


def _keep(task: asyncio.Task[object]) -> None:
    _running.add(task)
    task.add_done_callback(_running.discard)


async def _creates(client: AsyncClient, topic: str, *, batch: int) -> float:
    """Messages a second: in batches one after the other, or one by one by some tasks."""
    await client.create_topic(topic)
    end, made = time.monotonic() + _CREATE_S, 0

    async def send() -> None:
        nonlocal made
        while time.monotonic() < end:
            if batch > 1:
                await client.send_many(topic, [ToSend(body=_BODY, delay=3600)] * batch)
            else:
                await client.send(topic, _BODY, delay=3600)
            made += batch

    await asyncio.gather(*(send() for _ in range(2 if batch > 1 else _TASKS)))
    return made / _CREATE_S


async def _measure(address: str, tls: bool | Path, name: str) -> dict[str, float]:
    found: dict[str, float] = {}
    async with AsyncClient(address, tls=tls) as client:
        await _wait_for(client)
        for rate in _RATES:
            late = sorted(await _lateness(client, f"{name}-{rate}", rate))
            found[f"late at {rate}/s p50, ms"] = statistics.median(late)
            found[f"late at {rate}/s p99, ms"] = late[int(len(late) * 0.99)]
        found["creates/s one by one"] = await _creates(client, f"{name}-single", batch=1)
        found["creates/s in batches"] = await _creates(client, f"{name}-batch", batch=_BATCH)
    return found


async def _wait_for(client: AsyncClient) -> None:
    for _ in range(100):
        try:
            await client.topics()
        except Exception:
            await asyncio.sleep(0.1)
        else:
            return
    raise TimeoutError("the node does not start")


def _checks(folder: Path) -> dict[str, float]:
    """Microseconds of the checks of one request."""
    tokens = Tokens(folder / "tokens.json")
    rights = Rights.parse([f"produce:orders-{n}-*:billing" for n in range(10)])
    shown = Shown(f"Bearer {tokens.create('a', rights)}")
    key = ec.generate_private_key(ec.SECP256R1())
    public = jwt.algorithms.ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
    keys = KeySet(json.dumps({"keys": [public]}).encode(), "keys")
    claims = {"iss": "i", "aud": "a", "sub": "s", "exp": time.time() + 3600}
    token = jwt.encode(claims, key, "ES256")
    issuer = JwtIssuer(_Keys(keys), JwtRules(issuer="i", audience="a"))
    door, fresh = Door(tokens), Door(issuer=issuer)
    signed = Shown(f"Bearer {token}")

    def anew() -> None:
        JwtIssuer(_Keys(keys), JwtRules(issuer="i", audience="a")).principal(token)

    def unseen() -> None:
        rights._find(RightKind.PRODUCE, "orders-9-x", "billing")

    return {
        "right, asked before": _us(
            lambda: rights.allows(RightKind.PRODUCE, "orders-9-x", "billing")
        ),
        "right, first time, of ten": _us(unseen),
        "token": _us(lambda: door.principal(shown)),
        "JWT, seen before": _us(lambda: fresh.principal(signed)),
        "JWT, first time (ES256)": _us(anew, 300),
    }


class _Keys:
    def __init__(self, keys: KeySet) -> None:
        self._keys = keys

    def current(self) -> KeySet:
        return self._keys

    def seek(self) -> None:
        """There are no others."""


def _us(work: Callable[[], object], times: int = 20_000) -> float:
    return min(timeit.repeat(work, number=times, repeat=5)) / times * 1e6


def _certificate(folder: Path) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "node")])
    now, here = datetime.now(UTC), [x509.IPAddress(ip_address("127.0.0.1"))]
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(here), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    files = folder / "node.pem", folder / "node-key.pem"
    pem = serialization.Encoding.PEM
    files[0].write_bytes(made.public_bytes(pem))
    form, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    files[1].write_bytes(key.private_bytes(pem, form, plain))
    return files


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for name, us in _checks(folder).items():
            print(f"{name:32} {us:10.2f} µs")
        certificate, key = _certificate(folder)
        figures: dict[str, list[dict[str, float]]] = {"off": [], "on": []}
        with (
            _node(folder / "off", None, None) as plain,
            _node(folder / "on", certificate, key) as encrypted,
        ):
            for turn in range(_ROUNDS):
                figures["off"].append(asyncio.run(_measure(plain, False, f"r{turn}")))
                figures["on"].append(asyncio.run(_measure(encrypted, certificate, f"r{turn}")))
        for name in figures["off"][0]:
            medians = [statistics.median(each[name] for each in figures[tls]) for tls in figures]
            print(f"{name:32} TLS off {medians[0]:10.2f}   on {medians[1]:10.2f}")


if __name__ == "__main__":
    main()
