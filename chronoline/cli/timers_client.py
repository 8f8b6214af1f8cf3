"""The options that name the timer node of a command."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from chronoline.cli.options import (
    address_option,
    authority_option,
    checked_address,
    insecure_option,
    read_token,
    sharing,
    tls_option,
    token_file_option,
)
from chronoline.runtime.tls import client_context
from chronoline.timers.http_client import TimersNode

_PANEL = "The node"
_EXAMPLE = "127.0.0.1:7253"

Address = Annotated[
    str | None, address_option(_EXAMPLE, variable="CHRONOLINE_TIMERS", panel=_PANEL)
]
TokenFile = Annotated[Path | None, token_file_option(panel=_PANEL)]
Tls = Annotated[bool, tls_option(panel=_PANEL)]
Authority = Annotated[Path | None, authority_option(panel=_PANEL)]
Insecure = Annotated[bool, insecure_option(panel=_PANEL)]


def _node(
    address: Address = None,
    *,
    token_file: TokenFile = None,
    tls: Tls = False,
    ca: Authority = None,
    insecure: Insecure = False,
) -> TimersNode:
    return TimersNode(
        checked_address(address or _EXAMPLE, _EXAMPLE),
        os.environ.get("CHRONOLINE_TOKEN") if token_file is None else read_token(token_file),
        client_context(ca) if tls or ca else None,
        insecure,
    )


asks_a_node = sharing(_node)
"""Gives a command the options that name a node, and the node."""
