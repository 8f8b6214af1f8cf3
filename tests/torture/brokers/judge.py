"""The invariants of messages and leases, judged on a recorded history. Pure: no clock, no I/O.

Each rule is a function from the history, or one message of it, to violations. A call without a recorded
outcome, or with an unknown one, may have happened at any time since it began, or not at all: no rule counts
it as done or as refused. The statuses at single milliseconds (5) are no matter of a history: the tests of the
engines have them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise

from tests.torture.brokers.model import (
    CREATING,
    SETTLING,
    Call,
    Delivery,
    History,
    Message,
    stage_of,
)
from tests.torture.history import Event, Violation

VERSION_WENT_BACK = "1 version went back"
STALE_SUCCESS = "2 stale holder was served"
VERSION_TWICE = "2 one version granted twice"
TWO_CHANGES = "2 two changes under one version"
OVERLAP = "3 leases overlap"
OLDER_AFTER_NEWER = "3 older version handed over after a newer"
OWNER_BROKE_LEASE = "4 owner broke a live lease"
LIVE_REFUSED = "4 live lease refused"
TOO_SOON = "4 live lease refused as too soon"
LOST = "6 acknowledged message lost"
LOST_UNDELETED = "6 message lost without a deletion"
SERVED_AGAIN = "7 acked or cancelled message served again"
TWO_ENDS = "7 acked and cancelled"
TWO_MESSAGES = "8 two messages of one id"
REPEATED_DELETE = "9 repeated delete refused"
EARLY = "10 handed over before its due"
UNREQUESTED_DUE = "10 due time that was not requested"
CHANGED_CONTENT = "11 content or owner changed"
NOT_ALLOWED = "12 done without permission"
STARVED = "13 due message not served"
OLD_VERSION_RETURNED = "14 lease returned under an old version"
WRONG_CLOCK = "16 written by a clock beyond the bound"
DROPPED_RETURNED = "19 message of a deleted topic came back"
NO_TOPIC = "20 done on a topic that was not created"
REFUSED_HAPPENED = "36 refused change happened"
DONE_UNSEEN = "36 done change is not visible"
ATTEMPTS = "36 attempts counted wrong"
UNKNOWN_COST_LEASE = "39 live lease lost by a change of unknown outcome"
RUN_TWICE = "39 handed over again while its lease lived"
TAKEN_AWAY = "40 live lease taken away by another session"

_ROUNDING_MS = 2
_CLIENT_CLOCK_MS = 100
"""A client's error about its broker's clock on a busy machine."""
_SERVED_WITHIN_MS = 10_000
_HEARD_WITHIN_MS = 10_000
"""The time after which consumers know of a deleted topic, or of a twin."""
_SOONEST_MS = 20
"""The shortest delay of the SDK's retries."""
_MOST_ATTEMPTS = 3
"""The limit of the topic of poison messages."""
_NOTHING_CHANGED = ("unavailable", "topic_not_found")


def judge(events: Sequence[Event]) -> list[Violation]:
    """Returns every violation in a history, in the order of the rules."""
    history = History(events)
    found: list[Violation] = []
    for message in history.messages.values():
        for rule in _RULES:
            found += [Violation(name, f"{message}: {why}") for name, why in rule(history, message)]
    return sorted(found, key=lambda violation: (int(violation.rule.split()[0]), violation.rule))


Found = Iterator[tuple[str, str]]


# Leases


def _left_ms(
    history: History, message: Message, delivery: Delivery, at_ms: float, until_ms: float
) -> float:
    """Returns the least life of a lease, by every clock; an extension may have shortened it."""
    least_ms, most_ms = history.ahead_ms(message.topic, delivery.at_ms, at_ms)
    ends_ms: list[float] = [
        call.began_ms + call.asked["delay_s"] * 1000 + least_ms
        for call in delivery.extensions_under_way(at_ms)
    ]
    return min([until_ms, *ends_ms]) - at_ms - most_ms


def lives_at(history: History, message: Message, delivery: Delivery, at_ms: float) -> bool:
    """Whether a lease is live at a moment, and its holder has not given it up."""
    until_ms = delivery.view(at_ms).until_ms
    left_ms = _left_ms(history, message, delivery, at_ms, until_ms)
    return left_ms > _ROUNDING_MS and not delivery.given_up(at_ms)


