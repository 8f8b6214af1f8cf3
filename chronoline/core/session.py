"""Sessions: which consumer process was granted a lease, by which subscription, in which reservation.

A stored row names the session of its last lease, as `instance/place.number`:

- *instance*: one running consumer. It keeps its name when it connects anew, to this broker or to another.
- *place*: one subscription at one broker, or one lane. Two brokers that serve one instance have two places.
- *number*: one reservation, or one resumption.

The version of a row says whether a lease was changed. The session says by whom: a change of unknown outcome
is judged by it, and an unanswered reservation gives back only what it was granted itself.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Session:
    """Names the grants of one subscription or one lane."""

    instance: str
    place: str
    _grants: int = 0

    def new_grant(self) -> str:
        """The name of the next reservation or resumption."""
        self._grants += 1
        return f"{self.instance}/{self.place}.{self._grants}"


def instance_of(session: str | None) -> str:
    """The instance that a stored session names; empty if there is none."""
    return (session or "").rpartition("/")[0]
