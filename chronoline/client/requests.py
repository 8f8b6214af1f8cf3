"""Requests that wait for their answers, split into parts that fit into a frame."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from chronoline.core.change import Change
from chronoline.core.errors import ChronolineError, InvalidInput, OutcomeUnknown
from chronoline.core.permissions import Operation

ITEM_BYTES = 64
"""The size of the fields around an id."""


class RequestKind(NamedTuple):
    """The operation of a request, and the values that all its items share."""

    operation: Operation
    topic_uid: int
    replace: bool = False
    """Whether a create replaces a message with its id."""


def change_bytes(change: Change) -> int:
    """The approximate size of a change in a frame."""
    return ITEM_BYTES + len(change.id) + len(change.reason)


@dataclass(slots=True, eq=False)
class Request:
    """Some items of one kind, and the future of their answers."""

    kind: Any
    """A `RequestKind`: requests of one kind may share a frame."""
    items: Sequence[Any]
    sizes_bytes: Sequence[int]
    """The approximate size of each item."""
    future: asyncio.Future[list[Any]]
    unanswered: int = 0
    answers: list[Any] = field(default_factory=list)
    sent: int = 0
    """The number of its parts that left and were not turned back: 0 means that nothing was changed."""
    last: ChronolineError | None = None
    """Why it is not done yet: the broker's last answer, or why no answer came."""
    is_answer: bool = False
    """Whether `last` is an answer of the broker."""
    again: bool = False
    """Whether it repeats a request that was not answered."""
    refusal: ChronolineError | None = None
    """Why the broker refused a part of it as a whole. Parts that have not left yet stay here."""

    def __post_init__(self) -> None:
        self.unanswered = len(self.items)
        self.answers = [None] * len(self.items)

    @property
    def done(self) -> bool:
        return self.future.done()

    def fail(self, error: ChronolineError) -> None:
        if not self.future.done():
            self.future.set_exception(error)

    def refuse(self, error: ChronolineError) -> None:
        """Fails with the refusal, or as unknown if another part or an earlier attempt may have been done.

        No refusal tells the outcome of an earlier attempt: since then the topic may have been deleted, the
        token revoked, or another broker with other limits may have answered.
        """
        if not self.sent and not self.again:
            self.fail(error)
            return
        in_doubt = OutcomeUnknown(
            f"all of it or a part may have happened before it was refused: {error}"
        )
        in_doubt.__cause__ = error
        self.fail(in_doubt)

    def count_off(self, items: int) -> None:
        """Counts items as answered; after the last one it completes the request."""
        self.unanswered -= items
        if self.unanswered or self.done:
            return
        if self.refusal is not None:
            self.refuse(self.refusal)
        else:
            self.future.set_result(self.answers)


@dataclass(slots=True, eq=False)
class Part:
    """Items of a request that travel together: all of them, unless they do not fit into one frame."""

    request: Request
    begin: int
    end: int
    sent: int = 0
    """How often it left, and was not turned back."""

    @property
    def items(self) -> Sequence[Any]:
        return self.request.items[self.begin : self.end]

    @property
    def again(self) -> bool:
        """Whether an earlier attempt was not answered, and may have been carried out."""
        return self.sent > 0 or self.request.again

    @property
    def key(self) -> tuple[Any, bool]:
        """Parts with the same key may share a frame."""
        return self.request.kind, self.again

    def left(self) -> None:
        self.sent += 1
        self.request.sent += 1

    def turned_back(self) -> None:
        """The broker answered that it changed nothing."""
        self.sent -= 1
        self.request.sent -= 1

    def answered(self, answers: Sequence[Any]) -> None:
        self.request.answers[self.begin : self.end] = answers
        self.request.count_off(self.end - self.begin)

    def refused(self, error: ChronolineError) -> None:
        """The broker refused the whole part. The request fails when its other sent parts are answered."""
        self.turned_back()
        self.stay(error)

    def stay(self, error: ChronolineError) -> None:
        """Fails the part: it is not sent, or not sent again."""
        self.request.refusal = self.request.refusal or error
        self.request.count_off(self.end - self.begin)

    def cut(self, count: int) -> Part:
        """Splits off its first items as a part of their own; the rest stays."""
        first = Part(self.request, self.begin, self.begin + count, self.sent)
        self.begin += count
        if self.begin < self.end:  # both parts left as often as the one did
            self.request.sent += self.sent
        return first


