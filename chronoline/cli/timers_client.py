"""The timer node that a command uses, and the options that name it."""

from __future__ import annotations

import http.client
import json
import os
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any

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
from chronoline.core.addresses import INSECURE_VARIABLE, check_token_in_clear
from chronoline.core.errors import ChronolineError
from chronoline.runtime.tls import client_context

_PANEL = "The node"
_EXAMPLE = "127.0.0.1:7253"
_TIMEOUT_S = 10.0

Address = Annotated[
    str | None, address_option(_EXAMPLE, variable="CHRONOLINE_TIMERS", panel=_PANEL)
]
TokenFile = Annotated[Path | None, token_file_option(panel=_PANEL)]
Tls = Annotated[bool, tls_option(panel=_PANEL)]
Authority = Annotated[Path | None, authority_option(panel=_PANEL)]
Insecure = Annotated[bool, insecure_option(panel=_PANEL)]


class NodeRefused(ChronolineError):
    """The node refused."""


class TimerUnknown(NodeRefused):
    """The node does not know the timer."""


class NodeAway(ChronolineError):
    """The node cannot be reached."""


@dataclass(frozen=True, slots=True)
class TimersNode:
    """A client of one node, over HTTP."""

    address: str
    token: str | None
    # None means plain HTTP.
    tls: ssl.SSLContext | None
    # Whether the token may travel to other machines by plain HTTP.
    insecure: bool = False

    def at(self, address: str) -> TimersNode:
        """Another node of the same cluster."""
        return TimersNode(address, self.token, self.tls, self.insecure)

    def ask(self, path: str, method: str = "GET") -> Any:
        """The JSON of an answer. Raises the node's error."""
        scheme = "http" if self.tls is None else "https"
        request = urllib.request.Request(f"{scheme}://{self.address}{path}", method=method)
        if self.token:
            if self.tls is None and not self.insecure:
                check_token_in_clear(self.address, allow=f"use --insecure ({INSECURE_VARIABLE}=1)")
            request.add_header("Authorization", f"Bearer {self.token}")
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S, context=self.tls) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            with error:
                raise self._refusal(error) from None
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise NodeAway(f"no timers at {self.address}: {self._words(error)}") from None

    def _refusal(self, error: urllib.error.HTTPError) -> NodeRefused:
        if error.headers.get_content_type() != "text/plain" or "Reason" not in error.headers:
            return NodeRefused(
                f"the server at {self.address} is no node for timers: it answered {error.code}"
            )
        if error.code == HTTPStatus.UNAUTHORIZED:
            return NodeRefused(
                f"{self.address} asks for a token: give it by --token-file or in CHRONOLINE_TOKEN"
            )
        words = error.read().decode(errors="replace").strip()
        return (TimerUnknown if error.code == HTTPStatus.NOT_FOUND else NodeRefused)(words)

    def _words(self, error: Exception) -> str:
        """Why it cannot be reached, and the remedy."""
        reason = getattr(error, "reason", error)
        if isinstance(reason, ssl.SSLCertVerificationError):
            return f"{reason.verify_message}. Name the authority of its certificate by --ca"
        if isinstance(reason, ssl.SSLError):
            return "it does not speak TLS. Leave out --tls and --ca"
        if isinstance(reason, ConnectionResetError | http.client.HTTPException | ValueError):
            return "it does not speak HTTP as a node does. With TLS, use --tls or --ca"
        return f"{reason}. Start a node by `chronoline up --roles timers`, or name another by --address"


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
