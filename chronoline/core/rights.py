"""Rights: who may do what on which topics.

A right is a kind, a pattern of topics and a pattern of names, written `kind:topics:names`. In a pattern `*`
stands for any characters, and a missing pattern allows every name:

    produce:orders-*:billing    creates messages, and changes them, as producer group `billing`
    consume:orders-*:worker-*   receives messages as a consumer of such a name
    observe:orders-*            reads counts, forecasts, messages without bodies, dead letters
    administer:orders-*         creates and deletes topics, puts back and discards anybody's dead letters
    timers                      sets and deletes timers
    node                        calls timer nodes as one of them

Administering a topic includes observing it, and nothing else includes another right.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from chronoline.core.errors import InvalidInput
from chronoline.core.limits import MAX_NAME_BYTES, name_problem

EVERY_TOPIC = "*"
"""As a topic that is asked for: only a right to all topics allows it, for no other pattern matches a star."""
_MOST_RIGHTS = 100
_ANY = "*"


class RightKind(StrEnum):
    PRODUCE = "produce"
    CONSUME = "consume"
    OBSERVE = "observe"
    ADMINISTER = "administer"
    TIMERS = "timers"
    NODE = "node"


_PATTERNS = {
    RightKind.PRODUCE: ("topics", "producer groups"),
    RightKind.CONSUME: ("topics", "consumers"),
    RightKind.OBSERVE: ("topics",),
    RightKind.ADMINISTER: ("topics",),
    RightKind.TIMERS: (),
    RightKind.NODE: (),
}
"""The patterns that a right of each kind takes."""
_INCLUDED = {RightKind.OBSERVE: (RightKind.OBSERVE, RightKind.ADMINISTER)}
"""The kinds that allow an action, where there are several."""


@dataclass(frozen=True, slots=True)
class Right:
    """One right."""

    kind: RightKind
    topics: str = _ANY
    names: str = _ANY
    """The producer groups or consumers."""

    @classmethod
    def parse(cls, text: str) -> Right:
        """Raises `InvalidInput`, with the forms that exist."""
        kind_name, *patterns = text.split(":")
        try:
            kind = RightKind(kind_name)
        except ValueError:
            known = ", ".join(RightKind)
            raise InvalidInput(
                f"{text[:100]!r} is no right: it begins with one of {known}; such as "
                "produce:orders-*:billing or administer:*"
            ) from None
        allowed = _PATTERNS[kind]
        if len(patterns) > len(allowed):
            form = ":".join([kind, *(f"[{each}]" for each in allowed)])
            raise InvalidInput(f"{text[:100]!r} has too many parts; its form is {form}")
        for what, pattern in zip(allowed, patterns, strict=False):
            if problem := name_problem(f"the pattern of {what} in {text[:100]!r}", pattern):
                raise InvalidInput(problem)
        return cls(kind, *patterns)

    def __str__(self) -> str:
        given = (self.topics, self.names)[: len(_PATTERNS[self.kind])]
        while given and given[-1] == _ANY:
            given = given[:-1]
        return ":".join((self.kind, *given))


class Rights:
    """The rights of one caller."""

    def __init__(self, rights: Iterable[Right]) -> None:
        self._rights = tuple(dict.fromkeys(rights))
        # The answers of a connection are few, and are asked with every request.
        self._allows = lru_cache(maxsize=1_000)(self._find)

    @classmethod
    def parse(cls, texts: Iterable[str]) -> Rights:
        """Raises `InvalidInput`."""
        given = list(texts)
        if len(given) > _MOST_RIGHTS:
            raise InvalidInput(f"{len(given)} rights; at most {_MOST_RIGHTS} are allowed")
        return cls(Right.parse(each) for each in given)

    def texts(self) -> list[str]:
        return [str(each) for each in self._rights]

    def allows(self, kind: RightKind, topic: str | None = None, name: str | None = None) -> bool:
        """Whether an action of this kind is allowed; None stands for any topic or name at all."""
        if len(topic or "") + len(name or "") > 2 * MAX_NAME_BYTES:
            return self._find(kind, topic, name)  # it is no name: not remembered
        return self._allows(kind, topic, name)

    def touches(self, topic: str | None = None) -> bool:
        """Whether there is any right to this topic; None stands for any topic at all."""
        return any(self.allows(kind, topic) for kind in RightKind if _PATTERNS[kind])

    def _find(self, kind: RightKind, topic: str | None, name: str | None) -> bool:
        return any(
            each.kind in _INCLUDED.get(kind, (kind,))
            and _matches(each.topics, topic)
            and _matches(each.names, name)
            for each in self._rights
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rights) and self._rights == other._rights

    def __hash__(self) -> int:
        return hash(self._rights)

    def __repr__(self) -> str:
        return f"Rights({self.texts()})"


def _matches(pattern: str, value: str | None) -> bool:
    return pattern == _ANY or value is None or _regex(pattern).fullmatch(value) is not None


@lru_cache(maxsize=10_000)
def _regex(pattern: str) -> re.Pattern[str]:
    first, *others = map(re.escape, pattern.split(_ANY))
    if not others:
        return re.compile(first)
    # Each part is matched at its first place and stays there: else a pattern of many stars fails after hours.
    between = "".join(f"(?>.*?{each})" for each in others[:-1])
    return re.compile(f"{first}{between}.*{others[-1]}", re.DOTALL)


ALL_RIGHTS = Rights(Right(kind) for kind in RightKind)
"""The rights of everybody on a node without tokens, and of tokens that were made without rights."""
