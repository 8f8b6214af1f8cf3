"""TLS for clients."""

from __future__ import annotations

import ssl
from pathlib import Path

from chronoline.core.errors import InvalidInput


def client_context(authority: Path | None) -> ssl.SSLContext:
    """Trust certificates of an authority (PEM), or without one those of the system's."""
    try:
        return ssl.create_default_context(cafile=authority)
    except OSError as error:
        raise InvalidInput(
            f"{str(authority)!r} is no certificate in PEM: {error.strerror or error}"
        ) from None
