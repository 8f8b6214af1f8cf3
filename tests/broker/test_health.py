"""Health reports a store that answers queries and refuses changes."""

from __future__ import annotations

from chronoline.broker.store_access import StoreHealth
from chronoline.core.errors import StoreBusy, StoreFull


def test_refusal_is_reported_until_a_change_succeeds() -> None:
    health = StoreHealth(lambda: 100.0)
    assert health.refusal == ""
    for _ in range(3):
        health.refused(StoreFull("no room"))
    assert (health.refusal, health.problem) == ("no room", "")
    health.changed()
    assert health.refusal == ""


def test_refusal_expires_without_new_attempts() -> None:
    """Without expiry, a node that gets no requests would never be ready again."""
    now_s = 100.0
    health = StoreHealth(lambda: now_s)
    health.refused(StoreBusy("another process writes"))
    now_s += 4.9
    assert health.refusal == "another process writes"
    now_s += 0.1
    assert health.refusal == ""
