"""The options that name the timer node of a command."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from chronoline.cli.options import (
    address_option,
    authority_option,
    certificate_option,
    checked_address,
    insecure_option,
    key_option,
    read_token,
    sharing,
    tls_option,
    token_file_option,
)
from chronoline.core.errors import InvalidInput
from chronoline.runtime.tls import Identity, client_context
from chronoline.timers.http_client import TimersNode

_PANEL = "The node"
_EXAMPLE = "127.0.0.1:7253"

Address = Annotated[
    str | None, address_option(_EXAMPLE, variable="CHRONOLINE_TIMERS", panel=_PANEL)
]
TokenFile = Annotated[Path | None, token_file_option(panel=_PANEL)]
Tls = Annotated[bool, tls_option(panel=_PANEL)]
Authority = Annotated[Path | None, authority_option(panel=_PANEL)]
Certificate = Annotated[Path | None, certificate_option(panel=_PANEL)]
Key = Annotated[Path | None, key_option(panel=_PANEL)]
Insecure = Annotated[bool, insecure_option(panel=_PANEL)]


def _node(
    address: Address = None,
    *,
    token_file: TokenFile = None,
    tls: Tls = False,
    ca: Authority = None,
    certificate: Certificate = None,
    key_file: Key = None,
    insecure: Insecure = False,
) -> TimersNode:
    return TimersNode(
        checked_address(address or _EXAMPLE, _EXAMPLE),
        os.environ.get("CHRONOLINE_TOKEN") if token_file is None else read_token(token_file),
        client_context(ca, _identity(certificate, key_file))
        if tls or ca or certificate or key_file
        else None,
        insecure,
    )


def _identity(certificate: Path | None, key: Path | None) -> Identity | None:
    if (certificate is None) != (key is None):
        raise InvalidInput("--certificate and --key-file go together")
    if certificate is None or key is None:
        return None
    return Identity(certificate=certificate, key=key)


asks_a_node = sharing(_node)
"""Gives a command the options that name a node, and the node."""