def _came_too_late(history: History, message: Message, delivery: Delivery) -> bool:
    """Whether its lease had ended at the delivery, by one of the clocks: a poll that was read late."""
    _, most_ms = history.ahead_ms(message.topic, delivery.at_ms, delivery.at_ms)
    return delivery.views[0].until_ms - most_ms <= delivery.at_ms


def _versions(history: History, message: Message) -> Found:
    """2: each version is granted once, and one change is made under it."""
    granted: dict[int, str] = {}
    for delivery in message.deliveries:
        for version in {view.version for view in delivery.views}:
            other = granted.setdefault(version, delivery.name)
            if other != delivery.name:
                yield VERSION_TWICE, f"v{version} to {other} and to {delivery.name}"
    changes: dict[int, list[tuple[Delivery, Call]]] = {}
    for delivery, call in message.settlings(*SETTLING):
        if call.done and call.version is not None:
            changes.setdefault(call.version, []).append((delivery, call))
    for version, made in changes.items():
        ops = {call.op for _, call in made}
        if len(made) > 1 and (ops != {"ack"} or len({each.name for each, _ in made}) > 1):
            yield TWO_CHANGES, f"v{version}: {'; '.join(str(call) for _, call in made)}"


def _fencing(history: History, message: Message) -> Found:
    """2: a holder of an older version than another's, or than its own, is refused."""
    for delivery, call in message.settlings(*SETTLING, "extend"):
        if not call.done or call.version is None:
            continue
        for other in message.deliveries:
            newest = other.view(call.began_ms).version
            if other is not delivery and other.at_ms < call.began_ms and newest > call.version:
                yield STALE_SUCCESS, f"{call} under v{call.version}, after {other}"
    for delivery in message.deliveries:
        for call in delivery.calls:
            if call.done and call.asked.get("stale"):
                yield STALE_SUCCESS, f"{call} under v{call.asked['stale']} of {delivery}"


def _overlaps(history: History, message: Message) -> Found:
    """3 and 39: a message under a live lease is not delivered again, to no consumer."""
    for one, two in combinations(message.deliveries, 2):
        older, newer = (one, two) if one.version < two.version else (two, one)
        if older.at_ms > newer.at_ms:
            yield from _older_after_newer(history, message, older, newer)
        elif lives_at(history, message, older, newer.at_ms):
            yield from _two_holders(history, message, older, newer)


def _two_holders(history: History, message: Message, older: Delivery, newer: Delivery) -> Found:
    dropped = history.dropped(message.topic, older.at_ms, newer.at_ms)
    if dropped or history.rivals(older, older.at_ms, newer.at_ms):
        return
    if newer.process == older.process and newer.consumer == older.consumer:
        polled = older.door == "http"  # it gets its leases again from a restarted broker
        if not (polled and history.broker_started(message.topic, older.at_ms, newer.at_ms)):
            rule = TAKEN_AWAY if history.has_twins(older) else RUN_TWICE
            yield rule, f"{older}, then {newer}"
    elif newer.consumer != older.consumer:
        rule = TAKEN_AWAY if history.has_twins(older) else OVERLAP
        yield rule, f"{older}, then {newer}"


def _older_after_newer(
    history: History, message: Message, older: Delivery, newer: Delivery
) -> Found:
    late = _came_too_late(history, message, older)
    if not late and not history.rivals(older, newer.at_ms - _HEARD_WITHIN_MS, older.at_ms):
        yield OLDER_AFTER_NEWER, f"{newer}, then {older}"


def _refusals(history: History, message: Message) -> Found:
    """4, 39 and 40: a live lease is neither refused nor lost, whatever the outcome of other calls."""
    for delivery, call in message.settlings(*SETTLING, "extend"):
        if call.refused and call.reason not in _NOTHING_CHANGED:
            yield from _refusal(history, message, delivery, call)
    for delivery in message.deliveries:
        if delivery.lost is not None:
            yield from _loss(history, message, delivery)


