"""The owners of consumers' names. The latest stream owns a name; the earlier one is disconnected."""

from __future__ import annotations

from typing import Protocol

from chronoline.core.errors import ConsumerReplaced
from chronoline.runtime.bounded_cache import BoundedCache

_REMEMBERED = 10_000
"""The most replaced instances that are remembered. The versions of their leases fence the others."""


class Owner(Protocol):
    """A consumer's stream."""

    def leave(self) -> None:
        """Pushes nothing more to it."""

    def go_away(self, code: str, message: str) -> None:
        """Notifies the client, and ends the stream."""


class ConsumerNames:
    """The stream of each consumer's name, and the instances that lost theirs."""

    def __init__(self) -> None:
        self._holders: dict[str, tuple[str, Owner]] = {}
        # A frozen process can miss the notice: it gets the error when it connects again.
        self._replaced = BoundedCache[tuple[str, str], None](_REMEMBERED)

    def join(self, name: str, instance: str, stream: Owner) -> None:
        """Gives the name to the stream. Raises `ConsumerReplaced` if its instance lost the name before."""
        if instance and (name, instance) in self._replaced:
            raise ConsumerReplaced(_replaced(name))
        older_instance, older = self._holders.get(name, ("", None))
        self._holders[name] = (instance, stream)
        if older is None:
            return
        if older_instance and older_instance != instance:
            self._replaced.put((name, older_instance), None)
        older.leave()
        older.go_away("replaced", _replaced(name))

    def replace(self, name: str, stream: Owner) -> None:
        """Another instance has taken the stream's name, at another broker."""
        instance, holder = self._holders.get(name, ("", None))
        if holder is not stream:
            return
        del self._holders[name]
        if instance:
            self._replaced.put((name, instance), None)
        stream.leave()
        stream.go_away("replaced", _replaced(name))

    def leave(self, name: str, stream: Owner) -> None:
        """The stream has ended."""
        if self._holders.get(name, ("", None))[1] is stream:
            del self._holders[name]


def _replaced(name: str) -> str:
    return f"consumer {name!r} was replaced by a new connection"
