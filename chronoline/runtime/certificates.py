"""Certificates: their names, and until when they are valid."""

from __future__ import annotations

import math
import re
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from chronoline.core.errors import InvalidInput
from chronoline.runtime.tls import read_pem

_BLOCK = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_SEQUENCE, _VERSION, _UTC_TIME = 0x30, 0xA0, 0x17
_LONG = 0x80
_VALIDITY = 3
"""Its place in a certificate without a version: after serial number, algorithm and issuer."""


@dataclass(frozen=True, slots=True)
class PeerCertificate:
    """The certificate of the other side of a connection, which the handshake has checked."""

    names: tuple[str, ...] = ()
    """Its common name, URIs and hosts.

    Only these kinds count: in others, such as e-mail addresses, authorities put what a user has typed.
    """
    ends_s: float = math.inf
    """The Unix time of its end: a connection can last longer."""

    @classmethod
    def of_tls(cls, found: Mapping[str, Any] | None) -> PeerCertificate:
        """The certificate as `getpeercert` gives it."""
        if not found:
            return NO_CERTIFICATE
        subject = [
            value
            for part in found.get("subject", ())
            for name, value in part
            if name == "commonName"
        ]
        others = found.get("subjectAltName", ())
        names = [
            *subject,
            *(value for kind, value in others if kind == "URI"),
            *(value for kind, value in others if kind == "DNS"),
        ]
        return cls(_distinct(names), ssl.cert_time_to_seconds(found["notAfter"]))

    @classmethod
    def of_grpc(cls, properties: Mapping[str, Iterable[bytes]]) -> PeerCertificate:
        """The certificate in the authentication context of a gRPC call."""
        pem = next(iter(properties.get("x509_pem_cert", ())), None)
        if pem is None:
            return NO_CERTIFICATE
        names = [
            value.decode("utf-8", "replace")
            for name in ("x509_common_name", "peer_uri", "peer_dns")
            for value in properties.get(name, ())
        ]
        return cls(_distinct(names), _end_of(bytes(pem)))


NO_CERTIFICATE = PeerCertificate()
"""The other side showed none."""


def _distinct(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for name in names if name))


@lru_cache(maxsize=1_000)
def _end_of(pem: bytes) -> float:
    """The Unix time of its end. A certificate that cannot be read counts as ended."""
    try:
        _, end = valid_span(ssl.PEM_cert_to_DER_cert(pem.decode("ascii")))
    except (ValueError, IndexError):
        return -math.inf
    return end.timestamp()


def valid_spans(path: Path) -> list[tuple[datetime, datetime]]:
    """The first and the last moment of each certificate in a file, in its order. Raises `InvalidInput`."""
    blocks = _BLOCK.findall(read_pem(path))
    if not blocks:
        raise InvalidInput(f"{str(path)!r} holds no certificate in PEM")
    try:
        return [valid_span(ssl.PEM_cert_to_DER_cert(block.decode("ascii"))) for block in blocks]
    except (ValueError, IndexError):
        raise InvalidInput(f"{str(path)!r} holds a certificate that cannot be read") from None


def valid_span(certificate: bytes) -> tuple[datetime, datetime]:
    """The first and the last moment of a certificate in DER. Raises `ValueError` or `IndexError`.

    Python's ssl module tells them only of a certificate that it has verified.
    """
    (body,) = _parts(certificate)[:1]
    fields = _parts(_parts(body[1])[0][1])
    if fields[0][0] == _VERSION:
        fields = fields[1:]
    tag, validity = fields[_VALIDITY]
    if tag != _SEQUENCE:
        raise ValueError("not a certificate")
    begin, end = _parts(validity)
    return _moment(*begin), _moment(*end)


def _parts(data: bytes) -> list[tuple[int, bytes]]:
    """The elements of DER, each with its tag."""
    found = []
    while data:
        tag, size, start = data[0], data[1], 2
        if size & _LONG:
            start += size & ~_LONG
            size = int.from_bytes(data[2:start])
        if len(data) < start + size:
            raise ValueError("it ends too early")
        found.append((tag, data[start : start + size]))
        data = data[start + size :]
    return found


def _moment(tag: int, text: bytes) -> datetime:
    form = "%y%m%d%H%M%SZ" if tag == _UTC_TIME else "%Y%m%d%H%M%SZ"
    return datetime.strptime(text.decode("ascii"), form).replace(tzinfo=UTC)