def _refusal(history: History, message: Message, delivery: Delivery, call: Call) -> Found:
    earlier = [
        each for each in delivery.own_calls if each is not call and each.began_ms <= call.began_ms
    ]
    if any(each.op in SETTLING and not each.refused for each in earlier):
        return  # it may have been settled; another rule judges a repeated ack
    left_ms = _left_ms(history, message, delivery, call.ended_ms, call.asked["until"])
    why = f"{delivery}: {call} with {left_ms:.0f} ms left"
    if left_ms <= _ROUNDING_MS or (delivery.lost and delivery.lost.since_ms <= call.began_ms):
        return  # its holder knew of the loss, which is judged separately
    if call.reason == "too_soon":
        # A clock that was set back moves the due time ahead again, and no lease ends before the due time.
        least_ms, _ = history.ahead_ms(message.topic, call.began_ms, call.ended_ms)
        if call.op != "extend" or delivery.due_ms <= call.began_ms + least_ms:
            yield TOO_SOON, why
    elif _explained(history, message, delivery, call.ended_ms):
        return
    elif any(each.op == "extend" and not each.done for each in earlier):
        if (
            delivery.door != "http"
        ):  # a polling consumer looks by itself, and may have looked too early
            yield UNKNOWN_COST_LEASE, why
    else:
        yield (TAKEN_AWAY if history.has_twins(delivery) else LIVE_REFUSED), why


def _loss(history: History, message: Message, delivery: Delivery) -> Found:
    assert delivery.lost is not None
    lost = delivery.lost
    left_ms = _left_ms(history, message, delivery, lost.since_ms, lost.until_ms)
    refused = any(call.refused and call.ended_ms <= lost.since_ms for call in delivery.own_calls)
    held = any(call.done and call.began_ms >= lost.since_ms for call in delivery.own_calls)
    if left_ms <= _CLIENT_CLOCK_MS or refused or held:
        return  # a refusal is judged separately; a lease that is served afterwards was not lost
    if not _explained(history, message, delivery, lost.since_ms):
        rule = TAKEN_AWAY if history.has_twins(delivery) else UNKNOWN_COST_LEASE
        yield rule, f"{delivery}: lost at {lost.since_ms:.0f} with {left_ms:.0f} ms left"


def _explained(history: History, message: Message, delivery: Delivery, at_ms: float) -> bool:
    """Whether another call may have ended the lease rightfully."""
    if history.rivals(delivery, delivery.at_ms, at_ms):
        return True
    if history.dropped(message.topic, delivery.at_ms - _HEARD_WITHIN_MS, at_ms):
        return True
    # A polling consumer gets its leases again, under new versions, from a restarted broker.
    polled = delivery.door == "http"
    return polled and history.broker_started(message.topic, delivery.at_ms, at_ms)


def _owners(history: History, message: Message) -> Found:
    """4 and 12: an owner does not break a live lease, and no other group changes the message."""
    groups = {delivery.group for delivery in message.deliveries}
    groups |= set() if message.row is None else {message.row.group}
    for call in message.of("cancel", "reschedule", "replace"):
        if not call.done:
            continue
        if groups and call.asked["group"] not in groups:
            yield NOT_ALLOWED, f"{call} by {call.asked['group']!r}, owned by {sorted(groups)}"
        for delivery in message.deliveries:
            if delivery.at_ms >= call.began_ms or history.rivals(
                delivery, delivery.at_ms, call.ended_ms
            ):
                continue
            # The lease went with its topic; the call found the one that was created again.
            if history.dropped(message.topic, delivery.at_ms - _HEARD_WITHIN_MS, call.ended_ms):
                continue
            superseded = any(
                other.version > delivery.version and other.at_ms < call.ended_ms
                for other in message.deliveries
            )
            if not superseded and lives_at(history, message, delivery, call.ended_ms):
                yield OWNER_BROKE_LEASE, f"{call}, while {delivery}"
    for delivery in message.deliveries:
        for call in delivery.calls:
            if call.done and call.asked.get("consumer"):
                yield NOT_ALLOWED, f"{call} as {call.asked['consumer']!r} of {delivery}"


def _returned(history: History, message: Message) -> Found:
    """14: a consumer that returns under its name gets its leases under new versions."""
    for one, two in combinations(message.deliveries, 2):
        if one.consumer != two.consumer or one.process == two.process:
            continue
        before, after = sorted((one, two), key=lambda each: history.began.get(each.process, 0))
        older = after.version <= before.version and before.at_ms < after.at_ms
        # Two concurrent processes take the lease from each other, each time under a new version.
        same = after.version == before.version
        if older and (same or not history.rivals(after, after.at_ms, after.at_ms)):
            yield OLD_VERSION_RETURNED, f"{before}, then {after}"


