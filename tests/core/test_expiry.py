"""When a message goes to the dead letters: attempts, `expires` and lateness, at their instants."""

import pytest

from chronoline.core.expiry import DeathReason, death_of
from chronoline.core.message import Message
from chronoline.core.topic import TopicSettings

DUE = 1_000


def message(expires: int | None = None) -> Message:
    return Message(
        id="a",
        ts=DUE,
        due=DUE,
        bucket=0,
        producer_group="owners",
        lock_consumer=None,
        version=1,
        attempts=0,
        expires=expires,
        key=None,
        headers=(),
    )


@pytest.mark.parametrize(
    ("attempts", "death"), [(2, None), (3, DeathReason.ATTEMPTS), (4, DeathReason.ATTEMPTS)]
)
def test_after_max_attempts(attempts: int, death: DeathReason | None) -> None:
    assert death_of(message(), attempts, TopicSettings(max_attempts=3), DUE) is death


@pytest.mark.parametrize(
    ("now_ms", "death"),
    [(1_499, None), (1_500, DeathReason.EXPIRED), (1_501, DeathReason.EXPIRED)],
)
def test_from_expires_on(now_ms: int, death: DeathReason | None) -> None:
    assert death_of(message(expires=1_500), 0, TopicSettings(), now_ms) is death


@pytest.mark.parametrize(
    ("now_ms", "death"), [(1_499, None), (1_500, None), (1_501, DeathReason.MAX_LATENESS)]
)
def test_later_than_max_lateness(now_ms: int, death: DeathReason | None) -> None:
    assert death_of(message(), 0, TopicSettings(max_lateness_ms=500), now_ms) is death


def test_no_lateness_at_all_still_delivers_at_due() -> None:
    settings = TopicSettings(max_lateness_ms=0)
    assert death_of(message(), 0, settings, DUE) is None
    assert death_of(message(), 0, settings, DUE + 1) is DeathReason.MAX_LATENESS


def test_without_bounds_a_message_never_grows_too_old() -> None:
    assert death_of(message(), 0, TopicSettings(), DUE + 10**12) is None


def test_used_up_attempts_are_the_reason_that_is_named() -> None:
    settings = TopicSettings(max_attempts=1)
    assert death_of(message(expires=1_500), 1, settings, 2_000) is DeathReason.ATTEMPTS
