"""URLs of stores and logs: schemes, parts, SQLite files, and URLs without their passwords."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from chronoline.core.errors import InvalidInput

SCHEMES = {
    "memory": "memory:",
    "sqlite": "sqlite:///folder/file.db",
    "postgresql": "postgresql://user:password@host:5432/database",
}
"""The schemes of timeline stores, with an example of each."""
POSTGRES = ("postgresql", "postgres")
"""Both schemes of PostgreSQL."""
_SQLITE = "sqlite:///"
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_SECRET_OPTION = re.compile(r"(?i)([?&][^=&]*(?:password|secret|token)[^=&]*=)[^&]*")


def scheme_of(url: str) -> str:
    """The scheme of a URL, which may be wrong otherwise; "" without one."""
    return urlsplit(url[: url.find(":") + 1]).scheme


def without_password(url: str) -> str:
    """A URL to show: without user and password, and without the values of secret options."""
    _, at, place = url.rpartition("@")
    if at:
        url = f"{scheme_of(url)}://…@{place}"
    return _SECRET_OPTION.sub(r"\1…", url)


# SQLite


def sqlite_path(url: str) -> str:
    """The file of a SQLite URL. Raises `InvalidInput`."""
    path = unquote(url[len(_SQLITE) :])
    if not url.lower().startswith(_SQLITE) or not path:
        raise InvalidInput(f"{url!r} names no file; write {SCHEMES['sqlite']}")
    if path == ":memory:":
        raise InvalidInput(
            "a SQLite database in memory is private to its connection; write memory:"
        )
    if "?" in url:
        raise InvalidInput(f"{url!r} has parameters, but none are allowed: end it before the ?")
    return path


def file_store(path: Path) -> str:
    """The URL of a SQLite database in a file."""
    return _SQLITE + str(path).replace("%", "%25").replace("?", "%3F")


def lasting_store(url: str) -> str:
    """The URL of a store in a form that is the same for every process. A relative file is made absolute.

    Raises `ValueError`, without the URL, which may hold a password.
    """
    scheme = scheme_of(url)
    if scheme in POSTGRES:
        return url
    if scheme != "sqlite":
        raise ValueError(
            f"is not the URL of a store; write {SCHEMES['sqlite']} or {SCHEMES['postgresql']}"
        )
    try:
        return file_store(Path(sqlite_path(url)).absolute())
    except InvalidInput:
        raise ValueError(f"names no file; write {SCHEMES['sqlite']}") from None


# URLs of objects and tables


class UrlParts(NamedTuple):
    """The parts of a URL, decoded."""

    scheme: str
    host: str
    path: str
    options: Mapping[str, str]


def split_url(url: str) -> UrlParts:
    """Splits a URL. Raises `InvalidInput` if it is invalid, or has credentials before its host."""
    try:
        parts = urlsplit(url)
        path = unquote(parts.path, errors="strict")
        options = parse_qsl(
            parts.query,
            keep_blank_values=True,
            strict_parsing=bool(parts.query),
            errors="strict",
        )
    except ValueError:  # its text may repeat a password
        raise InvalidInput(
            "this URL cannot be read; its options are name=value, with odd characters as %XX"
        ) from None
    place = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    if "@" in parts.netloc:
        raise InvalidInput(no_credentials(place))
    if parts.fragment or _CONTROL.search(url + path):
        raise InvalidInput(f"the URL of {place} has a # or a control character; # is written %23")
    names = [name for name, _ in options]
    if twice := {name for name in names if names.count(name) > 1}:
        raise InvalidInput(f"the URL of {place} gives {', '.join(sorted(twice))} twice")
    return UrlParts(parts.scheme, parts.netloc, path, dict(options))


def join_url(scheme: str, host: str, path: str, options: Mapping[str, str | None]) -> str:
    """The URL of some parts, in a canonical form."""
    given = {name: value for name, value in options.items() if value is not None}
    query = urlencode(given, quote_via=quote, safe="")
    return f"{scheme}://{host}{quote(path)}" + (f"?{query}" if query else "")


def no_credentials(where: str) -> str:
    """The error text for a URL with credentials in it."""
    return (
        f"the URL of {where} has credentials in it; they belong into the environment, such as "
        "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, because URLs are printed and logged"
    )
