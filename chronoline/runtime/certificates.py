"""Certificates in PEM: until when they are valid."""

from __future__ import annotations

import re
import ssl
from datetime import UTC, datetime
from pathlib import Path

from chronoline.core.errors import InvalidInput
from chronoline.runtime.tls import read_pem

_BLOCK = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_SEQUENCE, _VERSION, _UTC_TIME = 0x30, 0xA0, 0x17
_LONG = 0x80
_VALIDITY = 3
"""Its place in a certificate without a version: after serial number, algorithm and issuer."""


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
