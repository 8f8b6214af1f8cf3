"""Authentication: open on loopback, a token and TLS everywhere else.

A client shows a token, a JWT, or the certificate of its connection. A header `Authorization` decides alone;
a certificate counts without one, by its name. The authority of clients (`client_ca`) is the gate before that:
a connection without a certificate of it ends in the handshake.
"""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, Protocol

import grpc

from chronoline.broker.principals import ANYBODY, Principal
from chronoline.broker.tokens import Tokens, hash_of
from chronoline.core.addresses import AllowedHosts, is_loopback
from chronoline.core.errors import BrokerUnavailable, CertificateExpired, InvalidInput
from chronoline.runtime.certificates import NO_CERTIFICATE, PeerCertificate
from chronoline.runtime.log_summary import LogSummary
from chronoline.runtime.tls import (
    ClientCertificates,
    Identity,
    ReloadedContext,
    read_pem,
    server_context,
)
from chronoline.runtime.watched_files import WatchedFiles

_LOG = LogSummary(logging.getLogger(__name__))
_UNREADABLE = (
    "the node cannot read its tokens, and lets nobody in until it can; its log has the reason"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTls(Identity):
    """The certificate of a node and its key, and the authority of its clients, as PEM files."""

    client_ca: Path | None = None
    """With it, clients are asked for a certificate of this authority."""
    client_certificates: ClientCertificates = "required"

    @property
    def requires_certificates(self) -> bool:
        """Whether no client connects without a certificate."""
        return self.client_ca is not None and self.client_certificates == "required"


class Shown(NamedTuple):
    """The proof that a client shows of who it is."""

    authorization: str | bytes = ""
    """The header `authorization`: `Bearer`, and a token or a JWT."""
    certificate: PeerCertificate = NO_CERTIFICATE
    """The certificate of its connection."""


class TokenIssuer(Protocol):
    """An issuer of signed tokens that are accepted."""

    def principal(self, token: str) -> Principal | None:
        """None if the token is refused. Raises `BrokerUnavailable` while that cannot be said."""


class Door:
    """The check of every request: its token, and without tokens its host name."""

    def __init__(
        self,
        tokens: Tokens | None = None,
        tls: ServerTls | None = None,
        *,
        issuer: TokenIssuer | None = None,
        allowed_hosts: Iterable[str] = (),
        now_s: Callable[[], float] = time.time,
    ) -> None:
        """`issuer` makes JWTs. `allowed_hosts` are further host names of a node that asks for no token."""
        self._now_s = now_s
        self._tokens = tokens
        self._issuer = issuer
        self._hosts = AllowedHosts(allowed_hosts)
        self.tls = tls
        self._has_asked = issuer is not None

    @property
    def asks(self) -> bool:
        """Whether a token is required. Once one exists, always: revoking the last one opens nothing."""
        self._has_asked |= self._tokens is not None and len(self._tokens) > 0
        return self._has_asked

    @property
    def is_open(self) -> bool:
        """Whether nobody needs a token or a certificate."""
        return not self.asks and not (self.tls is not None and self.tls.requires_certificates)

    @property
    def knows_certificates(self) -> bool:
        """Whether a client can be known by its certificate, without a token."""
        return self._tokens is not None and self._tokens.has_certificates

    def token_hash(self, name: str) -> str:
        """The hash of the stored token with this name; empty without one."""
        return "" if self._tokens is None else self._tokens.hash_of_name(name)

    @property
    def scheme(self) -> str:
        """The scheme of the node's URLs."""
        return "http" if self.tls is None else "https"

    def principal(self, shown: Shown) -> Principal | None:
        """The client that shows this; None if it is refused.

        Raises `CertificateExpired` for a connection whose certificate has ended since its handshake, whatever
        else the client shows; `InvalidInput` if the tokens cannot be read, and `BrokerUnavailable` while the
        keys of JWTs are not there.
        """
        if shown.certificate.ends_s < self._now_s():
            raise CertificateExpired
        if not self.asks:
            return ANYBODY
        if shown.authorization:
            return self._bearer(bearer_token(shown.authorization))
        if self._tokens is None:
            return None
        found = map(self._tokens.find_certificate, shown.certificate.names)
        record = next((each for each in found if each is not None), None)
        return None if record is None else Principal(record.name, record.rights, "certificate")

    def _bearer(self, token: str) -> Principal | None:
        record = None if self._tokens is None or not token else self._tokens.find(hash_of(token))
        if record is not None:
            return Principal(record.name, record.rights)
        return None if self._issuer is None or not token else self._issuer.principal(token)

    def unreadable(self, error: InvalidInput) -> BrokerUnavailable:
        """The refusal of all clients while the tokens cannot be read. The reason is for the log alone."""
        _LOG.log(logging.ERROR, "tokens_unreadable", "no client is let in: %s", error)
        return BrokerUnavailable(_UNREADABLE)

    def host_problem(self, host: str, here: str) -> str | None:
        """The reason why a request with this header `Host` is refused; None if it is allowed.

        `here` is the address at which its connection arrived. A token is a proof that no web page has; so is
        a required certificate, with the check of the node's own name by the browser.
        """
        by_certificate = self.tls is not None and self.tls.requires_certificates
        if self.asks or (by_certificate and not is_loopback(here)):
            return None
        return self._hosts.problem(host, here)

    # TLS

    @cached_property
    def _served(self) -> WatchedFiles[_Served]:
        assert self.tls is not None
        tls = self.tls
        files = [tls.certificate, tls.key, *([] if tls.client_ca is None else [tls.client_ca])]
        return WatchedFiles("certificate of this node", files, lambda: _Served(tls))

    def ssl_context(self) -> ssl.SSLContext | None:
        """Raises `InvalidInput` if the files are no certificate with its key."""
        if self.tls is None:
            return None
        served = self._served
        return ReloadedContext.of(lambda: served.current().context, is_server=True)

    def grpc_credentials(self) -> grpc.ServerCredentials | None:
        """gRPC asks for certificates that are required, and for no others: it cannot."""
        if self.tls is None:
            return None
        served, asks = self._served, self.tls.requires_certificates
        last = served.current()

        def latest() -> grpc.ServerCertificateConfiguration | None:
            """At each handshake: the certificate as it is now, or None for no change.

            A new configuration has new keys for session tickets, and gRPC has no other way to switch these
            off: with a ticket a client would not show its certificate again for two days.
            """
            nonlocal last
            before, last = last, served.current()
            return None if last is before and not asks else last.grpc

        return grpc.dynamic_ssl_server_credentials(
            last.grpc,
            latest,  # type: ignore[arg-type]  # None is allowed, and means no change
            require_client_authentication=asks,
        )


class _Served:
    """A certificate as both kinds of servers use it. Raises `InvalidInput` unless it is one with its key."""

    def __init__(self, tls: ServerTls) -> None:
        self.context = server_context(tls, tls.client_ca, tls.client_certificates)
        self.grpc = grpc.ssl_server_certificate_configuration(
            [(read_pem(tls.key), read_pem(tls.certificate))],
            None if tls.client_ca is None else read_pem(tls.client_ca),
        )


def bearer_token(authorization: str | bytes) -> str:
    """The token in an `authorization` header; empty if there is none."""
    text = authorization.decode("latin-1") if isinstance(authorization, bytes) else authorization
    kind, _, token = text.partition(" ")
    return token.strip() if kind.lower() == "bearer" else ""


def token_hash(authorization: str | bytes) -> str:
    """The hash of the token in an `authorization` header; empty if there is none."""
    token = bearer_token(authorization)
    return hash_of(token) if token else ""


def check_listener(host: str, door: Door, *, insecure: bool) -> None:
    """Raises `InvalidInput` for an address that other machines can reach, without both TLS and a token.

    A required certificate of the client is as good as a token.
    """
    if insecure or is_loopback(host):
        return
    missing = []
    if door.tls is None:
        missing.append("TLS (--tls-certificate and --tls-key)")
    if not door.asks and not (door.tls is not None and door.tls.requires_certificates):
        missing.append("a token (chronoline token create NAME)")
    if missing:
        raise InvalidInput(
            f"other machines can reach {host!r}, which needs {' and '.join(missing)}; with --insecure "
            "everyone who can reach it can read, change and delete everything"
        )
