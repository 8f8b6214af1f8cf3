"""The address of a DynamoDB table, read from its URL."""

from __future__ import annotations

import re
from typing import NamedTuple

from chronoline.core.errors import InvalidInput
from chronoline.runtime.store_url import split_url

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
    scheme, table, path, parameters = split_url(url)
    if scheme != "dynamodb" or path not in ("", "/"):
        raise InvalidInput(f"{url!r} names no DynamoDB table; write {FORM}")
    if not _NAME.fullmatch(table):
        raise InvalidInput(
            f"{table!r} is no name for a table: it has 3 to 255 letters, digits, _ . -"
        )
    if unknown := parameters.keys() - _KNOWN:
        raise InvalidInput(f"{url!r} has parameters that are not known: {', '.join(unknown)}")
    endpoint = parameters.get("endpoint")
    if endpoint is not None and not endpoint.startswith(("http://", "https://")):
        raise InvalidInput(f"the endpoint {endpoint!r} is no URL; write http://… or https://…")
    return Address(url, table, parameters.get("region"), endpoint)