# The life of a message


def _end_calls(message: Message) -> Iterator[Call]:
    """The operations that delete a message."""
    yield from message.of("cancel", "discard")
    yield from (call for _, call in message.settlings("ack"))


def _nothing_lost(history: History, message: Message) -> Found:
    """6: an acknowledged message waits, is dead, or was deleted by a call."""
    stage = stage_of(message.topic)
    if stage not in history.drained:
        return
    for call in message.of(*CREATING):
        if not call.done or history.dropped(message.topic, call.began_ms, math.inf):
            continue
        ended = [each for each in _end_calls(message) if not each.refused]
        if message.row is None:
            yield LOST, f"{call}; there is no row"
        elif message.row.state == "gone" and not ended:
            yield LOST_UNDELETED, f"{call}; deleted at v{message.row.version}"


def _not_served_again(history: History, message: Message) -> Found:
    """7: a deleted message is not delivered, and the store does not hold it."""
    for call in _end_calls(message):
        if not call.done or history.dropped(message.topic, call.began_ms, math.inf):
            continue
        for delivery in message.deliveries:
            if (
                delivery.at_ms > call.ended_ms
                and not message.made_anew(call.began_ms, delivery.at_ms)
                and not _came_too_late(history, message, delivery)
                and not history.rivals(delivery, call.began_ms - _HEARD_WITHIN_MS, delivery.at_ms)
            ):
                yield SERVED_AGAIN, f"{call}, then {delivery}"
        row = message.row
        if (
            row is not None
            and row.state != "gone"
            and not message.made_anew(call.began_ms, math.inf)
        ):
            yield SERVED_AGAIN, f"{call}, and the store has it as {row.state} v{row.version}"
    acks = [call for _, call in message.settlings("ack") if call.done]
    cancels = [call for call in message.of("cancel") if call.done]
    anew = message.made_anew(-math.inf, math.inf)
    if acks and cancels and not anew and not history.dropped(message.topic, -math.inf, math.inf):
        yield TWO_ENDS, f"{acks[0]}, and {cancels[0]}"


def _one_message(history: History, message: Message) -> Found:
    """8: a used id is not created again; none becomes free within a run."""
    made = [call for call in message.of(*CREATING) if call.done]
    for one, two in pairwise(made):
        between = (min(one.began_ms, two.began_ms), max(one.ended_ms, two.ended_ms))
        if history.dropped(message.topic, *between):
            continue
        first, second = sorted((one, two), key=lambda call: call.ended_ms)
        if second.op == "create" and (first.op == "create" or first.ended_ms < second.began_ms):
            yield TWO_MESSAGES, f"{one}, and {two}"


def _repeated_deletes(history: History, message: Message) -> Found:
    """9: a repeated deletion returns done."""
    cancels = sorted(message.of("cancel"), key=lambda call: call.began_ms)
    for one, two in combinations(cancels, 2):
        if (
            one.done
            and one.ended_ms < two.began_ms
            and one.asked["group"] == two.asked["group"]
            and two.refused
            and two.reason not in _NOTHING_CHANGED
            and not message.made_anew(one.began_ms, two.ended_ms)
            and not history.dropped(message.topic, one.began_ms, two.ended_ms)
        ):
            yield REPEATED_DELETE, f"{one}, then {two}"
    for delivery in message.deliveries:
        acks = [call for call in delivery.own_calls if call.op == "ack"]
        for one, two in pairwise(acks):
            refused = two.refused and two.reason not in _NOTHING_CHANGED
            dropped = history.dropped(message.topic, one.began_ms, two.ended_ms)
            anew = message.made_anew(one.began_ms, two.ended_ms)
            if one.done and refused and not dropped and not anew:
                yield REPEATED_DELETE, f"{one}, then {two}"


