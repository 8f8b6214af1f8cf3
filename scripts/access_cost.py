"""Measures what access costs: TLS, tokens and JSON Web Tokens, beside none. `python -m scripts.access_cost`

Each runs at a node on SQLite, in a process of its own; the producer and the consumer are in this one. A round
measures every node, in an order that changes from round to round; `control` is a second node without
anything, so its distance from `none` is that of two equal ones.
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
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

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

_ROUNDS = 6
_RATE = 500
_STEADY_S = 3
_CREATE_S = 1.0
_BODY = bytes(100)
_BATCH = 500
_TASKS = 32


class _Variant(NamedTuple):
    """A node, and how a client reaches it."""

    options: Sequence[str] = ()
    tls: bool | Path = False
    token: str | None = None


def _variants(folder: Path) -> dict[str, _Variant]:
    """The first is without anything."""
    certificate, key = _certificate(folder)
    rights = [f"produce:orders-{n}-*:billing" for n in range(8)]
    rights += ["produce:*", "consume:*", "administer:*"]
    token = Tokens(folder / "token" / "tokens.json").create("bench", Rights.parse(rights))
    signing, public = _signing_key()
    keys = folder / "keys.json"
    keys.write_bytes(public)
    given = {"keys": str(keys), "issuer": "i", "audience": "a"}
    jwt_options = [
        word for name, value in given.items() for word in ("--set", f"jwt.{name}={value}")
    ]
    return {
        "none": _Variant(),
        "control": _Variant(),
        "TLS": _Variant(
            ("--tls-certificate", str(certificate), "--tls-key", str(key)), certificate
        ),
        "token": _Variant(token=token),
        "JWT": _Variant(jwt_options, token=_signed(signing, rights)),
    }


@contextmanager
def _node(folder: Path, options: Sequence[str]) -> Iterator[str]:
    (address,) = free_addresses(1)
    command = [sys.executable, "-m", "chronoline", "up", "--quiet", "--until-eof"]
    command += ["--data", str(folder), "--grpc", address, "--http", "", *options]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            yield address
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait()


async def _lateness(client: AsyncClient, topic: str) -> list[float]:
    """How late each message came, in ms, by the producer's clock: it is this process's too."""
    await client.create_topic(topic)
    late: list[float] = []
    count = _RATE * _STEADY_S

    async def consume() -> None:
        async for lease in client.consume(topic, prefetch=1_000):
            late.append((time.time() - lease.due.timestamp()) * 1000)
            _keep(asyncio.create_task(lease.ack()))
            if len(late) == count:
                return

    consuming = asyncio.create_task(consume())
    begin = time.monotonic()
    for number in range(count):
        await asyncio.sleep(max(0, begin + number / _RATE - time.monotonic()))
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
    begin, made = time.monotonic(), 0
    end = begin + _CREATE_S

    async def send() -> None:
        nonlocal made
        while time.monotonic() < end:
            if batch > 1:
                await client.send_many(topic, [ToSend(body=_BODY, delay=3600)] * batch)
            else:
                await client.send(topic, _BODY, delay=3600)
            made += batch

    await asyncio.gather(*(send() for _ in range(2 if batch > 1 else _TASKS)))
    return made / (time.monotonic() - begin)


async def _measure(address: str, variant: _Variant, name: str) -> dict[str, float]:
    found: dict[str, float] = {}
    async with AsyncClient(address, tls=variant.tls, token=variant.token) as client:
        await _wait_for(client)
        late = sorted(await _lateness(client, f"{name}-late"))
        found["late p50, ms"] = statistics.median(late)
        found["late p99, ms"] = late[int(len(late) * 0.99)]
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
    key, public = _signing_key()
    keys = KeySet(public, "keys")
    token = _signed(key, [])
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


def _signing_key() -> tuple[ec.EllipticCurvePrivateKey, bytes]:
    """A key, and the set of keys that verifies its signatures."""
    key = ec.generate_private_key(ec.SECP256R1())
    public = jwt.algorithms.ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
    return key, json.dumps({"keys": [public]}).encode()


def _signed(key: ec.EllipticCurvePrivateKey, rights: Sequence[str]) -> str:
    until = time.time() + 3600
    claims = {"iss": "i", "aud": "a", "sub": "s", "exp": until, "chronoline": [*rights]}
    return jwt.encode(claims, key, "ES256")


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


def _rounds(folder: Path) -> dict[str, list[dict[str, float]]]:
    variants = _variants(folder)
    figures: dict[str, list[dict[str, float]]] = {name: [] for name in variants}
    with ExitStack() as nodes:
        addresses = {
            name: nodes.enter_context(_node(folder / name, each.options))
            for name, each in variants.items()
        }
        names = list(variants)
        for turn in range(_ROUNDS + 1):
            for name in names:
                measured = _measure(addresses[name], variants[name], f"r{turn}")
                figures[name].append(asyncio.run(measured))
            names = names[1:] + names[:1]
    return {name: rounds[1:] for name, rounds in figures.items()}  # the first one warms up


def _print(figures: dict[str, list[dict[str, float]]]) -> None:
    """The median of the rounds, the range of them, and the median of the ratios to `none` in a round."""
    base = next(iter(figures.values()))
    for what in base[0]:
        print(what)
        for name, rounds in figures.items():
            values = sorted(each[what] for each in rounds)
            ratios = sorted(
                each[what] / other[what] for each, other in zip(rounds, base, strict=True)
            )
            print(
                f"    {name:8} {statistics.median(values):10.2f}   {values[0]:10.2f} to {values[-1]:10.2f}   "
                f"x {statistics.median(ratios):.2f}   {ratios[0]:.2f} to {ratios[-1]:.2f}"
            )


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for name, us in _checks(folder).items():
            print(f"{name:32} {us:10.2f} µs", flush=True)
        _print(_rounds(folder))


if __name__ == "__main__":
    main()
