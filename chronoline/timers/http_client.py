"""A client of one timer node, over HTTP: for the command, and for nodes that this process starts."""

from __future__ import annotations

import http.client
import json
import ssl
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any

from chronoline.core.addresses import INSECURE_VARIABLE, check_token_in_clear
from chronoline.core.errors import ChronolineError

_TIMEOUT_S = 10.0
_LOOK_EVERY_S = 0.05


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
    token: str | None = None
    # None means plain HTTP.
    tls: ssl.SSLContext | None = None
    # Whether the token may travel to other machines by plain HTTP.
    insecure: bool = False

    def at(self, address: str) -> TimersNode:
        """Another node of the same cluster."""
        return replace(self, address=address)

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

    def ask_all(self, path: str) -> list[tuple[str, Any]]:
        """Posts to this node and to every other that it knows; returns their addresses and answers.

        Raises `NodeAway` when all were asked, if some could not be reached or refused.
        """
        first = self.ask(path, "POST")
        answers = [(self.address, first)]
        problems = []
        for each in first["nodes"]:
            if each["is_here"]:
                continue
            try:
                answers.append((each["address"], self.at(each["address"]).ask(path, "POST")))
            except NodeAway:
                problems.append(unreachable(each["address"]))
            except NodeRefused as error:
                problems.append(str(error))
        if problems:
            done = ", ".join(address for address, _ in answers)
            raise NodeAway(f"{'; '.join(problems)}. The others have done it: {done}")
        return answers

    def resync(self) -> Any:
        """Makes the node fetch the timers that it is to keep, waits for the end, and returns the report."""
        progress = self.ask("/v1/resync", "POST")
        while progress["running"]:
            time.sleep(_LOOK_EVERY_S)  # the progress has no event
            progress = self.ask("/v1/resync")
        return progress

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


def unreachable(address: str) -> str:
    """The problem of a node that does not answer, and the remedy."""
    return f"{address} cannot be reached: start it, or take it out of the list of nodes"
