"""Ending early, and well: told to, or because nobody reads what we print."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from chronoline.runtime.signals import exit_on_sigterm

cleaning_up_when_told_to_end = exit_on_sigterm


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
