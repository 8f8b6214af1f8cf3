"""The access control of a node: its tokens and certificates.

The broker's interfaces check their requests themselves (`broker.http`, `broker.grpc`), `timer_auth` those for
timers.
"""

from __future__ import annotations

from pathlib import Path

from chronoline.broker.auth import Door, Tls, check_listener
from chronoline.broker.tokens import Tokens
from chronoline.node.settings import NodeSettings


def open_door(settings: NodeSettings) -> Door:
    """Reads tokens and certificates. Raises `InvalidInput` for an address that needs more of them."""
    tokens, tls = Tokens(settings.tokens_file), None
    if settings.tls_certificate is not None and settings.tls_key is not None:
        tls = Tls(certificate=Path(settings.tls_certificate), key=Path(settings.tls_key))
    door = Door(tokens, tls, allowed_hosts=settings.allowed_hosts)
    door.ssl_context()  # a wrong file is refused now, with a clear error
    for listener in settings.listeners.values():
        check_listener(listener.host, door, insecure=settings.insecure)
    return door
