"""The audit trail: one log line for each administrative act, with its author and its outcome.

The edges open an `AuditedRequest` around each request. All code that asks for the right `administer` in it
calls `note`, which makes it an administrative act: the line is written when the request ends, whether the
act was allowed or not. Acts on this machine, such as those of `chronoline token`, are written by `local`.

The lines go to the logger `chronoline.audit`, with `action=audit`. Bodies, tokens and passwords are never
in them.
"""

from __future__ import annotations

import getpass
import logging
from collections.abc import Sequence
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any, Protocol, Self

from chronoline.runtime.terminal_text import printable

logger = logging.getLogger("chronoline.audit")

DONE = "done"
FAILED = "failed"
_MOST_CHARACTERS = 1_000

_current: ContextVar[AuditedRequest | None] = ContextVar("chronoline_audit", default=None)


class ItemOutcome(Protocol):
    """The outcome of one item of a batch."""

    @property
    def refusal(self) -> object | None: ...


class AuditedRequest:
    """One request at an edge. It is written when it ends, if it was an administrative act."""

    def __init__(self, act: str, origin: str) -> None:
        self.act = act
        self.origin = origin
        self.who = ""
        self.outcome = DONE
        self.is_act = False
        self.topic = ""
        self.details: dict[str, Any] = {}
        self._before: Token[AuditedRequest | None] | None = None

    def __enter__(self) -> Self:
        self._before = _current.set(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._before is not None:
            _current.reset(self._before)
            self._before = None
        if self.is_act:
            outcome = FAILED if error is not None and self.outcome == DONE else self.outcome
            topic = {"topic": self.topic} if self.topic else {}
            _write(self.act, self.who, self.origin, outcome, {**topic, **self.details})


def note(topic: str | None = None, **details: Any) -> None:
    """Makes the request under way an administrative act, on this topic. Does nothing outside of a request."""
    request = _current.get()
    if request is not None:
        request.is_act = True
        request.topic = topic or request.topic
        request.details |= details


def by(who: str) -> None:
    """Names the author of the request under way."""
    request = _current.get()
    if request is not None:
        request.who = who


def refused(code: str) -> None:
    """Names the reason for which the request under way was refused or has failed."""
    request = _current.get()
    if request is not None:
        request.outcome = code


def note_outcomes(outcomes: Sequence[ItemOutcome]) -> None:
    """Notes how many items the act under way had, and how many of them were refused."""
    request = _current.get()
    if request is not None:
        refused = sum(each.refusal is not None for each in outcomes)
        request.details |= {"items": len(outcomes), "refused": refused}


def local(act: str, origin: str, **details: Any) -> None:
    """Writes an act of a user of this machine, who needs no token."""
    _write(act, f"local {_user()}", origin, DONE, details)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in some containers
        return "user"


def _cut(value: Any) -> Any:
    """A detail of bounded size: a client can ask for a name of megabytes."""
    return value[:_MOST_CHARACTERS] if isinstance(value, str) else value


def _write(act: str, who: str, origin: str, outcome: str, details: dict[str, Any]) -> None:
    details = {name: _cut(value) for name, value in details.items()}
    more = "".join(f", {name} {value!r}" for name, value in details.items())
    fields = {"act": act, "who": who, "from": origin, "outcome": outcome, **details}
    line = f"{who} from {origin}: {act}{more}: {outcome}"
    # Names may have line ends in them; a line must not become two.
    line = printable(line, instead="?")
    logger.info("%s", line, extra={"action": "audit", **fields})
