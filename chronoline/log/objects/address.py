"""Where objects lie, as a URL says it: `s3://bucket/prefix?region=…&endpoint=…`.

Credentials are no part of it. A URL is printed, logged and passed around; they come from the environment.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Self
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from chronoline.core.errors import InvalidInput

OPTIONS = {
    "s3": ("region", "endpoint"),
    "gs": ("endpoint",),
    "az": ("endpoint",),
}
"""What each kind of bucket takes in its URL."""

_BUCKET_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")
_REGION = re.compile(r"[a-z0-9-]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_NOT_IN_A_PREFIX = re.compile(r'[\x00-\x1f\x7f\\{^}%`\]">\[~<#|*?]')
_CREDENTIALS = re.compile(
    r"secret|token|password|credential|access_?key|account_?key|signature|sas"
)


class UrlParts(NamedTuple):
    """A URL, taken apart and decoded."""

    scheme: str
    host: str
    path: str
    options: Mapping[str, str]


def split_url(url: str) -> UrlParts:
    """Takes a URL apart. Raises `InvalidInput` if it cannot be one, or has credentials before its host."""
    try:
        parts = urlsplit(url)
        path = unquote(parts.path, errors="strict")
        options = parse_qsl(
            parts.query,
            keep_blank_values=True,
            strict_parsing=bool(parts.query),
            errors="strict",
        )
    except ValueError:  # whose text may repeat a password
        raise InvalidInput(
            "this URL cannot be read; its options are name=value, with odd characters as %XX"
        ) from None
    place = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    if "@" in parts.netloc:
        raise InvalidInput(_no_credentials(place))
    if parts.fragment or _CONTROL.search(url + path):
        raise InvalidInput(f"the URL of {place} has a # or a control character; # is written %23")
    names = [name for name, _ in options]
    if twice := {name for name in names if names.count(name) > 1}:
        raise InvalidInput(f"the URL of {place} gives {', '.join(sorted(twice))} twice")
    return UrlParts(parts.scheme, parts.netloc, path, dict(options))


def join_url(scheme: str, host: str, path: str, options: Mapping[str, str | None]) -> str:
    """The URL of such parts, always written in the same way."""
    given = {name: value for name, value in options.items() if value is not None}
    query = urlencode(given, quote_via=quote, safe="")
    return f"{scheme}://{host}{quote(path)}" + (f"?{query}" if query else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketAddress:
    """A bucket, and a prefix in it."""

    scheme: str
    bucket: str
    prefix: str = ""
    region: str | None = None
    endpoint: str | None = None
    """Another server than the provider's own."""

    @classmethod
    def parse(cls, url: str) -> Self:
        """Raises `InvalidInput`, which says what to write instead."""
        scheme, bucket, path, options = split_url(url)
        if scheme not in OPTIONS:
            raise InvalidInput(f"{scheme}:// names no bucket; write s3://bucket/prefix")
        if unknown := sorted(set(options) - set(OPTIONS[scheme])):
            if any(_CREDENTIALS.search(name.lower()) for name in unknown):
                raise InvalidInput(_no_credentials(f"{scheme}://{bucket}"))
            known = ", ".join(OPTIONS[scheme])
            raise InvalidInput(f"no option of {scheme}:// is {', '.join(unknown)}; known: {known}")
        if not _BUCKET_NAME.fullmatch(bucket):
            raise InvalidInput(
                f"{bucket!r} is not the name of a bucket; write {scheme}://bucket/prefix, with a name of "
                "3 or more lower-case letters, digits, dots and hyphens"
            )
        return cls(
            scheme=scheme, bucket=bucket, prefix=_checked_prefix(path), **_checked_options(options)
        )

    @property
    def url(self) -> str:
        path = f"/{self.prefix}" if self.prefix else ""
        options = {"region": self.region, "endpoint": self.endpoint}
        return join_url(self.scheme, self.bucket, path, options)


def _checked_prefix(path: str) -> str:
    prefix = path.removeprefix("/").removesuffix("/")
    if prefix and any(part in ("", ".", "..") for part in prefix.split("/")):
        raise InvalidInput(f"the prefix {prefix!r} has an empty part, or one that is only dots")
    if odd := _NOT_IN_A_PREFIX.search(prefix):
        raise InvalidInput(f"a prefix cannot have the character {odd[0]!r}, as {prefix!r} has")
    return prefix


def _checked_options(options: Mapping[str, str]) -> dict[str, str]:
    region, endpoint = options.get("region"), options.get("endpoint")
    if region is not None and not _REGION.fullmatch(region):
        raise InvalidInput(f"{region!r} is not a region; write one like eu-central-1")
    if endpoint is not None:
        parts = split_url(endpoint)
        if parts.scheme not in ("http", "https") or not parts.host or parts.options:
            raise InvalidInput(f"{endpoint!r} is not an endpoint; write http://host:port")
    return dict(options)


def _no_credentials(where: str) -> str:
    return (
        f"the URL of {where} has credentials in it; they belong into the environment, such as "
        "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, because URLs are printed and logged"
    )
