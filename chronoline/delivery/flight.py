"""Messages that were handed to an output and are not confirmed yet.

A message is in flight from the moment that it leaves the agenda until its confirmation has been dealt with.
Confirmations come from any thread, one for each message, so they take no lock: they are appended to a queue
that the storing thread empties from time to time. Everything else is guarded by the lane.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from chronoline.core.agenda import Agenda
from chronoline.core.message import LeasedMessage, content_bytes

_MANY = 1_000
"""So many confirmations do not wait for their time."""


class Handover:
    """A message on its way to the output, and the `confirm` that goes with it; the first word counts."""

    __slots__ = ("_note", "_said", "error", "fired_ms", "message", "weight")

    def __init__(self, message: LeasedMessage, note: Callable[[Handover], None]) -> None:
        self.message = message
        self.weight = content_bytes(message.body, message.message.key, message.message.headers)
        self.fired_ms = 0
        """When it was handed over; 0 before that."""
        self.error: BaseException | None = None
        self._said = False
        self._note = note

    def __call__(self, error: BaseException | None) -> None:
        if not self._said:
            self._said = True
            self.error = error
            self._note(self)


class Flight:
    """What is in flight, which its agenda counts as room that is taken, and what was confirmed."""

    def __init__(self, agenda: Agenda, wake: Callable[[], None]) -> None:
        self.impatient = False
        """Each confirmation is worth waking the storing thread. It is set without a guard too."""
        self._agenda = agenda
        self._wake = wake
        self._in_flight: set[Handover] = set()
        self._confirmed: deque[Handover] = deque()

    def __len__(self) -> int:
        return len(self._in_flight)

    def __contains__(self, handover: Handover) -> bool:
        return handover in self._in_flight

    def start(self, messages: Sequence[LeasedMessage]) -> list[Handover]:
        handovers = [Handover(message, self._note) for message in messages]
        self._in_flight.update(handovers)
        self._agenda.away = len(self._in_flight)
        self._agenda.away_bytes += sum(each.weight for each in handovers)
        return handovers

    def end(self, handovers: Sequence[Handover]) -> None:
        """They are in flight no more; those that were not already are passed over."""
        landed = self._in_flight.intersection(handovers)
        self._in_flight -= landed
        self._agenda.away = len(self._in_flight)
        self._agenda.away_bytes -= sum(each.weight for each in landed)

    def end_all(self) -> None:
        self.end(list(self._in_flight))

    def ending(self, until_ms: int) -> list[Handover]:
        """Those under a lease that ends by a moment."""
        return [each for each in self._in_flight if each.message.lease.until <= until_ms]

    @property
    def confirmed(self) -> int:
        """How many confirmations wait to be dealt with."""
        return len(self._confirmed)

    @property
    def many_confirmed(self) -> bool:
        return len(self._confirmed) >= _MANY

    def take_confirmed(self) -> list[Handover]:
        """Takes out what was confirmed, in order; also what is not in flight any more."""
        take = self._confirmed.popleft
        return [take() for _ in range(len(self._confirmed))]

    def _note(self, handover: Handover) -> None:
        self._confirmed.append(handover)
        if handover.error is not None:
            self.impatient = True  # the sooner it is known, the fewer follow
        if self.impatient or len(self._confirmed) == _MANY:
            self._wake()
