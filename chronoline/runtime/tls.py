"""TLS: contexts of clients and servers, made anew when their files change."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from chronoline.core.errors import InvalidInput
from chronoline.runtime.watched_files import WatchedFiles

ClientCertificates = Literal["required", "optional"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A certificate with its chain, and its key, as PEM files."""

    certificate: Path
    key: Path


class ReloadedContext(ssl.SSLContext):
    """A context that is made anew when its files have changed; each handshake uses the latest one.

    Servers and clients keep the context that they were given, so this one stands for the others.
    """

    _latest: Callable[[], ssl.SSLContext]

    @classmethod
    def of(cls, latest: Callable[[], ssl.SSLContext], *, is_server: bool) -> ReloadedContext:
        context = cls(ssl.PROTOCOL_TLS_SERVER if is_server else ssl.PROTOCOL_TLS_CLIENT)
        context._latest = latest
        return context

    def wrap_bio(self, *given: Any, **named: Any) -> ssl.SSLObject:
        return self._latest().wrap_bio(*given, **named)

    def wrap_socket(self, *given: Any, **named: Any) -> ssl.SSLSocket:
        return self._latest().wrap_socket(*given, **named)


def client_context(authority: Path | None, identity: Identity | None = None) -> ssl.SSLContext:
    """A context that trusts an authority (PEM), or without one those of the system.

    With an identity it shows a certificate to servers that ask for one.
    """
    if identity is None:
        return _client_context(authority, None)
    files = [identity.certificate, identity.key, *([] if authority is None else [authority])]
    watched = WatchedFiles(
        "certificate of this client", files, lambda: _client_context(authority, identity)
    )
    return ReloadedContext.of(watched.current, is_server=False)


def _client_context(authority: Path | None, identity: Identity | None) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=authority)
    except OSError as error:
        raise InvalidInput(
            f"{str(authority)!r} is no certificate in PEM: {error.strerror or error}"
        ) from None
    if identity is not None:
        load_identity(context, identity)
    return context


def server_context(
    identity: Identity, client_ca: Path | None, client_certificates: ClientCertificates
) -> ssl.SSLContext:
    """The context of a server. With `client_ca` it asks clients for a certificate of that authority."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    load_identity(context, identity)
    if client_ca is not None:
        try:
            context.load_verify_locations(cafile=client_ca)
        except OSError as error:
            raise InvalidInput(
                f"{str(client_ca)!r} is no certificate in PEM: {error.strerror or error}"
            ) from None
        is_required = client_certificates == "required"
        context.verify_mode = ssl.CERT_REQUIRED if is_required else ssl.CERT_OPTIONAL
        # A ticket would let a client in whose certificate has expired since.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
    return context


def load_identity(context: ssl.SSLContext, identity: Identity) -> None:
    """Raises `InvalidInput` if the files are no certificate with its key."""
    try:
        # An encrypted key fails at once, instead of asking the terminal for its password.
        context.load_cert_chain(identity.certificate, identity.key, password=lambda: "")
    except OSError as error:
        raise InvalidInput(
            f"{str(identity.certificate)!r} and {str(identity.key)!r} are not a certificate and its key "
            f"in PEM: {error.strerror or error}"
        ) from None


def read_pem(path: Path) -> bytes:
    """The content of a file with a key or certificates. Raises `InvalidInput`."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidInput(f"{str(path)!r} cannot be read: {error.strerror}") from None
