"""Callers: the identity of a client, and the checks of its rights at the edges of a broker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from chronoline.core.errors import Forbidden
from chronoline.core.message import DeadLetter, Message
from chronoline.core.permissions import Actor, Consumer, Producer, System
from chronoline.core.rights import ALL_RIGHTS, RightKind, Rights
from chronoline.core.topic import Topic

if TYPE_CHECKING:
    from chronoline.broker.carrier import Carrier


@dataclass(frozen=True, slots=True)
class Principal:
    """A client that was let in."""

    name: str = ""
    """The name of its token; empty on a node that requires none."""
    rights: Rights = ALL_RIGHTS

    def may(self, kind: RightKind, topic: str | None = None, name: str | None = None) -> bool:
        return self.rights.allows(kind, topic, name)

    def check(self, kind: RightKind, topic: str | None = None, name: str | None = None) -> None:
        """Raises `Forbidden` with the right that is missing."""
        if not self.may(kind, topic, name):
            raise self._forbidden(_right(kind, topic, name))

    def check_touches(self, topic: str) -> None:
        """Raises `Forbidden` unless there is any right to this topic."""
        if not self.rights.touches(topic):
            raise self._forbidden(f"to topic {topic!r}, of any kind")

    def _forbidden(self, missing: str) -> Forbidden:
        who = f"the token {self.name!r}" if self.name else "the token"
        return Forbidden(
            f"{who} does not have the right {missing}; nothing was changed. An administrator of the node "
            "gives it: `chronoline token create NAME --right …`"
        )


ANYBODY = Principal()
"""A client of a node that requires no token."""


def _right(kind: RightKind, topic: str | None, name: str | None) -> str:
    parts = [kind.value] if topic is None and name is None else [kind.value, topic or "…"]
    return ":".join(parts if name is None else [*parts, name])


# Messages of a topic


def check_look(principal: Principal, topic: str) -> None:
    """Raises `Forbidden` for a principal that may see no message of a topic.

    Producers see those of their group.
    """
    if not principal.may(RightKind.PRODUCE, topic):
        principal.check(RightKind.OBSERVE, topic)


def check_browse(principal: Principal, topic: str, group: str) -> None:
    """Raises `Forbidden` for a principal that may not list the messages of a group; empty means of all."""
    if not (group and principal.may(RightKind.PRODUCE, topic, group)):
        principal.check(RightKind.OBSERVE, topic)


def may_see(principal: Principal, topic: str, message: Message) -> bool:
    """Whether a principal may see that this message is there, and everything of it but its body."""
    return may_see_group(principal, topic, message.producer_group)


def may_see_group(principal: Principal, topic: str, group: str) -> bool:
    """Whether a principal may see the messages of a producer group."""
    return principal.may(RightKind.OBSERVE, topic) or principal.may(RightKind.PRODUCE, topic, group)


def check_actor(principal: Principal, topic: str, actor: Actor) -> None:
    """Raises `Forbidden` unless the principal may act under this name."""
    match actor:
        case Producer(group):
            principal.check(RightKind.PRODUCE, topic, group)
        case Consumer(name):
            principal.check(RightKind.CONSUME, topic, name)
        case System():
            principal.check(RightKind.ADMINISTER, topic)


async def visible_letters(
    carrier: Carrier, principal: Principal, topic: Topic, *, after: DeadLetter | None, limit: int
) -> list[DeadLetter]:
    """A page of the dead letters that a principal may see. Raises `Forbidden` if it may see none.

    A page with fewer than the limit is the last, so those of others are passed over here.
    """
    check_look(principal, topic.name)
    found: list[DeadLetter] = []
    while len(found) < limit:
        page = await carrier.dead_letters(topic.uid, after=after, limit=limit)
        found += (each for each in page if may_see(principal, topic.name, each.message))
        if len(page) < limit:
            break
        after = page[-1]
    return found[:limit]


def letter_group(principal: Principal, topic: str, group: str) -> str:
    """The producer group whose dead letters a principal may change; empty for those of all groups.

    Raises `Forbidden`. Administrators change any; producers name the group as which they may produce.
    """
    if principal.may(RightKind.ADMINISTER, topic):
        return ""
    principal.check(RightKind.PRODUCE, topic, group)
    return group