class FrameLimits(NamedTuple):
    """The limits of a frame."""

    items: int
    size_bytes: int
    """The size at which a frame is closed, if it has more than one item."""
    most_bytes: int
    """The largest size of one item alone."""


class RequestQueue:
    """Parts that wait to be sent. Kinds take turns: a large request does not keep others waiting."""

    def __init__(self) -> None:
        # By the key of a part, then by request, so that an abandoned request is found quickly.
        self._waiting: dict[Any, OrderedDict[Request, list[Part]]] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    @property
    def parts(self) -> list[Part]:
        return [
            part
            for waiting in self._waiting.values()
            for parts in waiting.values()
            for part in parts
        ]

    def add(self, part: Part) -> None:
        waiting = self._waiting.setdefault(part.key, OrderedDict())
        waiting.setdefault(part.request, []).append(part)

    def add_first(self, parts: Iterable[Part]) -> None:
        """Puts back parts that have waited before, in their order."""
        for part in reversed(list(parts)):
            waiting = self._waiting.setdefault(part.key, OrderedDict())
            waiting.setdefault(part.request, []).insert(0, part)
            waiting.move_to_end(part.request, last=False)

    def drop(self, request: Request) -> None:
        """Removes an abandoned request. It may have left already."""
        for key in ((request.kind, False), (request.kind, True)):
            waiting = self._waiting.get(key)
            if waiting is not None and request in waiting:
                del waiting[request]
                if not waiting:
                    del self._waiting[key]

    def clear(self) -> None:
        self._waiting.clear()

    def take(self, limits: FrameLimits) -> list[Part]:
        """The parts of the next frame, all of one kind. Empty if no request waits."""
        kind = next(iter(self._waiting))
        waiting = self._waiting.pop(kind)
        taken: list[Part] = []
        room, room_bytes = limits.items, limits.size_bytes
        while waiting and room > 0 and room_bytes > 0:
            request, parts = next(iter(waiting.items()))
            part = parts[0]
            if request.done or _refuse_too_large(part, limits.most_bytes):
                del waiting[request]
                continue
            if request.refusal is not None:
                for each in waiting.pop(request):
                    each.stay(request.refusal)
                continue
            count, size_bytes = _fitting(part, room, room_bytes)
            if count == 0:
                if taken:
                    break
                count, size_bytes = 1, room_bytes  # alone, however large
            whole = count == part.end - part.begin
            if not whole:
                taken.append(part.cut(count))
                break
            taken.append(parts.pop(0))
            if not parts:
                del waiting[request]
            room, room_bytes = room - count, room_bytes - size_bytes
        if waiting:
            self._waiting[kind] = waiting
        return taken


def _fitting(part: Part, room: int, room_bytes: int) -> tuple[int, int]:
    """The number of its items that fit, and their size."""
    count = total_bytes = 0
    sizes_bytes = part.request.sizes_bytes
    for place in range(part.begin, min(part.end, part.begin + room)):
        if total_bytes + sizes_bytes[place] > room_bytes:
            break
        total_bytes += sizes_bytes[place]
        count += 1
    return count, total_bytes


def _refuse_too_large(part: Part, most_bytes: int) -> bool:
    """Checks the sizes before any part leaves: an item larger than a frame would end the stream."""
    request = part.request
    if request.sent or max(request.sizes_bytes) <= most_bytes:
        return False
    size_bytes = max(request.sizes_bytes)
    request.fail(
        InvalidInput(
            f"a message has about {size_bytes} bytes, and this broker allows at most {most_bytes}; "
            "nothing was sent"
        )
    )
    return True
