"""Which stream has which consumer's name. Whoever comes last has it; whoever had it does not get it back."""

from __future__ import annotations

from typing import Protocol

from chronoline.core.errors import ConsumerReplaced
from chronoline.runtime.bounded_cache import BoundedCache

_REMEMBERED = 10_000
"""So many that were replaced are known for it; an older one is fenced by the versions of its leases alone."""


class Named(Protocol):
    """A consumer's stream."""

    def leave(self) -> None:
        """Nothing more is pushed to it."""

    def go_away(self, code: str, message: str) -> None:
        """Tells the client, and ends the stream."""


class Roll:
    def __init__(self) -> None:
        self._holders: dict[str, tuple[str, Named]] = {}
        # A frozen process may miss that it was told: it hears it when it connects anew.
        self._replaced = BoundedCache[tuple[str, str], None](_REMEMBERED)

    def join(self, name: str, instance: str, stream: Named) -> None:
        """The stream has the name now. Raises `ConsumerReplaced` if another instance took it."""
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

    def replace(self, name: str, stream: Named) -> None:
        """Another instance has taken the stream's name, at another broker."""
        instance, holder = self._holders.get(name, ("", None))
        if holder is not stream:
            return
        del self._holders[name]
        if instance:
            self._replaced.put((name, instance), None)
        stream.leave()
        stream.go_away("replaced", _replaced(name))

    def leave(self, name: str, stream: Named) -> None:
        """The stream has ended."""
        if self._holders.get(name, ("", None))[1] is stream:
            del self._holders[name]


def _replaced(name: str) -> str:
    return f"consumer {name!r} has connected anew"
