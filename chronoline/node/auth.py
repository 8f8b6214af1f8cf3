"""The access control of a node: its tokens and certificates.

The broker's interfaces check their requests themselves (`broker.http`, `broker.grpc`), `timer_auth` those for
timers.
"""

from __future__ import annotations

import logging
from pathlib import Path

from chronoline.broker.auth import Door, ServerTls, TokenIssuer, check_listener
from chronoline.broker.tokens import Tokens
from chronoline.callbacks.address_guard import AddressGuard
from chronoline.node.settings import JwtTable, NodeSettings

logger = logging.getLogger(__name__)


def open_door(settings: NodeSettings) -> Door:
    """Reads tokens, keys and certificates. Raises `InvalidInput` for an address that needs more of them."""
    tls = _tls(settings)
    door = Door(
        Tokens(settings.tokens_file),
        tls,
        issuer=_issuer(settings.jwt),
        allowed_hosts=settings.host_names,
    )
    door.ssl_context()  # a wrong file is refused now, with a clear error
    for listener in settings.listeners.values():
        check_listener(listener.host, door, insecure=settings.insecure)
    if settings.has_broker and tls is not None and tls.client_ca and not tls.requires_certificates:
        logger.warning(
            "with tls_client_certificates=optional gRPC asks no client for a certificate: it can only "
            "require one",
            extra={"action": "no_grpc_certificates"},
        )
    return door


def address_guard(settings: NodeSettings, door: Door) -> AddressGuard:
    """The addresses that targets and timers may call.

    A client that needs a token must not reach other services of this machine by the node.
    """
    return AddressGuard(
        settings.allowed_calls, loopback=lambda: settings.calls_loopback and door.is_open
    )


def _tls(settings: NodeSettings) -> ServerTls | None:
    if settings.tls_certificate is None or settings.tls_key is None:
        return None
    return ServerTls(
        certificate=Path(settings.tls_certificate),
        key=Path(settings.tls_key),
        client_ca=None if settings.tls_client_ca is None else Path(settings.tls_client_ca),
        client_certificates=settings.tls_client_certificates,
    )


def _issuer(table: JwtTable) -> TokenIssuer | None:
    if table.keys is None:
        return None
    # The library is in an extra of its own.
    from chronoline.broker.jwt_issuer import JwtIssuer, JwtRules, KeyFile, KeyUrl  # noqa: PLC0415

    assert table.issuer is not None
    assert table.audience is not None
    rules = JwtRules(
        issuer=table.issuer,
        audience=table.audience,
        rights_claim=table.rights_claim,
        leeway_ms=table.leeway_ms,
    )
    if table.keys.startswith("https://"):
        ca = None if table.ca is None else Path(table.ca)
        return JwtIssuer(KeyUrl(table.keys, ca=ca), rules)
    return JwtIssuer(KeyFile(Path(table.keys)), rules)
