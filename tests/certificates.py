"""Certificates for 127.0.0.1, for names, and for clients: of an authority, or their own."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


class Authority:
    """An authority that signs certificates of servers and clients."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        builder = _builder(self._name, self._name, self._key, timedelta(days=1))
        ca = x509.BasicConstraints(ca=True, path_length=None)
        self._certificate = builder.add_extension(ca, critical=True).sign(
            self._key, hashes.SHA256()
        )
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))

    def issue(
        self, name: str, *alternatives: x509.GeneralName, ends_in: timedelta = timedelta(days=1)
    ) -> tuple[Path, Path]:
        """The files of a certificate with this common name and for 127.0.0.1, and of its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = [x509.IPAddress(ip_address("127.0.0.1")), *alternatives]
        certificate = (
            _builder(_named(name), self._name, key, ends_in)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return _write(self._folder, name, certificate, key)


def make_certificate(folder: Path, *names: str) -> tuple[Path, Path]:
    """The files of a certificate that is its own authority, and of its key."""
    alternatives = [x509.IPAddress(ip_address("127.0.0.1")), *map(x509.DNSName, names)]
    key, name = ec.generate_private_key(ec.SECP256R1()), _named("node")
    certificate = (
        _builder(name, name, key, timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    return _write(folder, "node", certificate, key)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])


def _builder(
    name: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, ends_in: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=2))
        .not_valid_after(now + ends_in)
    )


def _write(
    folder: Path, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey
) -> tuple[Path, Path]:
    files = folder / f"{name}.pem", folder / f"{name}-key.pem"
    files[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return files
