"""Whether a consumer handles its messages, by how it settles them.

A consumer that retries nearly all of its last messages errs: its handler, or something behind it, does not
work. To push on would only use up the attempts of the messages. So it gets a single message after a second;
if it retries that one too, the next comes after two, four, at most ten seconds. The first message that it
handles ends it.

Many different messages are needed for the judgement: a few that no handler can take do not stop a consumer. A
release says nothing, since it is the way to ask for a message later.
"""

from __future__ import annotations

from collections import deque

from chronoline.core.output_gate import OutputGate
from chronoline.core.permissions import Operation

_JUDGED = 20
"""The number of last results by which it is judged."""
_RETRIES = 18
"""It errs with this number of retries among them."""
_MESSAGES = 10
"""They must be of this number of different messages."""
_FIRST_MS = 1_000
_LONGEST_MS = 10_000
_HANDLED = frozenset({Operation.ACK, Operation.BURY})


class ConsumerHealth:
    """The results of one consumer of a topic, and the gate before it."""

    def __init__(self) -> None:
        self.gate = OutputGate(_FIRST_MS, longest_ms=_LONGEST_MS)
        self._retried: deque[str] = deque(maxlen=_JUDGED)  # ids; empty where it was handled

    @property
    def is_erring(self) -> bool:
        return not self.gate.is_open

    def may_serve(self, now_ms: int) -> bool:
        """Whether it gets messages now, be it a single one; otherwise others get its share."""
        opens_at = self.gate.opens_at(now_ms)
        return self.gate.is_open or (opens_at is not None and opens_at <= now_ms)

    def settled(self, operation: Operation, message_id: str, now_ms: int) -> None:
        """The consumer settled a message."""
        if operation in _HANDLED:
            self._retried.append("")
            self.gate.succeeded()
        elif operation is not Operation.RETRY:
            self.gate.undecided()
        elif self.is_erring:
            self.gate.failed(now_ms)
        else:
            self._retried.append(message_id)
            if self._is_wrong:
                self._retried.clear()
                self.gate.failed(now_ms)

    @property
    def _is_wrong(self) -> bool:
        retried = [each for each in self._retried if each]
        return len(retried) >= _RETRIES and len(set(retried)) >= _MESSAGES
