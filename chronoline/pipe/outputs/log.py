"""The output on a topic of the log.

The log commits in groups: records that are published during a commit share the next one. Its queue is bounded
by bytes; while it is full `publish` waits for the acknowledgement of one of its records.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future

from chronoline.core.errors import InvalidInput, OutputUnavailable, StoreBusy, Unpublishable
from chronoline.log import Log, NewEvent, Position
from chronoline.pipe.outputs.contract import Confirm, Output, OutRecord

DEFAULT_ROOM_TIMEOUT_S = 4.0
_LOOK_S = 0.05  # another user of the log may fill its queue, and its end has no event here


class LogOutput(Output):
    """A topic of a log. Raises `TopicNotFound`.

    `room_timeout_s` is the longest wait of a record for room. With `owns_log`, `close` closes the log.
    """

    def __init__(
        self,
        log: Log,
        topic: str,
        *,
        room_timeout_s: float = DEFAULT_ROOM_TIMEOUT_S,
        owns_log: bool = False,
    ) -> None:
        log.topic(topic)
        self.topic = topic
        self._log = log
        self._owns_log = owns_log
        self._room_timeout_s = room_timeout_s
        # Guards the fields below; notified when a record is confirmed.
        self._confirmed = threading.Condition()
        self._under_way = 0
        self._closed = False

    def publish(self, record: OutRecord, confirm: Confirm) -> None:
        with self._confirmed:
            if self._closed:
                refusal = OutputUnavailable(f"the output {self.topic!r} is closed")
            else:
                refusal = None
                self._under_way += 1
        if refusal is not None:
            confirm(refusal)
            return
        event = NewEvent(key=record.key, value=record.value, headers=record.headers)
        try:
            appended = self._append_when_there_is_room(event)
        except Exception as error:  # the confirmation gets every outcome
            self._settle(confirm, error)
        else:
            appended.add_done_callback(lambda done: self._settle(confirm, done.exception()))

    def flush(self, timeout_s: float) -> int:
        with self._confirmed:
            self._confirmed.wait_for(lambda: not self._under_way, timeout_s)
            return self._under_way

    def close(self) -> None:
        with self._confirmed:
            self._closed = True
            self._confirmed.wait_for(lambda: not self._under_way)
        if self._owns_log:
            self._log.close()

    def _append_when_there_is_room(self, event: NewEvent) -> Future[list[Position]]:
        give_up_s = time.monotonic() + self._room_timeout_s
        while True:
            try:
                return self._log.append_later(self.topic, [event])
            except StoreBusy:
                if time.monotonic() > give_up_s:
                    raise
            with self._confirmed:
                self._confirmed.wait(_LOOK_S)

    def _settle(self, confirm: Confirm, error: BaseException | None) -> None:
        try:
            confirm(None if error is None else self._translated(error))
        finally:
            with self._confirmed:
                self._under_way -= 1
                self._confirmed.notify_all()

    def _translated(self, error: BaseException) -> BaseException:
        if isinstance(error, InvalidInput):
            return Unpublishable(f"the log refuses the message permanently: {error}")
        return OutputUnavailable(f"{self.topic!r} did not acknowledge the message: {error}")
