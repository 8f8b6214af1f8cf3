"""Ending early, and well: told to, or because nobody reads what we print."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn


@contextmanager
def cleaning_up_when_told_to_end() -> Iterator[None]:
    """A SIGTERM ends the block as an exception does, so that it leaves nothing behind."""

    def end(number: int, _: object) -> NoReturn:
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def quiet_when_nobody_reads() -> Iterator[None]:
    """Ends the block when the other end of our output is closed, as `head` does when it has enough."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())  # the interpreter flushes once more at the end
        os.close(nowhere)
