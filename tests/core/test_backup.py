"""Backup ranges: an idle consumer is served from the ranges of others, after its own."""

from __future__ import annotations

from chronoline.core.agenda import DEFAULT_MAX_SLEEP_MS
from chronoline.core.backup import LOOK_EVERY_MS, OVERDUE_MS, BackupRanges
from chronoline.core.delivery import Delivery, Reserve
from chronoline.core.ranges import BucketRange
from tests.core.leased import ids, leased
from tests.core.test_delivery import ALL, NOW, delivery, fail, reserve

FIRST, SECOND = BucketRange(8, 12), BucketRange(12, 16)
SOON, LATER = NOW + 1_000, NOW + 3_000


def backed_up() -> Delivery:
    work = delivery()
    work.cover(ALL, (FIRST, SECOND))
    return work


def answer(work: Delivery, command: Reserve, *message_ids: str, next_ts: int | None = None) -> None:
    messages = [leased(each, due=NOW, until=NOW + 10_000) for each in message_ids]
    assert work.reserved(command, messages)
    work.completed(command, next_ts=command.asked_ms if messages else next_ts, more=False)


def idle() -> Delivery:
    """A consumer whose own ranges gave nothing, and have nothing before a later moment."""
    work = backed_up()
    answer(work, reserve(work), next_ts=LATER)
    return work


def rested() -> Delivery:
    """An idle consumer that has looked at all its backups; the next message there is due soon."""
    work = idle()
    answer(work, reserve(work), next_ts=SOON)
    answer(work, reserve(work), next_ts=LATER)
    return work


def test_own_ranges_come_first_then_backups_in_order() -> None:
    work = backed_up()
    asked = []
    for _ in range(3):
        command = reserve(work)
        asked.append((command.ranges, command.is_backup))
        answer(work, command)
    assert asked == [(ALL, False), ((FIRST,), True), ((SECOND,), True)]
    assert work.reserve(NOW) is None


def test_backup_takes_only_messages_that_are_due() -> None:
    assert reserve(idle()).reach_ms == 0


def test_consumer_with_more_messages_of_its_own_leaves_backups_alone() -> None:
    work = backed_up()
    for number in range(3):
        command = reserve(work)
        assert command.ranges == ALL
        assert work.reserved(command, [leased(f"m{number}", due=NOW)])
        work.completed(command, next_ts=NOW, more=True)


def test_backups_are_served_between_the_ticks_of_dense_traffic() -> None:
    """A consumer that gets messages at every tick, and has room for more, is idle in between."""
    work = backed_up()
    answer(work, reserve(work), "m")
    assert reserve(work).ranges == (FIRST,)


def test_found_messages_are_delivered_and_own_ranges_looked_at_again() -> None:
    work = idle()
    answer(work, reserve(work), "of another")
    assert ids(work.deliver(NOW)) == ["of another"]
    assert reserve(work).ranges == ALL


def test_backup_that_gave_messages_is_looked_at_again() -> None:
    work = idle()
    answer(work, reserve(work), "of another")
    answer(work, reserve(work), next_ts=LATER)
    assert reserve(work).ranges == (FIRST,)


def test_next_look_is_when_a_message_is_overdue() -> None:
    work = rested()
    assert work.reserve_at(NOW) == SOON + OVERDUE_MS
    assert reserve(work, SOON + OVERDUE_MS).ranges == (FIRST,)


def test_notice_brings_the_next_look_forward() -> None:
    work = rested()
    assert work.noticed(NOW + 500)
    own = reserve(work, NOW + 400)
    assert own.ranges == ALL
    answer(work, own, next_ts=LATER)
    assert work.reserve_at(NOW + 400) == NOW + 500 + OVERDUE_MS


def test_notice_during_a_look_is_heeded_after_it() -> None:
    work = idle()
    answer(work, reserve(work))
    last = reserve(work)
    work.backups.noticed(NOW + 200)
    answer(work, last)
    assert work.backups.look_at(NOW) == NOW + 200 + OVERDUE_MS


def test_rounds_have_a_rest_between_them() -> None:
    work = rested()
    work.backups.noticed(None)
    assert work.reserve_at(NOW) == NOW + LOOK_EVERY_MS


def test_lost_notice_costs_a_bounded_time() -> None:
    backups = BackupRanges()
    assert backups.look_at(NOW) is None
    backups.cover([FIRST])
    backups.looked(found=False, next_ts=None, now_ms=NOW)
    assert backups.look_at(NOW) == NOW + DEFAULT_MAX_SLEEP_MS
    assert backups.look_at(NOW - 60_000) == NOW - 60_000  # the clock was put back


def test_failed_look_is_repeated_after_a_rest() -> None:
    work = idle()
    fail(work, reserve(work), unknown=False)
    assert work.reserve_at(NOW) == NOW + 200
    own = reserve(work, NOW + 200)
    assert own.ranges == ALL
    answer(work, own, next_ts=LATER)
    assert reserve(work, NOW + 200).ranges == (FIRST,)


def test_unanswered_look_is_looked_up_like_any_reservation() -> None:
    work = idle()
    command = reserve(work)
    fail(work, command, unknown=True)
    chore = work.next_chore(NOW)
    assert chore is not None
    assert getattr(chore, "session", "") == command.session


def test_consumer_without_own_ranges_serves_backups() -> None:
    work = delivery()
    work.cover((), (FIRST,))
    assert reserve(work).ranges == (FIRST,)


def test_new_ranges_are_looked_at_before_backups() -> None:
    work = idle()
    work.cover((BucketRange(0, 4),), (FIRST,))
    assert reserve(work).ranges == (BucketRange(0, 4),)
    work = idle()
    work.cover(())
    assert work.reserve(NOW) is None
