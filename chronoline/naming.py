"""Ids at the edge, where there are a clock and randomness."""

from __future__ import annotations

import os

from chronoline.clock import Clock, SystemClock
from chronoline.core.ids import ID_ENTROPY_BYTES, make_id


def new_id(clock: Clock | None = None) -> str:
    """An id of 26 characters that nobody else has, and that sorts by the time it was made.

    Make it before the first attempt to send, so that an attempt of unknown outcome can be repeated.
    """
    return make_id((clock or SystemClock()).now_ms(), os.urandom(ID_ENTROPY_BYTES))
