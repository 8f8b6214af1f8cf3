"""TLS for clients."""

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
