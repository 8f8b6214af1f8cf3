"""The messages on a timeline, and assertions that show the timeline when they fail."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import EllipsisType

from chronoline.core.errors import ChronolineError, TopicNotFound
from chronoline.core.limits import MAX_TIME_MS
from chronoline.core.message import Header, Message
from chronoline.core.permissions import System
from chronoline.core.topic import Topic
from chronoline.stores.contract import Store
from chronoline.testing.clock import as_ms, show_time

TopicName = Topic | str | int
"""A topic, its name or its uid."""

_MOST_MESSAGES = 10_000
_MOST_SHOWN = 20
_MOST_SHOWN_BYTES = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduled:
    """A message on the timeline, with its body."""

    message: Message
    body: bytes | None

    @property
    def id(self) -> str:
        return self.message.id

    @property
    def due(self) -> int:
        return self.message.due

    @property
    def headers(self) -> tuple[Header, ...]:
        return self.message.headers


def find_topic(store: Store, topic: TopicName) -> Topic:
    """The live topic. Raises `TopicNotFound`."""
    if isinstance(topic, Topic):
        return store.get_topic(topic.uid)
    if isinstance(topic, int):
        return store.get_topic(topic)
    found = store.find_topic(topic)
    if found is None:
        names = [each.name for each in store.list_topics()]
        raise TopicNotFound(f"there is no topic named {topic!r}; there are: {names}")
    return found


def scheduled(store: Store, topic: TopicName) -> list[Scheduled]:
    """Everything on the timeline in order of due, held messages included, up to 10,000."""
    topic = find_topic(store, topic)
    page = store.select(topic.uid, topic.all_buckets, limit=_MOST_MESSAGES, max_ts=MAX_TIME_MS)
    if page.more:
        raise ChronolineError(f"{topic.name!r} holds more than {_MOST_MESSAGES} messages")
    ids = [message.id for message in page.messages]
    # The time matters only for deleted messages, which a page does not contain.
    bodies = store.bodies(topic.uid, ids, actor=System(), now_ms=0).found
    found = [Scheduled(message=each, body=bodies.get(each.id)) for each in page.messages]
    return sorted(found, key=lambda each: (each.due, each.id))


def assert_scheduled(
    store: Store,
    topic: TopicName,
    *,
    id: str | None = None,
    due: int | datetime | None = None,
    within_ms: int = 0,
    body: bytes | EllipsisType | None = ...,
    headers: Sequence[Header] = (),
) -> Scheduled:
    """Asserts that a message with all given values is on the timeline, and returns the first by due.

    `due` may differ by `within_ms` on either side. `headers` must be among the message's own.
    Values that are not given are not compared.
    """
    __tracebackhide__ = True
    topic = find_topic(store, topic)
    wanted = _Wanted(id, None if due is None else as_ms("due", due), within_ms, body, headers)
    found = scheduled(store, topic)
    for each in found:
        if not wanted.misses(each):
            return each
    raise AssertionError(
        f"no message on {topic.name!r} has {wanted}.\n{_describe(store, topic, found, wanted)}"
    )


def assert_not_scheduled(
    store: Store,
    topic: TopicName,
    *,
    id: str | None = None,
    due: int | datetime | None = None,
    within_ms: int = 0,
    body: bytes | EllipsisType | None = ...,
    headers: Sequence[Header] = (),
) -> None:
    """Asserts that no message has all given values; without values, that the timeline is empty."""
    __tracebackhide__ = True
    topic = find_topic(store, topic)
    wanted = _Wanted(id, None if due is None else as_ms("due", due), within_ms, body, headers)
    found = scheduled(store, topic)
    matching = sum(not wanted.misses(each) for each in found)
    if matching:
        raise AssertionError(
            f"{matching} on {topic.name!r} should not be there, with {wanted}.\n"
            f"{_describe(store, topic, found, wanted)}"
        )


@dataclass(frozen=True, slots=True)
class _Wanted:
    id: str | None
    due: int | None
    within_ms: int
    body: bytes | EllipsisType | None
    headers: Sequence[Header]

    def misses(self, found: Scheduled) -> list[str]:
        """The values in which a message differs."""
        missed = []
        if self.id is not None and found.id != self.id:
            missed.append("id")
        if self.due is not None and abs(found.due - self.due) > self.within_ms:
            missed.append(f"due ({found.due - self.due:+,} ms)")
        if self.body is not ... and found.body != self.body:
            missed.append("body")
        if any(header not in found.headers for header in self.headers):
            missed.append("headers")
        return missed

    def __str__(self) -> str:
        parts = []
        if self.id is not None:
            parts.append(f"id {self.id!r}")
        if self.due is not None:
            leeway = f" ± {self.within_ms:,} ms" if self.within_ms else ""
            parts.append(f"due {show_time(self.due)}{leeway}")
        if self.body is not ...:
            parts.append(f"body {_show_bytes(self.body)}")
        if self.headers:
            parts.append(f"headers {_show_headers(self.headers)}")
        return ", ".join(parts) or "anything"


def _describe(store: Store, topic: Topic, found: Sequence[Scheduled], wanted: _Wanted) -> str:
    """The timeline, up to 20 messages, and the dead letters."""
    lines = [f"The timeline holds {len(found)}:" if found else "The timeline is empty."]
    # The shown messages must include the most similar ones.
    nearest = sorted(found, key=lambda each: len(wanted.misses(each)))[:_MOST_SHOWN]
    lines += [_show(each, wanted) for each in found if each in nearest]
    if len(found) > _MOST_SHOWN:
        lines.append(f"  and {len(found) - _MOST_SHOWN} more")
    dead = store.dead_letters(topic.uid, limit=_MOST_SHOWN)
    if dead:
        shown = ", ".join(f"{letter.message.id!r} ({letter.reason})" for letter in dead)
        lines.append(f"Among the dead letters: {shown}")
    return "\n".join(lines)


def _show(found: Scheduled, wanted: _Wanted) -> str:
    message = found.message
    line = f"  {show_time(found.due)}  {found.id!r}  {_show_bytes(found.body)}"
    if found.headers:
        line += f"  {_show_headers(found.headers)}"
    if message.lock_consumer is not None:
        line += f"  leased to {message.lock_consumer!r} until {message.ts}"
    if message.attempts:
        line += f"  after {message.attempts} failed attempts"
    missed = wanted.misses(found)
    return f"{line}  <- " + (f"differs in {', '.join(missed)}" if missed else "matches")


def _show_bytes(value: bytes | None) -> str:
    if value is None or len(value) <= _MOST_SHOWN_BYTES:
        return repr(value)
    return f"{value[:_MOST_SHOWN_BYTES]!r}… ({len(value)} bytes)"


def _show_headers(headers: Iterable[Header]) -> str:
    return "{" + ", ".join(f"{name}: {_show_bytes(value)}" for name, value in headers) + "}"
