"""The owners of consumers' names. The latest stream owns a name; the earlier one is disconnected.

A name belongs to a principal: a token with a right to it on one topic must not disconnect another token's
consumer of another topic. Two principals with the same name meet at the first topic to which both subscribe.
Both have the right to the name there: the later one has it then.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from chronoline.broker.principals import Principal
from chronoline.core.errors import ConsumerReplaced
from chronoline.runtime.bounded_cache import BoundedCache

_REMEMBERED = 10_000
"""The most replaced instances that are remembered. The versions of their leases fence the others."""


class Owner(Protocol):
    """A consumer's stream."""

    @property
    def principal(self) -> Principal: ...

    def is_subscribed(self, topic_uid: int) -> bool: ...

    def leave(self) -> None:
        """Pushes nothing more to it."""

    def go_away(self, code: str, message: str) -> None:
        """Notifies the client, and ends the stream."""


class _Holder(NamedTuple):
    instance: str
    stream: Owner


class ConsumerNames:
    """The stream of each consumer's name, and the instances that lost theirs."""

    def __init__(self) -> None:
        # By name, then by principal.
        self._holders: dict[str, dict[str, _Holder]] = {}
        # A frozen process can miss the notice: it gets the error when it connects again.
        self._replaced = BoundedCache[tuple[str, str, str], None](_REMEMBERED)

    def join(self, name: str, instance: str, stream: Owner) -> None:
        """Gives the name to the stream. Raises `ConsumerReplaced` if its instance lost the name before."""
        who = stream.principal.who
        if instance and (who, name, instance) in self._replaced:
            raise ConsumerReplaced(_replaced(name))
        holders = self._holders.setdefault(name, {})
        older = holders.get(who)
        holders[who] = _Holder(instance, stream)
        if older is not None:
            self._end(name, who, older, by=instance)

    def subscribing(self, name: str, topic_uid: int, stream: Owner) -> None:
        """The stream has the right to the name on this topic: consumers of other principals lose it there."""
        for who, holder in list(self._holders.get(name, {}).items()):
            if holder.stream is not stream and holder.stream.is_subscribed(topic_uid):
                self._forget(name, who)
                self._end(name, who, holder)

    def replace(self, name: str, stream: Owner) -> None:
        """Another instance has taken the stream's name, at another broker."""
        if (found := self._held(name, stream)) is not None:
            who, holder = found
            self._forget(name, who)
            self._end(name, who, holder)

    def leave(self, name: str, stream: Owner) -> None:
        """The stream has ended."""
        if (found := self._held(name, stream)) is not None:
            self._forget(name, found[0])

    def _held(self, name: str, stream: Owner) -> tuple[str, _Holder] | None:
        holders = self._holders.get(name, {}).items()
        return next((each for each in holders if each[1].stream is stream), None)

    def _forget(self, name: str, who: str) -> None:
        holders = self._holders[name]
        del holders[who]
        if not holders:
            del self._holders[name]

    def _end(self, name: str, who: str, holder: _Holder, *, by: str = "") -> None:
        if holder.instance and holder.instance != by:
            self._replaced.put((who, name, holder.instance), None)
        holder.stream.leave()
        holder.stream.go_away("replaced", _replaced(name))


def _replaced(name: str) -> str:
    return f"consumer {name!r} was replaced by a new connection"
