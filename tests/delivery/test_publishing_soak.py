"""Random soak: lanes, windows, an output and a store that fail; in the end every message is accounted for."""

import random
import threading
from collections import Counter
from typing import cast

import pytest

from chronoline.core.errors import OutcomeUnknown, OutputUnavailable, StoreUnavailable
from chronoline.core.message import LeasedMessage, NewMessage
from chronoline.core.topic import Topic, TopicSettings
from chronoline.delivery.lane_settings import LaneReport
from chronoline.delivery.publishing_lane import Confirm
from chronoline.stores.contract import Store
from tests.delivery.inbox import now_ms, remaining, wait_until
from tests.delivery.outlet import MINUTE_MS, lane_of
from tests.delivery.stores import Tap

NUMBER = 600
WINDOW_MS = 250
MAX_ATTEMPTS = 3


class Moody:
    """An output that acknowledges most, refuses poison, fails at times, and answers from other threads."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._lock = threading.Lock()
        self.acknowledged: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.early: list[str] = []

    def __call__(self, message: LeasedMessage, confirm: Confirm) -> None:
        if message.message.due > now_ms():
            self.early.append(message.lease.id)
        with self._lock:
            mood = self._chance.random()
            answer = self._answer(message.lease.id, mood)
        if mood < 0.3:
            confirm(answer)
        elif mood < 0.35 and answer is not None:
            raise answer
        else:
            timer = threading.Timer(mood / 20, confirm, args=(answer,))
            timer.daemon = True
            timer.start()

    def _answer(self, message_id: str, mood: float) -> BaseException | None:
        if mood < 0.01:
            return OutputUnavailable("gone for a moment")
        if message_id.startswith("poison") or 0.31 < mood < 0.33:
            self.refused[message_id] += 1
            return ValueError("refused")
        self.acknowledged[message_id] += 1
        return None


def moody_store(store: Store, chance: random.Random) -> Tap:
    def sometimes(error: Exception) -> None:
        if chance.random() < 0.03:
            raise error

    tap = Tap(store)
    tap.fail = lambda name: sometimes(StoreUnavailable(f"no {name}"))
    tap.lose = lambda name: sometimes(OutcomeUnknown(f"the answer to {name} was lost"))
    return tap


@pytest.mark.parametrize("seed", [1, 2])
def test_every_message_is_published_once_or_dead(store: Store, seed: int) -> None:
    settings = TopicSettings(max_attempts=MAX_ATTEMPTS)
    topic = store.create_topic("soak", settings, now_ms=now_ms())
    chance = random.Random(seed)
    output = Moody(chance)
    told = threading.Event()
    reports: list[LaneReport] = []

    def serve(place: int, first_ms: int) -> None:
        """Every other window: the lanes alternate, and each is up before its window begins."""
        tap = cast(Store, moody_store(store, random.Random(seed + place)))
        # No lease lapses within the test: a duplicate would be an error of the lane.
        with lane_of(
            tap, topic, output, consumer=f"node/{place}", hold_ms=MINUTE_MS, retry_ms=50
        ) as lane:
            start_ms = first_ms + place * WINDOW_MS
            while not told.is_set():
                end_ms = start_ms + WINDOW_MS
                reports.append(lane.run(start_ms=start_ms, end_ms=end_ms, stopping=told.is_set))
                start_ms += 2 * WINDOW_MS

    threads = [threading.Thread(target=serve, args=(place, now_ms())) for place in range(2)]
    for thread in threads:
        thread.start()
    ids = create_all(store, topic, chance)
    wait_until(lambda: remaining(store, topic) == 0)
    told.set()
    for thread in threads:
        thread.join()

    dead = {each.message.id for each in store.dead_letters(topic.uid, limit=NUMBER)}
    assert output.early == []
    assert set(output.acknowledged) | dead == set(ids)
    assert set(output.acknowledged) & dead == set()
    assert set(output.acknowledged.values()) == {1}
    assert {each for each in ids if each.startswith("poison")} <= dead
    assert {output.refused[each] for each in dead} == {MAX_ATTEMPTS}
    assert sum(report.fired for report in reports) == len(output.acknowledged)
    assert sum(report.failed for report in reports) == output.refused.total()
    assert sum(report.lapsed + report.taken_over for report in reports) == 0


def create_all(store: Store, topic: Topic, chance: random.Random) -> list[str]:
    """Some overdue, some soon, some later, in small batches while the lanes run."""
    ids = [f"poison{place}" if place % 40 == 0 else f"m{place}" for place in range(NUMBER)]
    for place in range(0, NUMBER, 20):
        now = now_ms()
        batch = [
            NewMessage(id=each, due=now + chance.choice([-50, 0, 20, 100, 150, 300, 900]))
            for each in ids[place : place + 20]
        ]
        assert all(outcome.done for outcome in store.create(topic.uid, batch, now_ms=now))
    return ids
