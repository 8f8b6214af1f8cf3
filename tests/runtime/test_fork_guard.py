"""Use in a fork is refused."""

from __future__ import annotations

import os

import pytest

from chronoline.core.errors import StoreError
from chronoline.runtime.fork_guard import ForkGuard


def test_owner_passes_and_fork_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    guard = ForkGuard("the store")
    guard.check()
    assert not guard.is_forked
    monkeypatch.setattr(os, "getpid", lambda: -1)  # as a fork sees it
    assert guard.is_forked
    with pytest.raises(StoreError, match="the store was opened before a fork; open it again"):
        guard.check()
