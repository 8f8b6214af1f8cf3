"""A guard against forks: a child inherits objects, but neither their threads nor their connections."""

from __future__ import annotations

import os

from chronoline.core.errors import StoreError


class ForkGuard:
    """Knows the process that opened something, `what` in errors."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._process = os.getpid()

    @property
    def is_forked(self) -> bool:
        """Whether this process is a fork of the one that opened it."""
        return self._process != os.getpid()

    def check(self) -> None:
        """Raises `StoreError` in a fork."""
        if self.is_forked:
            raise StoreError(
                f"{self._what} was opened before a fork; open it again in this process"
            )
