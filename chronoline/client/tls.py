"""TLS of a client: the authority that it trusts, and the certificate that it shows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import grpc

from chronoline.core.errors import InvalidInput
from chronoline.runtime.tls import Identity, client_context, read_pem


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS with these files, in PEM: `Client(tls=Tls(ca="ca.pem", certificate="me.pem", key="me-key.pem"))`.

    Without `ca` the authorities of the system are trusted. Brokers that ask for a certificate get this one.
    A new connection reads the files again if they have changed.
    """

    ca: str | Path | None = None
    certificate: str | Path | None = None
    """The certificate with its chain."""
    key: str | Path | None = None
    """The certificate's key."""

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise InvalidInput("a certificate of a client needs its key, and a key its certificate")

    @classmethod
    def given(cls, tls: bool | str | Path | Tls) -> Tls | None:
        """None for a client without TLS."""
        if isinstance(tls, Tls):
            return tls
        if isinstance(tls, bool):
            return cls() if tls else None
        return cls(ca=tls)

    @property
    def identity(self) -> Identity | None:
        if self.certificate is None or self.key is None:
            return None
        return Identity(certificate=Path(self.certificate), key=Path(self.key))

    def marks(self) -> tuple[int, ...]:
        """Differs when a file was changed."""
        files = (self.ca, self.certificate, self.key)
        try:
            return tuple(Path(each).stat().st_mtime_ns for each in files if each is not None)
        except OSError:
            return ()

    def channel_credentials(self) -> grpc.ChannelCredentials:
        """Raises `InvalidInput` for a file that cannot be read."""
        roots = None if self.ca is None else read_pem(Path(self.ca))
        identity = self.identity
        if identity is None:
            return grpc.ssl_channel_credentials(roots)
        client_context(None if self.ca is None else Path(self.ca), identity)  # gRPC names no file
        return grpc.ssl_channel_credentials(
            roots, read_pem(identity.key), read_pem(identity.certificate)
        )
