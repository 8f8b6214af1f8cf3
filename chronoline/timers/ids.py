"""The names under which clients know timers.

    00000000000004d2a0000000c0000001-2    16 hexadecimal digits of the timer, 16 of the filter of its nodes,
                                          and how many replicas it has
    00000000000004d2-2                    the same without the filter
    00000000000004d2a0000000c0000001      the same without the number

Answers use the first form. It says where the timer was at its last change, so that it is found there too
after the cluster has grown or shrunk. Without the filter, the nodes of the lists before and after the
change are asked; without the number, it is the number of nodes in the filter, which is too low once one of
them has left. Further characters are ignored.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_FORMS = re.compile(
    r"(?P<id>[0-9a-fA-F]{16})"
    r"(?:(?P<filter>[0-9a-fA-F]{16})(?:-(?P<of>[0-9]{1,9}))?|-(?P<factor>[0-9]{1,9}))(?:[^0-9a-fA-F].*)?"
)


@dataclass(frozen=True, slots=True)
class TimerName:
    """A timer's name: its id, and the filter or the number of its replicas, or both."""

    id: int
    replicas_filter: int | None = None
    factor: int | None = None

    def __str__(self) -> str:
        bits = "" if self.replicas_filter is None else f"{self.replicas_filter:016x}"
        number = "" if self.factor is None else f"-{self.factor}"
        return f"{self.id:016x}{bits}{number}"


def no_timer(text: str) -> str:
    """The error text for a name that no timer can have."""
    return f"{text[:100]!r} is no timer: 16 hexadecimal digits, then 16 more, or - and a number"


def parse_name(text: str) -> TimerName | None:
    """Parses a name; None if no timer can have it."""
    found = _FORMS.fullmatch(text)
    if found is None:
        return None
    replicas_filter, factor = found["filter"], found["of"] or found["factor"]
    return TimerName(
        int(found["id"], 16),
        None if replicas_filter is None else int(replicas_filter, 16),
        None if factor is None else int(factor),
    )
