"""The tokens of a node: a file with their hashes, their rights and their ends.

Tokens are 256 random bits, so the file holds only their SHA-256; only its owner can read it. The file is read
again when it has changed: a revoked token is refused from then on, and streams that it opened end at the next
check, by the token's hash.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import secrets
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chronoline.core.errors import InvalidInput
from chronoline.core.limits import name_problem
from chronoline.core.rights import ALL_RIGHTS, Rights
from chronoline.runtime import audit
from chronoline.runtime.clock import SystemClock
from chronoline.runtime.private_files import make_private_folder

logger = logging.getLogger(__name__)

_TOKEN_BYTES = 32
_PREFIX = "chronoline_"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRecord:
    """A token as it is stored, or a name in certificates that opens as much as a token."""

    name: str
    hash: str = ""
    certificate: str = ""
    """A name in the certificates of clients; it has no hash then."""
    rights: Rights = ALL_RIGHTS
    created_ms: int | None = None
    expires_ms: int | None = None

    def is_expired(self, now_ms: int) -> bool:
        return self.expires_ms is not None and self.expires_ms <= now_ms

    def to_json(self) -> dict[str, Any]:
        given = {
            "hash": self.hash or None,
            "certificate": self.certificate or None,
            "rights": None if self.rights == ALL_RIGHTS else self.rights.texts(),
            "created_ms": self.created_ms,
            "expires_ms": self.expires_ms,
        }
        return {key: value for key, value in given.items() if value is not None}

    @classmethod
    def from_json(cls, name: str, stored: Any) -> TokenRecord:
        """Raises `InvalidInput`, `LookupError` or `TypeError` for a file that was damaged."""
        if isinstance(stored, str):  # as files had it when a token had no rights of its own
            return cls(name=name, hash=stored)
        rights, certificate = stored.get("rights"), str(stored.get("certificate", ""))
        return cls(
            name=name,
            hash="" if certificate else str(stored["hash"]),
            certificate=certificate,
            rights=ALL_RIGHTS if rights is None else Rights.parse(rights),
            created_ms=stored.get("created_ms"),
            expires_ms=stored.get("expires_ms"),
        )


class Tokens:
    """The tokens of a node, by name."""

    def __init__(self, path: Path, now_ms: Callable[[], int] | None = None) -> None:
        self._path = path
        self._now_ms = now_ms or SystemClock().now_ms
        self._read_at: tuple[int, int] | None = None
        self._has_looked = False
        self._records: Mapping[str, TokenRecord] = {}
        self._by_hash: Mapping[str, TokenRecord] = {}
        self._by_certificate: Mapping[str, TokenRecord] = {}

    def __len__(self) -> int:
        self._reread()
        return len(self._records)

    def records(self) -> list[TokenRecord]:
        """By name; the expired ones too."""
        self._reread()
        return [self._records[name] for name in sorted(self._records)]

    def names(self) -> list[str]:
        return [each.name for each in self.records()]

    def create(
        self, name: str, rights: Rights = ALL_RIGHTS, *, expires_ms: int | None = None
    ) -> str:
        """A new token, which cannot be shown again. Raises `InvalidInput` if the name is taken."""
        token = _PREFIX + secrets.token_urlsafe(_TOKEN_BYTES)
        self._add(name, rights, expires_ms, hash=hash_of(token))
        return token

    def admit_certificate(
        self,
        name: str,
        certificate: str,
        rights: Rights = ALL_RIGHTS,
        *,
        expires_ms: int | None = None,
    ) -> None:
        """Lets clients in by a name in their certificates, without a token.

        Tokens and certificates share their names: both are listed, expire and are revoked alike. Raises
        `InvalidInput` if one of the names is taken.
        """
        if problem := name_problem("the name in the certificate", certificate):
            raise InvalidInput(problem)
        self._reread()
        if (known := self._by_certificate.get(certificate)) is not None:
            raise InvalidInput(
                f"certificates of {certificate!r} are known as {known.name!r} already"
            )
        self._add(name, rights, expires_ms, certificate=certificate)

    def _add(self, name: str, rights: Rights, expires_ms: int | None, **opens: str) -> None:
        with self._alone():
            self._add_alone(name, rights, expires_ms, **opens)
        audit.local("create_token", str(self._path), token=name, rights=rights.texts())

    def _add_alone(self, name: str, rights: Rights, expires_ms: int | None, **opens: str) -> None:
        if problem := name_problem("the name of a token", name):
            raise InvalidInput(problem)
        if not name.isprintable():  # it stands in logs, and in lines for people
            raise InvalidInput("the name of a token contains a character that cannot be printed")
        now_ms = self._now_ms()
        if expires_ms is not None and expires_ms <= now_ms:
            raise InvalidInput("the end of the token is in the past; nothing was changed")
        self._reread()
        if name in self._records:
            raise InvalidInput(f"a token {name!r} exists already; revoke it first")
        record = TokenRecord(
            name=name, rights=rights, created_ms=now_ms, expires_ms=expires_ms, **opens
        )
        self._write([*self._records.values(), record])

    def revoke(self, name: str) -> None:
        """Raises `InvalidInput` if there is no token of that name."""
        with self._alone():
            self._reread()
            if name not in self._records:
                known = ", ".join(sorted(self._records)) or "none"
                raise InvalidInput(f"there is no token {name!r}; there are: {known}")
            self._write(each for each in self._records.values() if each.name != name)
        audit.local("revoke_token", str(self._path), token=name)

    def find(self, hash: str) -> TokenRecord | None:
        """The token with this hash; None if it was revoked, or has expired."""
        self._reread()
        return self._living(self._by_hash.get(hash))

    def hash_of_name(self, name: str) -> str:
        """The hash of the token with this name; empty without one."""
        self._reread()
        record = self._living(self._records.get(name))
        return "" if record is None else record.hash

    def find_certificate(self, certificate: str) -> TokenRecord | None:
        """Whom a name in a certificate stands for; None if it is not known any more."""
        self._reread()
        return self._living(self._by_certificate.get(certificate))

    @property
    def has_certificates(self) -> bool:
        self._reread()
        return bool(self._by_certificate)

    def _living(self, record: TokenRecord | None) -> TokenRecord | None:
        return None if record is None or record.is_expired(self._now_ms()) else record

    def knows(self, token: str) -> bool:
        return self.find(hash_of(token)) is not None

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keeps other processes from changing the tokens: a revocation must not be overwritten."""
        make_private_folder(self._path.parent)
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)

    def _reread(self) -> None:
        try:
            found = self._path.stat()
        except FileNotFoundError:
            self._learn({}, None)
            return
        read_at = (found.st_mtime_ns, found.st_ino)
        if read_at == self._read_at:
            return
        try:
            stored = json.loads(self._path.read_text("utf-8"))
            records = {name: TokenRecord.from_json(name, each) for name, each in stored.items()}
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise InvalidInput(
                f"the tokens in {self._path.name!r} cannot be read: {error}. Restore the file, or delete it "
                "and make new tokens with `chronoline token create`"
            ) from None
        self._learn(records, read_at)

    def _learn(self, records: Mapping[str, TokenRecord], read_at: tuple[int, int] | None) -> None:
        if self._has_looked:
            self._log_changes(records)
        self._has_looked = True
        self._records, self._read_at = records, read_at
        self._by_hash = {each.hash: each for each in records.values() if each.hash}
        self._by_certificate = {
            each.certificate: each for each in records.values() if each.certificate
        }

    def _log_changes(self, records: Mapping[str, TokenRecord]) -> None:
        """A node learns of all changes by the file."""
        made = sorted(name for name, each in records.items() if self._records.get(name) != each)
        gone = sorted(self._records.keys() - records.keys())
        if made or gone:
            fields = {"action": "tokens_changed", "made": made, "gone": gone}
            logger.info("tokens were made: %s, and revoked: %s", made, gone, extra=fields)

    def _write(self, records: Iterable[TokenRecord]) -> None:
        stored = {each.name: each.to_json() for each in records}
        handle, temporary = tempfile.mkstemp(dir=self._path.parent)  # only its owner can read it
        with os.fdopen(handle, "w") as file:
            json.dump(stored, file, indent=1)
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


def hash_of(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
