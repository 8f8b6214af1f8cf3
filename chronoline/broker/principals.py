"""Callers: the identity of a client, and the checks of its rights at the edges of a broker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from chronoline.broker.schedules import ShownSchedule, not_found
from chronoline.core.callback_url import shown_url
from chronoline.core.errors import Forbidden, TopicNotFound, TopicNotReady
from chronoline.core.limits import MAX_NAME_BYTES
from chronoline.core.message import DeadLetter, Message
from chronoline.core.permissions import Actor, Consumer, Producer, System
from chronoline.core.rights import ALL_RIGHTS, EVERY_TOPIC, RightKind, Rights
from chronoline.core.schedule import Schedule
from chronoline.core.topic import Topic
from chronoline.runtime import audit

if TYPE_CHECKING:
    from chronoline.broker.carrier import Carrier
    from chronoline.broker.schedules import Schedules
    from chronoline.broker.topics import Topics


_SEARCHED = 1_000
"""The items of a page that is searched for those that a principal may see."""

_OTHER_NAME = {
    RightKind.PRODUCE: "Give a producer group for which it has the right (--group, producer_group). ",
    RightKind.CONSUME: "Give a consumer name for which it has the right (--consumer, consumer). ",
}
"""The remedy for a client that may do it under other names."""


@dataclass(frozen=True, slots=True)
class Principal:
    """A client that was let in."""

    name: str = ""
    """The name of its token or certificate, or the subject of its JWT; empty on a node that requires none."""
    rights: Rights = ALL_RIGHTS
    kind: str = "token"
    """Its proof: token, jwt or certificate."""

    @property
    def who(self) -> str:
        """How the audit trail calls it."""
        return f"{self.kind} {self.name}" if self.name else "anybody"

    def may(self, kind: RightKind, topic: str | None = None, name: str | None = None) -> bool:
        """Whether it has a right. A request that asks for `administer` is an administrative act."""
        if kind is RightKind.ADMINISTER:
            audit.note(None if topic == EVERY_TOPIC else topic)
        return self.rights.allows(kind, topic, name)

    def check(self, kind: RightKind, topic: str | None = None, name: str | None = None) -> None:
        """Raises `Forbidden` with the right that is missing."""
        if not self.may(kind, topic, name):
            others = name is not None and self.rights.allows(kind, topic)
            raise self.forbidden(_right(kind, topic, name), _OTHER_NAME[kind] if others else "")

    def check_one_of(self, kinds: Sequence[RightKind], topic: str | None = None) -> None:
        """Raises `Forbidden` without a right of one of these kinds, under any name; None is any topic at all.

        The edges ask this before they read a request. Its names are checked when they are known.
        """
        if not any(self.may(kind, topic) for kind in kinds):
            self.check(kinds[-1], topic)

    def check_touches(self, topic: str) -> None:
        """Raises `Forbidden` unless there is any right to this topic."""
        if not self.rights.touches(topic):
            raise self.forbidden(f"to topic {topic[:MAX_NAME_BYTES]!r}, of any kind")

    def check_touches_any(self) -> None:
        """Raises `Forbidden` for rights that concern no topic, such as those of timers."""
        if not self.rights.touches():
            raise self.forbidden("to any topic")

    def forbidden(self, missing: str, remedy: str = "") -> Forbidden:
        """The error for want of a right, such as `to any topic`."""
        who = f"the {self.kind} {self.name!r}" if self.name else "the token"
        giver = (
            "Its issuer gives it, by the claim of rights"
            if self.kind == "jwt"
            else "An administrator of the node gives it: `chronoline token create NAME --right …`"
        )
        return Forbidden(
            f"{who} does not have the right {missing}; nothing was changed. {remedy}{giver}"
        )


ANYBODY = Principal()
"""A client of a node that requires no token."""


def _right(kind: RightKind, topic: str | None, name: str | None) -> str:
    parts = [kind.value] if topic is None and name is None else [kind.value, topic or "…"]
    whole = parts if name is None else [*parts, name]
    return ":".join(each[:MAX_NAME_BYTES] for each in whole)


def visible_topic(principal: Principal, topic: Topic) -> Topic:
    """A topic as a principal may see it: only administrators see secrets in the URL of its target."""
    target = topic.settings.target
    # A look is no administrative act, so its right is asked for without `may`.
    if target is None or principal.rights.allows(RightKind.ADMINISTER, topic.name):
        return topic
    return replace(topic, settings=replace(topic.settings, target=shown_url(target)))


# Topics


async def allowed_topic(
    topics: Topics, principal: Principal, uid: int, check: Callable[[str], object]
) -> Topic:
    """The topic with this uid, if `check` allows its name.

    Raises what `check` raises, and `TopicNotFound` for a topic to which the principal has no right of any
    kind: it learns neither that it is there nor its name.
    """
    try:
        topic = await topics.get(uid)
        check(topic.name)
    except (Forbidden, TopicNotFound, TopicNotReady):
        name = topics.name_of(uid)
        if name and not principal.rights.touches(name):
            raise TopicNotFound.with_uid(uid) from None
        raise
    return topic


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
    size = limit if principal.may(RightKind.OBSERVE, topic.name) else max(limit, _SEARCHED)
    while len(found) < limit:
        page = await carrier.dead_letters(topic.uid, after=after, limit=size)
        found += (each for each in page if may_see(principal, topic.name, each.message))
        if len(page) < size:
            break
        after = page[-1]
    return found[:limit]


def letter_group(principal: Principal, topic: str, group: str) -> str:
    """The producer group whose dead letters a principal may change; empty for those of all groups.

    Raises `Forbidden`. Administrators change any; producers name the group as which they may produce. For
    both it is an administrative act: what is discarded is gone.
    """
    if principal.may(RightKind.ADMINISTER, topic):
        return ""
    principal.check(RightKind.PRODUCE, topic, group)
    return group


# Schedules


def check_schedule_change(principal: Principal, schedule: Schedule, topic: str) -> None:
    """Raises `Forbidden` unless the principal may make and change this schedule of a topic.

    It is an administrative act for owners, too. A stored schedule that it may not see is not found: raises
    `ScheduleNotFound`.
    """
    audit.note(topic, schedule=schedule.name)
    if schedule.uid and not may_see_schedule(principal, schedule, topic):
        raise not_found(schedule.name)
    if not principal.may(RightKind.ADMINISTER, topic):
        principal.check(RightKind.PRODUCE, topic, schedule.producer_group)


def may_see_schedule(principal: Principal, schedule: Schedule, topic: str) -> bool:
    """Whether a principal may see everything of a schedule but its body."""
    return principal.may(RightKind.OBSERVE, topic) or may_read_schedule(principal, schedule, topic)


def may_read_schedule(principal: Principal, schedule: Schedule, topic: str) -> bool:
    """Whether a principal may see the body of a schedule, too."""
    # A read is no administrative act, so its rights are asked for without `may`.
    return principal.rights.allows(RightKind.ADMINISTER, topic) or principal.may(
        RightKind.PRODUCE, topic, schedule.producer_group
    )


async def visible_schedule(
    schedules: Schedules, principal: Principal, name: str, times: int
) -> ShownSchedule:
    """A schedule with its next times. Raises `ScheduleNotFound`, also for one that it may not see."""
    shown = await schedules.shown(await schedules.find(name), times)
    if not may_see_schedule(principal, shown.schedule, shown.topic.name):
        raise not_found(name)
    if not may_read_schedule(principal, shown.schedule, shown.topic.name):
        return shown._replace(schedule=replace(shown.schedule, body=None))
    return shown


async def visible_schedules(
    schedules: Schedules,
    topics: Topics,
    principal: Principal,
    *,
    topic_uid: int | None,
    after: str,
    limit: int,
) -> list[ShownSchedule]:
    """A page of the schedules that a principal may see, each with its next time.

    A page with fewer than the limit is the last.
    """
    found: list[ShownSchedule] = []
    sees_all = principal.may(RightKind.OBSERVE, EVERY_TOPIC)
    size = limit if sees_all else max(limit, _SEARCHED)
    while len(found) < limit:
        page = await schedules.page(topic_uid=topic_uid, after=after, limit=size)
        for each in page:
            try:
                topic = await topics.get(each.topic_uid)
            except TopicNotFound:  # it was deleted meanwhile
                continue
            if may_see_schedule(principal, each, topic.name):
                found.append(ShownSchedule(each, topic, ()))
        if len(page) < size:
            break
        after = page[-1].name
    return await schedules.with_next(found[:limit])
