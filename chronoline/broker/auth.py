"""Authentication: open on loopback, a token and TLS everywhere else."""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import grpc

from chronoline.broker.principals import ANYBODY, Principal
from chronoline.broker.tokens import Tokens, hash_of
from chronoline.core.addresses import is_loopback
from chronoline.core.errors import InvalidInput
from chronoline.runtime.tls import read_pem


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """A certificate and its key, as PEM files."""

    certificate: Path
    key: Path


class Door:
    """The check of every request: its token, and on loopback its host name."""

    def __init__(
        self,
        tokens: Tokens | None = None,
        tls: Tls | None = None,
        *,
        allowed_hosts: Iterable[str] = (),
    ) -> None:
        """`allowed_hosts` are further host names of a node on loopback that needs no token."""
        self._tokens = tokens
        self._allowed_hosts = frozenset(map(_host_name, allowed_hosts))
        self.tls = tls
        self._has_asked = False

    @property
    def asks(self) -> bool:
        """Whether a token is required. Once one exists, always: revoking the last one opens nothing."""
        self._has_asked |= self._tokens is not None and len(self._tokens) > 0
        return self._has_asked

    @property
    def scheme(self) -> str:
        """The scheme of the node's URLs."""
        return "http" if self.tls is None else "https"

    def principal(self, authorization: str | bytes) -> Principal | None:
        """The client with this header `authorization`, `Bearer` and a token; None if it is refused."""
        return self.principal_of(token_hash(authorization))

    def principal_of(self, shown: str) -> Principal | None:
        """The client whose token has this hash, which is empty without a token; None if it is refused."""
        if not self.asks:
            return ANYBODY
        assert self._tokens is not None
        record = self._tokens.find(shown)
        return None if record is None else Principal(record.name, record.rights)

    def host_problem(self, host: str) -> str | None:
        """The reason why a request for this host is refused; None if it is allowed.

        Without a token, a web page must not reach the node by a host name that resolves to this machine.
        """
        name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
        if not name or is_loopback(name) or _host_name(name) in self._allowed_hosts:
            return None
        return (
            f"the host {name[:100]!r} is not allowed without a token: use 127.0.0.1, [::1] or localhost, or "
            "add it to allowed_hosts"
        )

    def grpc_credentials(self) -> grpc.ServerCredentials | None:
        if self.tls is None:
            return None
        return grpc.ssl_server_credentials(
            [(read_pem(self.tls.key), read_pem(self.tls.certificate))]
        )

    def ssl_context(self) -> ssl.SSLContext | None:
        """Raises `InvalidInput` if the files are no certificate with its key."""
        if self.tls is None:
            return None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            # An encrypted key fails at once, instead of asking the terminal for its password.
            context.load_cert_chain(self.tls.certificate, self.tls.key, password=lambda: "")
        except OSError as error:
            raise InvalidInput(
                f"{str(self.tls.certificate)!r} and {str(self.tls.key)!r} are not a certificate and its key "
                f"in PEM: {error.strerror or error}"
            ) from None
        return context


def token_hash(authorization: str | bytes) -> str:
    """The hash of the token in an `authorization` header; empty if there is none."""
    text = authorization.decode("latin-1") if isinstance(authorization, bytes) else authorization
    kind, _, token = text.partition(" ")
    return hash_of(token.strip()) if kind.lower() == "bearer" else ""


def _host_name(text: str) -> str:
    """A host name in the form in which names are compared."""
    return text.lower().removesuffix(".")


def check_listener(host: str, door: Door, *, insecure: bool) -> None:
    """Raises `InvalidInput` for an address that other machines can reach, without both TLS and a token."""
    if insecure or is_loopback(host):
        return
    missing = []
    if door.tls is None:
        missing.append("TLS (--tls-certificate and --tls-key)")
    if not door.asks:
        missing.append("a token (chronoline token create NAME)")
    if missing:
        raise InvalidInput(
            f"other machines can reach {host!r}, which needs {' and '.join(missing)}; with --insecure "
            "everyone who can reach it can read, change and delete everything"
        )
