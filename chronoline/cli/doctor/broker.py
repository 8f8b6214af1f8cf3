"""Checks of a running broker: whether it answers and is ready, its version, its certificate."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial

from chronoline.broker.degradation import NOTICES
from chronoline.cli.broker import Broker
from chronoline.cli.doctor.checks import Check, Diagnosis, ok, problem, warning
from chronoline.core.version import VERSION
from chronoline.runtime.certificates import valid_span

_DEFAULT = "127.0.0.1:7400"
_SOON = timedelta(days=14)
_ANSWER_S = 5.0


def broker_checks(broker: Broker) -> Iterator[Check]:
    yield Check("broker", lambda: check_broker(broker))
    if broker.tls:
        for address in (broker.address or _DEFAULT).split(","):
            yield Check(f"certificate of {address}", partial(check_served, address))


def check_broker(broker: Broker) -> Diagnosis:
    """Checks that a broker answers, is ready, and is of this version."""
    begun = time.monotonic()
    info = broker.info()
    took_ms = (time.monotonic() - begun) * 1000
    words = f"{len(info.brokers)} at {', '.join(each.address for each in info.brokers)}"
    reasons = [each for each in info.degradations if each.type not in NOTICES]
    if info.store_problem:
        return problem(
            f"{words}; its store does not answer: {info.store_problem}",
            "`chronoline doctor --config FILE` on its machine looks at the store",
        )
    if reasons:
        return problem(
            f"{words}; not ready ({reasons[0].type}): {reasons[0].reason}",
            "docs/health.md explains the states",
        )
    others = sorted({each.version for each in info.brokers if each.version != VERSION})
    if others:
        return warning(
            f"{words}; of version {', '.join(others)}, and this command of {VERSION}",
            "finish the upgrade: both work together for its time only",
        )
    if info.degradations:
        first = info.degradations[0]
        return warning(f"{words}; degraded ({first.type}): {first.reason}", "see docs/health.md")
    return ok(f"{words}, version {VERSION}; ready, answered in {took_ms:.0f} ms")


def check_served(address: str) -> Diagnosis:
    """Checks the certificate that is served at an address. It need not be trusted."""
    host, _, port = address.rpartition(":")
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # it is read, not trusted
    context.set_alpn_protocols(["h2"])
    try:
        with (
            socket.create_connection((host.strip("[]"), int(port)), _ANSWER_S) as plain,
            context.wrap_socket(plain, server_hostname=host.strip("[]")) as served,
        ):
            found = served.getpeercert(binary_form=True) or b""
    except (OSError, ssl.SSLError) as error:
        return problem(f"no TLS connection: {error}", "see that it runs, and that it serves TLS")
    with suppress(ValueError, IndexError):
        _, end = valid_span(found)
        words = f"valid until {end:%Y-%m-%d %H:%M} UTC"
        if datetime.now(UTC) >= end:
            return problem(f"expired on {end:%Y-%m-%d %H:%M} UTC", "replace it on the broker")
        if datetime.now(UTC) + _SOON >= end:
            return warning(words, "replace it on the broker in time")
        return ok(words)
    return problem("it cannot be read", "replace it on the broker")
