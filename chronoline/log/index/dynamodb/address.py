"""Where a table is, as a URL says it."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import parse_qsl, urlsplit

from chronoline.core.errors import InvalidInput

FORM = "dynamodb://table-name?region=eu-central-1"
_NAME = re.compile(r"[A-Za-z0-9_.-]{3,255}")
_KNOWN = {"region", "endpoint"}


class Address(NamedTuple):
    """A table, its region if not that of the environment, and its endpoint if not that of AWS."""

    url: str
    table: str
    region: str | None
    endpoint: str | None


def parse_address(url: str) -> Address:
    """Reads ``dynamodb://table-name?region=…&endpoint=http://…``. Credentials are no part of it."""
    try:
        parts = urlsplit(url)
        parameters = dict(parse_qsl(parts.query, strict_parsing=True)) if parts.query else {}
    except ValueError as error:
        raise InvalidInput(f"{url!r} cannot be read ({error}); write {FORM}") from error
    if parts.scheme != "dynamodb" or parts.path not in ("", "/") or parts.fragment:
        raise InvalidInput(f"{url!r} names no DynamoDB table; write {FORM}")
    if "@" in parts.netloc:
        raise InvalidInput("credentials come from where AWS looks for them, not from the URL")
    if not _NAME.fullmatch(parts.netloc):
        raise InvalidInput(
            f"{parts.netloc!r} is no name for a table: it has 3 to 255 letters, digits, _ . -"
        )
    if unknown := parameters.keys() - _KNOWN:
        raise InvalidInput(f"{url!r} has parameters that are not known: {', '.join(unknown)}")
    endpoint = parameters.get("endpoint")
    if endpoint is not None and not endpoint.startswith(("http://", "https://")):
        raise InvalidInput(f"the endpoint {endpoint!r} is no URL; write http://… or https://…")
    return Address(url, parts.netloc, parameters.get("region"), endpoint)
