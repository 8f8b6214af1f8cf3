"""Signals that end a process."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn


@contextmanager
def exit_on_sigterm() -> Iterator[None]:
    """Within the block SIGTERM raises `SystemExit`, so that resources of the block are closed."""

    def end(number: int, _: object) -> NoReturn:
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
