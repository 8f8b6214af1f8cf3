"""The judge finds each injected violation by its rule, and none in the recorded history itself.

The history is that of a small play: the work of the scene's processes, in one process.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.torture.history import (
    CALL,
    DELIVERY,
    DONE,
    OUTCOME,
    REFUSED,
    Event,
    Recorder,
    read_history,
)
from tests.torture.log import judge as rules
from tests.torture.log.judge import judge
from tests.torture.log.program import PARTITIONS, Keeper, Reader, Work, Writer
from tests.torture.log.scene import record_contents, record_progress

_MAIN, _FLEETING = "sqlite-main", "sqlite-fleeting"
_LATER_NS = 60_000_000_000
_PATIENCE_S = 60

History = list[Event]


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> History:
    folder = tmp_path_factory.mktemp("play")
    _play(folder)
    return read_history(folder)


def _play(folder: Path) -> None:
    url = f"file://{folder}/log"
    works = [
        Work(Recorder(folder, name), url, "sqlite", 1) for name in ("writer", "reader", "director")
    ]
    writing, reading, director = works
    for name in ("main", "fleeting", "short"):
        director.log.create_topic(director.topic(name), partitions=PARTITIONS)
    writer = Writer(writing)
    for _ in range(20):
        writer.step()
    writer.append("main", 4)
    writer.append("fleeting", 3)
    writer.append("nothing", 2)  # refused
    writing.recorder.call("append", topic=_MAIN, values=["never", "answered"])
    record_progress(director.recorder, director.log, "sqlite")
    for number in (0, 0, 3, 0):
        writer.append_once(number)
    Keeper(director).step()
    waiting = threading.Thread(
        target=Reader(reading, "fleeting", "brief").read, kwargs={"follow": True}
    )
    waiting.start()
    for group in ("steady", "passing"):
        Reader(reading, "main", group).read(follow=False)
    record_progress(director.recorder, director.log, "sqlite")
    _delete_fleeting(director)
    waiting.join(_PATIENCE_S)
    writer.append("fleeting", 2)
    director.call(
        "delete_group",
        lambda: director.log.delete_group(_MAIN, "passing"),
        topic=_MAIN,
        group="passing",
    )
    Reader(reading, "main", "passing").read(follow=False)
    record_progress(director.recorder, director.log, "sqlite")
    director.recorder.record("drained", topic=_MAIN, lag=0)
    director.recorder.record("rows", stage="sqlite", gone=0, keyed=2, keyed_most=10)
    record_contents(director.recorder, director.log, "sqlite")
    for work in works:
        work.log.close()


def _delete_fleeting(director: Work) -> None:
    log = director.log
    director.call("delete_topic", lambda: log.delete_topic(_FLEETING), topic=_FLEETING)
    log.create_topic(_FLEETING, partitions=PARTITIONS)


def test_clean_play_has_every_event_and_no_violation(history: History) -> None:
    assert judge(history) == []
    kinds = {event.kind for event in history}
    assert kinds >= {CALL, OUTCOME, DELIVERY, "told", "progress", "content", "drained", "rows"}
    outcomes = {event["outcome"] for event in history if event.kind == OUTCOME}
    assert outcomes == {DONE, REFUSED}


# Injections


def _changed(event: Event, **fields: Any) -> Event:
    return replace(event, fields={**event.fields, **fields})


def _with(history: History, old: Event, new: Event | None) -> History:
    """Replaces an event by another, or removes it."""
    place = next(place for place, each in enumerate(history) if each is old)
    return [*history[:place], *([new] if new else []), *history[place + 1 :]]


def _content(history: History, topic: str = _MAIN) -> Event:
    return next(each for each in history if each.kind == "content" and each["topic"] == topic)


def _append(history: History, topic: str = _MAIN, least: int = 4) -> Event:
    """Returns the call of a successful append."""
    done = {each["call"] for each in history if each.kind == OUTCOME and each["outcome"] == DONE}
    return next(
        each
        for each in history
        if each.kind == CALL
        and each["op"] == "append"
        and each["topic"] == topic
        and len(each["values"]) >= least
        and each["call"] in done
    )


def _outcome(history: History, call: Event) -> Event:
    return next(each for each in history if each.kind == OUTCOME and each["call"] == call["call"])


def _without_value(history: History, value: str) -> History:
    content = _content(history)
    left = [each for each in content["events"] if each[2] != value]
    return _with(history, content, _changed(content, events=left))


def _deliveries(history: History) -> History:
    """Returns the deliveries to the group that is never deleted, in partition 0."""
    return [
        each
        for each in history
        if each.kind == DELIVERY and each["group"] == "steady" and each["at"][0] == 0
    ]


def _last(history: History, kind: str, process: str = "director", **fields: Any) -> History:
    end_ns = history[-1].mono_ns + _LATER_NS
    return [*history, Event(kind, process, 0, end_ns, fields)]


def _lose(history: History) -> History:
    return _without_value(history, _append(history)["values"][0])


def _lose_keyed(history: History) -> History:
    call = next(each for each in history if each.kind == CALL and each["op"] == "append_once")
    return _without_value(history, call["values"][0])


def _never_deliver(history: History) -> History:
    last = _deliveries(history)[-1]
    return [each for each in history if each is not last]


def _deliver_out_of_sequence(history: History) -> History:
    first, second, *_ = _deliveries(history)
    changed = _with(history, first, _changed(first, at=second["at"], value=second["value"]))
    return _with(changed, second, _changed(second, at=first["at"], value=first["value"]))


def _leave_behind_lag(history: History) -> History:
    return _last(history, "drained", topic=_MAIN, lag=3)


def _leave_gap(history: History) -> History:
    content = _content(history)
    first, *rest = content["events"]
    moved = [[first[0], first[1] + 1_000, first[2]], *rest]
    return _with(history, content, _changed(content, events=moved))


def _double(history: History) -> History:
    content = _content(history)
    heads = [list(head) for head in content["heads"]]
    events = [*content["events"], [PARTITIONS - 1, heads[-1][1], content["events"][0][2]]]
    heads[-1][1] += 1
    return _with(history, content, _changed(content, events=events, heads=heads))


def _show_refused(history: History) -> History:
    outcome = _outcome(history, _append(history))
    return _with(history, outcome, _changed(outcome, outcome=REFUSED, at=[]))


def _halve(history: History) -> History:
    call = _append(history)
    return _with(_without_value(history, call["values"][1]), _outcome(history, call), None)


def _move(history: History) -> History:
    last = _deliveries(history)[-1]
    return _with(history, last, _changed(last, value="another"))


def _answer_elsewhere(history: History) -> History:
    outcome = _outcome(history, _append(history))
    at = [[partition, sequence + 1] for partition, sequence in outcome["at"]]
    return _with(history, outcome, _changed(outcome, at=at))


def _progress(history: History, sequence: int) -> History:
    return _last(history, "progress", topic=_MAIN, group="steady", partition=0, sequence=sequence)


def _go_back(history: History) -> History:
    return _progress(history, 0)


def _go_ahead(history: History) -> History:
    return _progress(history, 10_000)


def _bring_back(history: History) -> History:
    content = _content(history, _FLEETING)
    old = _append(history, _FLEETING, least=3)["values"][0]
    heads = [list(head) for head in content["heads"]]
    events = [*content["events"], [PARTITIONS - 1, heads[-1][1], old]]
    heads[-1][1] += 1
    return _with(history, content, _changed(content, events=events, heads=heads))


def _do_not_tell(history: History) -> History:
    told = [each for each in history if each.kind == "told"]
    kept = [each for each in history if each not in told]
    return _last(kept, "begin", process="reader", topic=_MAIN, group="steady")


def _leave_rows(history: History) -> History:
    return _last(history, "rows", stage="sqlite", gone=1, keyed=0, keyed_most=10)


def _leave_keys(history: History) -> History:
    return _last(history, "rows", stage="sqlite", gone=0, keyed=11, keyed_most=10)


def _end_reader(history: History) -> History:
    return _last(history, "failed", process="reader", error="DamagedObject")


INJECTED: Sequence[tuple[Callable[[History], History], str]] = [
    (_lose, rules.LOST),
    (_lose_keyed, rules.LOST),
    (_never_deliver, rules.NOT_DELIVERED),
    (_deliver_out_of_sequence, rules.OUT_OF_SEQUENCE),
    (_leave_behind_lag, rules.BEHIND),
    (_leave_gap, rules.GAP),
    (_double, rules.TWICE),
    (_show_refused, rules.FAILED_IS_SEEN),
    (_halve, rules.IN_HALVES),
    (_move, rules.ELSEWHERE),
    (_answer_elsewhere, rules.ELSEWHERE),
    (_go_back, rules.BACKWARDS),
    (_go_ahead, rules.AHEAD),
    (_bring_back, rules.CAME_BACK),
    (_do_not_tell, rules.MISSED_DELETION),
    (_leave_rows, rules.LEFT_BEHIND),
    (_leave_keys, rules.LEFT_BEHIND),
    (_end_reader, rules.ENDED),
]


@pytest.mark.parametrize(
    ("inject", "rule"), INJECTED, ids=lambda each: getattr(each, "__name__", "")
)
def test_violation_is_found(
    history: History, inject: Callable[[History], History], rule: str
) -> None:
    assert rule in {violation.rule for violation in judge(inject(history))}


def test_every_rule_is_broken_here() -> None:
    known = {rule for name, rule in vars(rules).items() if name.isupper() and isinstance(rule, str)}
    known -= {CALL, DELIVERY, DONE, OUTCOME, REFUSED}
    assert known == {rule for _, rule in INJECTED}
