"""Authentication: open on loopback, a token and TLS everywhere else.

Tokens are 256 random bits, so the file of tokens holds only their SHA-256; only its owner can read it. The
file is read again when it has changed: a revoked token is refused from then on, and streams that it opened
end at the next check, by the token's hash.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import ssl
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import grpc

from chronoline.core.addresses import is_loopback
from chronoline.core.errors import InvalidInput
from chronoline.core.limits import name_problem
from chronoline.runtime.tls import read_pem

_TOKEN_BYTES = 32
_PREFIX = "chronoline_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """A certificate and its key, as PEM files."""

    certificate: Path
    key: Path


class Tokens:
    """The tokens of a node, by name."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_at: tuple[int, int] | None = None
        self._hashes: dict[str, str] = {}

    def __len__(self) -> int:
        self._reread()
        return len(self._hashes)

    def names(self) -> list[str]:
        self._reread()
        return sorted(self._hashes)

    def create(self, name: str) -> str:
        """A new token, which cannot be shown again. Raises `InvalidInput` if the name is taken."""
        if problem := name_problem("the name of a token", name):
            raise InvalidInput(problem)
        self._reread()
        if name in self._hashes:
            raise InvalidInput(f"a token {name!r} exists already; revoke it first")
        token = _PREFIX + secrets.token_urlsafe(_TOKEN_BYTES)
        self._write({**self._hashes, name: _hash(token)})
        return token

    def revoke(self, name: str) -> None:
        """Raises `InvalidInput` if there is no token of that name."""
        self._reread()
        if name not in self._hashes:
            known = ", ".join(sorted(self._hashes)) or "none"
            raise InvalidInput(f"there is no token {name!r}; there are: {known}")
        self._write({each: kept for each, kept in self._hashes.items() if each != name})

    def knows(self, token: str) -> bool:
        return self.knows_hash(_hash(token))

    def knows_hash(self, given: str) -> bool:
        self._reread()
        return any(hmac.compare_digest(given, kept) for kept in self._hashes.values())

    def _reread(self) -> None:
        try:
            found = self._path.stat()
        except FileNotFoundError:
            self._hashes, self._read_at = {}, None
            return
        read_at = (found.st_mtime_ns, found.st_ino)
        if read_at == self._read_at:
            return
        try:
            hashes = json.loads(self._path.read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise InvalidInput(
                f"the tokens in {self._path.name!r} cannot be read: {error}. Restore the file, or delete it "
                "and make new tokens with `chronoline token create`"
            ) from None
        self._hashes, self._read_at = hashes, read_at

    def _write(self, hashes: dict[str, str]) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=self._path.parent)  # only its owner can read it
        with os.fdopen(handle, "w") as file:
            json.dump(hashes, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(self._path)
        _flush_folder(self._path.parent)  # or a revoked token returns after a power loss
        self._read_at = None


def _flush_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


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

    def accepts(self, authorization: str | bytes) -> bool:
        """`authorization` is the header of that name: `Bearer` and a token."""
        return self.accepts_hash(token_hash(authorization))

    def accepts_hash(self, shown: str) -> bool:
        """Whether a client with a token of this hash may stay; the hash is empty without a token."""
        if not self.asks:
            return True
        assert self._tokens is not None
        return self._tokens.knows_hash(shown)

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
    return _hash(token.strip()) if kind.lower() == "bearer" else ""


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