def _dues(history: History, message: Message) -> Found:
    """10: no message is delivered before a requested due time."""
    asked = list(_asked_dues(history, message))
    for delivery in message.deliveries:
        _, most_ms = history.ahead_ms(message.topic, delivery.at_ms, delivery.at_ms)
        early_ms = delivery.due_ms - delivery.at_ms - most_ms
        if early_ms > 0:
            yield EARLY, f"{delivery}, due {delivery.due_ms}: {early_ms:.1f} ms early"
        if not any(begin_ms <= delivery.due_ms <= end_ms for begin_ms, end_ms in asked):
            yield UNREQUESTED_DUE, f"{delivery}, due {delivery.due_ms}"


def _asked_dues(history: History, message: Message) -> Iterator[tuple[float, float]]:
    """Yields the range of the due time for each call that may have set it."""
    for call in message.of(*CREATING, "reschedule"):
        if not call.refused:
            yield call.asked["due"], call.asked["due"]
    moves = [*message.of("redrive"), *(call for _, call in message.settlings("retry", "release"))]
    for call in moves:
        if call.refused:
            continue
        # A delay counts by the clock of the broker. A worker's own retry does not record its delay.
        ended_ms = min(call.ended_ms, call.began_ms + _HEARD_WITHIN_MS)
        least_ms, most_ms = history.ahead_ms(message.topic, call.began_ms, ended_ms)
        known = call.op == "redrive" or "delay_s" in call.asked
        delay_ms = call.asked.get("delay_s", 0) * 1000
        # A call of unknown outcome may take effect after its answer.
        done_ms = call.ended_ms if call.done else call.ended_ms + _HEARD_WITHIN_MS
        last_ms = done_ms + max(delay_ms, _SOONEST_MS) + most_ms if known else math.inf
        yield call.began_ms + delay_ms + least_ms - _ROUNDING_MS, last_ms + _ROUNDING_MS


def _clocks(history: History, message: Message) -> Found:
    """16: no message is written by a clock beyond the bound; a first version is a time."""
    made = [call for call in message.of(*CREATING) if not call.refused]
    for call in made:
        if not call.done or call.version is None or len(made) > 1:
            continue
        least_ms, most_ms = history.ahead_ms(message.topic, call.began_ms, call.ended_ms)
        first_ms, last_ms = call.began_ms + least_ms, call.ended_ms + most_ms
        if not first_ms - _ROUNDING_MS <= call.version <= last_ms + _ROUNDING_MS:
            yield WRONG_CLOCK, f"{call} as v{call.version}"


def _reschedules(history: History, message: Message) -> Found:
    """36: after a successful reschedule the message comes by its new due time."""
    movers = [
        *message.of("reschedule", "redrive", *CREATING),
        *(call for _, call in message.settlings("retry", "release")),
    ]
    for move in message.of("reschedule"):
        if not move.done:
            continue
        for delivery in message.deliveries:
            if (
                delivery.at_ms > move.ended_ms
                and delivery.due_ms != move.asked["due"]
                and not _came_too_late(history, message, delivery)
                and not any(
                    each is not move and each.overlaps(move.began_ms, delivery.at_ms)
                    for each in movers
                )
                and not history.rivals(delivery, move.began_ms - _HEARD_WITHIN_MS, delivery.at_ms)
            ):
                yield DONE_UNSEEN, f"{move} to {move.asked['due']}, then {delivery}"


def _contents(history: History, message: Message) -> Found:
    """11 and 36: a delivery has the created content, and a refused message does not come."""
    row = message.row if message.row is not None and message.row.state != "gone" else None
    seen = [(str(each), each.version, each.content, each.group) for each in message.deliveries]
    if row is not None:
        seen.append((f"row {row.state}", row.version, row.content, row.group))
    made = [call for call in message.of(*CREATING) if not call.refused]
    if seen and not made:
        yield REFUSED_HAPPENED, f"{seen[0][0]}, though every create was refused or none was made"
        return
    certain = all(call.done and call.version is not None for call in made)
    for name, version, content, group in seen:
        fitting = made
        if certain:
            before = [call for call in made if (call.version or 0) <= version]
            fitting = sorted(before, key=lambda call: call.version or 0)[-1:]
        if (content, group) not in [
            (call.asked["content"], call.asked["group"]) for call in fitting
        ]:
            yield CHANGED_CONTENT, f"{name}: {content} of {group!r}"


