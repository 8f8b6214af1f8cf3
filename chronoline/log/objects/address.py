"""The address of a bucket, `s3://bucket/prefix?region=…&endpoint=…`, and the paths of objects below it.

Credentials are no part of it. A URL is printed, logged and passed around; they come from the environment.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from chronoline.core.errors import InvalidInput
from chronoline.log.contract import MARK
from chronoline.runtime.store_url import join_url, no_credentials, split_url

OPTIONS = {
    "s3": ("region", "endpoint"),
    "gs": ("endpoint",),
    "az": ("endpoint",),
}
"""The options of each kind of bucket in its URL."""
FOLDER_CHARACTERS = 5
"""Of a name, which begins with its time: a folder holds about two hours."""
SUFFIX = ".events"

_BUCKET_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")
_REGION = re.compile(r"[a-z0-9-]+")
_NOT_IN_A_PREFIX = re.compile(r'[\x00-\x1f\x7f\\{^}%`\]">\[~<#|*?]')
_CREDENTIALS = re.compile(
    r"secret|token|password|credential|access_?key|account_?key|signature|sas"
)


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
                raise InvalidInput(no_credentials(f"{scheme}://{bucket}"))
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
        raise InvalidInput(
            f"the prefix {prefix!r} has an empty part, or one that is only dots: leave that part out"
        )
    if odd := _NOT_IN_A_PREFIX.search(prefix):
        raise InvalidInput(
            f"a prefix cannot have the character {odd[0]!r}, as {prefix!r} has: choose another prefix"
        )
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


def path_of(name: str) -> str:
    """The path of an object. It is the same in a folder and in a bucket: one can be copied to the other."""
    return f"{name[:FOLDER_CHARACTERS]}/{name}{SUFFIX}"


def name_of(path: str) -> str | None:
    """The name of the object at a path, or None for one that is not ours."""
    name = path.rpartition("/")[2].removesuffix(SUFFIX)
    return name if name and name != MARK and path_of(name) == path else None
