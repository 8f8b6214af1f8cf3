"""A process of the scene: `python -m tests.torture.overload.program JSON` runs every second window of a lane.

Its output acknowledges a message after a time that each line of stdin sets, in milliseconds. The process ends
with its stdin.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections import deque
from dataclasses import replace
from pathlib import Path

from chronoline.core.message import LeasedMessage
from chronoline.delivery.lane_settings import LaneSettings
from chronoline.delivery.publishing_lane import Confirm, PublishingLane
from chronoline.stores.factory import open_store
from tests.torture.history import DELIVERY, Recorder
from tests.torture.overload.judge import CONFIRMED

HOLD_MS = 2_000
WINDOW_MS = 1_500
LANES = 2
NOT_EXTENDED = "leases are not extended"
"""A planted defect."""
_TURN_S = 0.01


class SlowOutput:
    """Records what is published, and confirms it after `delay_ms`."""

    def __init__(self, recorder: Recorder) -> None:
        self.delay_ms = 0.0
        self._recorder = recorder
        self._under_way: deque[tuple[float, str, Confirm]] = deque()
        threading.Thread(target=self._confirm, daemon=True).start()

    def publish(self, leased: LeasedMessage, confirm: Confirm) -> None:
        message = leased.message
        self._recorder.record(
            DELIVERY, id=message.id, due=message.due, version=leased.lease.version
        )
        self._under_way.append((time.monotonic(), message.id, confirm))

    def _confirm(self) -> None:
        while True:
            time.sleep(_TURN_S)  # the pace of the output
            while self._under_way and self._waited_ms() >= self.delay_ms:
                waited_ms = self._waited_ms()
                _, message_id, confirm = self._under_way.popleft()
                self._recorder.record(CONFIRMED, id=message_id, after_ms=waited_ms)
                confirm(None)

    def _waited_ms(self) -> float:
        return (time.monotonic() - self._under_way[0][0]) * 1000


def main(given: str) -> None:
    work = json.loads(given)
    recorder = Recorder(Path(work["folder"]), work["process"])
    output, over = SlowOutput(recorder), threading.Event()

    def listen() -> None:
        for line in sys.stdin:
            output.delay_ms = float(line)
        over.set()

    threading.Thread(target=listen, daemon=True).start()
    recorder.record("lane", hold_ms=HOLD_MS)
    settings = LaneSettings(hold_ms=HOLD_MS)
    with open_store(work["store"]) as store:
        topic = store.get_topic(work["topic"])
        with PublishingLane(
            store, topic, output.publish, consumer=work["process"], settings=settings
        ) as lane:
            if work["defect"] == NOT_EXTENDED:
                # A defect has no setting.
                options = lane._delivery._options
                lane._delivery._options = replace(options, extends=False)
            while not over.is_set():
                window = time.time_ns() // 1_000_000 // WINDOW_MS
                window += (work["place"] - window) % LANES
                start_ms = window * WINDOW_MS
                lane.run(start_ms=start_ms, end_ms=start_ms + WINDOW_MS, stopping=over.is_set)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    main(sys.argv[1])
