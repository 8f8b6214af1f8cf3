"""TLS: contexts of clients, and files in PEM."""

from __future__ import annotations

import ssl
from pathlib import Path

from chronoline.core.errors import InvalidInput


def client_context(authority: Path | None) -> ssl.SSLContext:
    """A context that trusts an authority (PEM), or without one those of the system."""
    try:
        return ssl.create_default_context(cafile=authority)
    except OSError as error:
        raise InvalidInput(
            f"{str(authority)!r} is no certificate in PEM: {error.strerror or error}"
        ) from None


def read_pem(path: Path) -> bytes:
    """The content of a file with a key or certificates. Raises `InvalidInput`."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidInput(f"{str(path)!r} cannot be read: {error.strerror}") from None