def _attempts(history: History, message: Message) -> Found:
    """Attempts count failed tries: only a lapse, a retry or a bury adds one."""
    ordered = sorted(message.deliveries, key=lambda each: each.version)
    for delivery in ordered:
        if message.topic.endswith("-poison") and delivery.attempts >= _MOST_ATTEMPTS:
            yield ATTEMPTS, f"{delivery} has {delivery.attempts} attempts"
    for one, two in pairwise(ordered):
        between = (one.at_ms - _HEARD_WITHIN_MS, two.at_ms)
        if message.made_anew(*between) or history.dropped(message.topic, *between):
            continue
        counted, changes = two.attempts - one.attempts, two.version - one.version
        if not 0 <= counted <= changes:
            yield ATTEMPTS, f"{one.attempts} of {one}, then {two.attempts} of {two}"
        for call in one.own_calls:
            # The change and then the lease, with no other operation between the two.
            if call.done and call.version is not None and two.version == call.version + 2:
                wanted = {"retry": 1, "release": 0}.get(call.op)
                if wanted is not None and counted != wanted:
                    yield ATTEMPTS, f"{counted} more after {call}, by {two}"


def _rows(history: History, message: Message) -> Found:
    """1 and 13: versions grow, and at the end no due message is left."""
    row = message.row
    if row is None or history.dropped(message.topic, -math.inf, math.inf):
        return
    told = [call.version for call in message.calls if call.done and call.version is not None]
    seen = [view.version for each in message.deliveries for view in each.views]
    newest = max([*told, *seen], default=0)
    if row.version < newest:
        yield VERSION_WENT_BACK, f"v{newest} was given out, the store has v{row.version}"
    drained_ms, _ = history.drained.get(stage_of(message.topic), (0.0, None))
    if row.state == "live" and row.ts_ms < drained_ms - _SERVED_WITHIN_MS:
        waited_ms = drained_ms - row.ts_ms
        yield STARVED, f"at {row.ts_ms} since {waited_ms:.0f} ms, with consumers that live"


def _deleted_topics(history: History, message: Message) -> Found:
    """2 and 19: after a topic is deleted and created again no message of it comes, and no lease counts."""
    drops = [call for call in history.of_topic("drop_topic", message.topic) if call.done]
    made = {
        call.told["uid"]: call
        for call in history.of_topic("create_topic", message.topic)
        if call.done
    }
    created = [call for call in message.of(*CREATING) if not call.refused]
    for drop in drops:
        before = created and all(call.ended_ms < drop.began_ms for call in created)
        for delivery in message.deliveries:
            topic = made.get(delivery.topic_uid or -1)
            if before and topic is not None and topic.began_ms > drop.began_ms:
                yield DROPPED_RETURNED, f"{drop}, then {delivery}"
            if delivery.at_ms < drop.began_ms:
                for call in delivery.own_calls:
                    if call.done and call.began_ms > drop.ended_ms:
                        yield STALE_SUCCESS, f"{drop}, then {call} of {delivery}"


def _existing_topics(history: History, message: Message) -> Found:
    """20: a call is done on a topic after its creation began; on a deleted one, after the next creation."""
    creations = [
        call for call in history.of_topic("create_topic", message.topic) if not call.refused
    ]
    if not creations:
        return
    gaps = [(-math.inf, min(call.began_ms for call in creations))]
    for drop in history.of_topic("drop_topic", message.topic):
        later = [each.began_ms for each in creations if each.last_ms > drop.began_ms]
        next_ms = min(later, default=math.inf)
        if drop.done and next_ms > drop.ended_ms:
            gaps.append((drop.ended_ms, next_ms))
    settled = [call for delivery in message.deliveries for call in delivery.own_calls]
    for call in (*message.calls, *settled):
        for begin_ms, end_ms in gaps:
            if call.done and begin_ms < call.began_ms and call.ended_ms < end_ms:
                yield NO_TOPIC, f"{call}, without a topic from {begin_ms:.0f} to {end_ms:.0f}"


_RULES = (
    _versions,
    _fencing,
    _overlaps,
    _refusals,
    _owners,
    _returned,
    _nothing_lost,
    _not_served_again,
    _one_message,
    _repeated_deletes,
    _dues,
    _clocks,
    _reschedules,
    _contents,
    _attempts,
    _rows,
    _deleted_topics,
    _existing_topics,
)
