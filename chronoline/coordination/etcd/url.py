"""URLs of an etcd: members, prefix, user and password, TLS."""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self
from urllib.parse import parse_qsl, unquote, urlsplit

import grpc

from chronoline.core.errors import InvalidInput
from chronoline.runtime.store_url import without_password

_EXAMPLE = "etcd://host:2379,host:2379/prefix"
_DEFAULT_PORT = 2379
_LAST_PORT = 65_535
_DEFAULT_PREFIX = "chronoline"
_MEMBER = re.compile(r"(?P<host>\[[0-9a-fA-F:.]+\]|[^\[\]:@/\s]+)(?::(?P<port>\d+))?")
_PREFIX = re.compile(r"[\w.-]+(?:/[\w.-]+)*", re.ASCII)
_FILES = ("ca", "cert", "key")
_OPTIONS = {"tls", *_FILES}


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdAddress:
    """The place of a cluster's keys: the members of an etcd, and a prefix."""

    members: tuple[str, ...]
    """host:port of each member."""
    prefix: str = _DEFAULT_PREFIX
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    has_tls: bool = False
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None

    @classmethod
    def parse(cls, url: str) -> Self:
        """Reads a URL. Raises `InvalidInput`, without the password."""
        shown = without_password(url)
        try:
            parts = urlsplit(url)
            options = parse_qsl(
                parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)
            )
        except ValueError:
            raise InvalidInput(f"{shown!r} cannot be read; write {_EXAMPLE}") from None
        if parts.scheme != "etcd" or parts.fragment:
            raise InvalidInput(f"{shown!r} is not the URL of an etcd; write {_EXAMPLE}")
        login, _, places = parts.netloc.rpartition("@")
        user, password = _login_of(login, shown)
        given = _given(options, shown)
        return cls(
            members=tuple(_member_of(place, shown) for place in places.split(",")),
            prefix=_prefix_of(parts.path, shown),
            user=user,
            password=password,
            has_tls=_has_tls(given, shown),
            **_files_of(given, shown),
        )

    def credentials(self) -> grpc.ChannelCredentials | None:
        """The credentials of a channel; None without TLS. Raises `InvalidInput` for an unreadable file."""
        if not self.has_tls:
            return None
        return grpc.ssl_channel_credentials(_read(self.ca), _read(self.key), _read(self.cert))

    def tls_context(self) -> ssl.SSLContext | None:
        """The same for the standard library."""
        if not self.has_tls:
            return None
        context = ssl.create_default_context(cafile=self.ca)
        if self.cert is not None:
            context.load_cert_chain(self.cert, self.key)
        return context


def _login_of(login: str, shown: str) -> tuple[str | None, str | None]:
    if not login:
        return None, None
    user, colon, password = login.partition(":")
    if not user or not colon:
        raise InvalidInput(f"{shown!r} needs user and password together: user:password@host")
    return unquote(user), unquote(password)


def _member_of(place: str, shown: str) -> str:
    found = _MEMBER.fullmatch(place)
    port = int(found["port"] or _DEFAULT_PORT) if found else 0
    if found is None or not 0 < port <= _LAST_PORT:
        raise InvalidInput(f"{shown!r} names no host and port where it should; write {_EXAMPLE}")
    return f"{found['host']}:{port}"


def _prefix_of(path: str, shown: str) -> str:
    prefix = path.strip("/") or _DEFAULT_PREFIX
    if not _PREFIX.fullmatch(prefix):
        raise InvalidInput(f"the prefix of {shown!r} may have letters, digits and . _ - / in it")
    return prefix


def _given(options: list[tuple[str, str]], shown: str) -> dict[str, str]:
    given = dict(options)
    if len(given) < len(options) or not given.keys() <= _OPTIONS:
        raise InvalidInput(
            f"{shown!r} may have the options {', '.join(sorted(_OPTIONS))}, once each"
        )
    return given


def _files_of(given: Mapping[str, str], shown: str) -> dict[str, Path]:
    files = {name: Path(given[name]) for name in _FILES if given.get(name)}
    if ("cert" in files) != ("key" in files):
        raise InvalidInput(f"{shown!r} needs cert and key together")
    return files


def _has_tls(given: Mapping[str, str], shown: str) -> bool:
    choice = given.get("tls", "on" if given else "off")
    if choice not in ("on", "off"):
        raise InvalidInput(f"the option tls of {shown!r} is on or off")
    if choice == "off" and len(given) > 1:
        raise InvalidInput(f"{shown!r} turns TLS off and names files for it")
    return choice == "on"


def _read(path: Path | None) -> bytes | None:
    try:
        return None if path is None else path.read_bytes()
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}") from error
