"""Notices: one claimant notifies of new events, and no concurrent append is forgotten."""

from chronoline.log.contract import AppendNotice, Index
from tests.log.index.conftest import Open
from tests.log.index.steps import NOW, TOPIC, append, at_once, ends

LATENCY_MS = 100


def begin(index: Index, now_ms: int = NOW, partition: int = 0) -> AppendNotice | int | None:
    return index.begin_notice(TOPIC.uid, partition, max_latency_ms=LATENCY_MS, now_ms=now_ms)


def begun(index: Index, now_ms: int = NOW, partition: int = 0) -> AppendNotice:
    notice = begin(index, now_ms, partition)
    assert isinstance(notice, AppendNotice), notice
    return notice


def test_no_notice_without_new_events(index: Index) -> None:
    assert begin(index) is None
    assert index.untold(TOPIC.uid) == []
    assert index.untold(99) == []
    assert index.begin_notice(99, 0, max_latency_ms=1, now_ms=NOW) is None


def test_first_claimant_notifies(index: Index) -> None:
    append(index, "a", {0: 3})
    assert begin(index) == AppendNotice(TOPIC.uid, 0, 3, NOW)


def test_second_claimant_learns_when_the_notice_ends(index: Index, another: Open) -> None:
    append(index, "a", {0: 3})
    begin(index)
    assert begin(another(), NOW + 40) == NOW + LATENCY_MS
    assert begin(index, NOW + LATENCY_MS - 1) == NOW + LATENCY_MS


def test_dead_notifier_is_replaced(index: Index) -> None:
    append(index, "a", {0: 3})
    dead = begun(index)
    append(index, "b", {0: 1})
    notice = begun(index, NOW + LATENCY_MS)
    assert notice == AppendNotice(TOPIC.uid, 0, 4, NOW + LATENCY_MS)
    # The first claimant was only frozen: its end does not end the other notice.
    assert index.end_notice(dead, now_ms=NOW + LATENCY_MS + 1) is None
    assert begin(index, NOW + LATENCY_MS + 2) == NOW + 2 * LATENCY_MS
    assert index.untold(TOPIC.uid) == [0]
    assert index.end_notice(notice, now_ms=NOW + LATENCY_MS + 3) is None
    assert index.untold(TOPIC.uid) == []


def test_told_events_are_not_told_again(index: Index) -> None:
    append(index, "a", {0: 3})
    assert index.end_notice(begun(index), now_ms=NOW + 1) is None
    assert begin(index, NOW + 2) is None
    assert begin(index, NOW + 10 * LATENCY_MS) is None


def test_append_before_the_end_continues_the_notice(index: Index) -> None:
    append(index, "a", {0: 3})
    notice = begun(index)
    append(index, "b", {0: 2})
    following = index.end_notice(notice, now_ms=NOW + 50)
    assert following == AppendNotice(TOPIC.uid, 0, 5, NOW + 50)
    assert begin(index, NOW + 60) == NOW + 50 + LATENCY_MS
    assert index.untold(TOPIC.uid) == [0]
    assert index.end_notice(following, now_ms=NOW + 70) is None
    assert index.untold(TOPIC.uid) == []


def test_append_after_the_end_begins_a_new_notice(index: Index) -> None:
    append(index, "a", {0: 3})
    index.end_notice(begun(index), now_ms=NOW + 1)
    append(index, "b", {0: 1})
    assert begin(index, NOW + 2) == AppendNotice(TOPIC.uid, 0, 4, NOW + 2)


def test_a_notice_ends_once(index: Index) -> None:
    append(index, "a", {0: 1})
    notice = begun(index)
    append(index, "b", {0: 1})
    following = index.end_notice(notice, now_ms=NOW)  # within one millisecond
    assert following is not None
    assert following.since_ms > notice.since_ms
    assert index.end_notice(notice, now_ms=NOW) is None
    assert index.untold(TOPIC.uid) == [0]
    assert index.end_notice(following, now_ms=NOW) is None
    assert index.untold(TOPIC.uid) == []


def test_clock_near_zero_delays_no_notice(index: Index) -> None:
    append(index, "a", {0: 1})
    assert begun(index, now_ms=1) == AppendNotice(TOPIC.uid, 0, 1, 1)


def test_partitions_have_separate_notices(index: Index) -> None:
    append(index, "a", {3: 1, 0: 1, 1: 1})
    index.end_notice(begun(index, partition=1), now_ms=NOW)
    notice = begun(index, partition=3)
    assert index.untold(TOPIC.uid) == [0, 3]
    assert begin(index, partition=2) is None
    assert begun(index, NOW, partition=0).partition == 0
    index.end_notice(notice, now_ms=NOW)
    assert index.untold(TOPIC.uid) == [0]


def test_untold_events_can_be_told_again(index: Index) -> None:
    append(index, "a", {0: 5, 1: 1})
    index.end_notice(begun(index), now_ms=NOW)
    index.untell(TOPIC.uid, 0, sequence=3)
    assert index.untold(TOPIC.uid) == [0, 1]
    assert begun(index, NOW + 1) == AppendNotice(TOPIC.uid, 0, 5, NOW + 1)
    index.untell(TOPIC.uid, 2, sequence=0)  # nothing is there
    index.untell(99, 0, sequence=0)
    assert index.untold(TOPIC.uid) == [0, 1]


def test_running_notice_does_not_cover_untold_events(index: Index) -> None:
    append(index, "a", {0: 5})
    notice = begun(index)  # its reader stops before the end
    index.untell(TOPIC.uid, 0, sequence=3)
    assert index.end_notice(notice, now_ms=NOW + 1) is None
    assert index.untold(TOPIC.uid) == [0]
    second = begun(index, NOW + 2)
    index.untell(TOPIC.uid, 0, sequence=5)  # and the next reader reaches the end
    append(index, "b", {0: 1})
    assert index.end_notice(second, now_ms=NOW + 3) is None
    assert index.untold(TOPIC.uid) == [0]


def test_untell_of_untold_events_changes_nothing(index: Index) -> None:
    append(index, "a", {0: 5})
    index.untell(TOPIC.uid, 0, sequence=4)
    assert begun(index) == AppendNotice(TOPIC.uid, 0, 5, NOW)
    index.untell(TOPIC.uid, 0, sequence=99)
    assert index.untold(TOPIC.uid) == [0]


def test_trim_keeps_the_told_position(index: Index) -> None:
    append(index, "a", {0: 3})
    index.trim(TOPIC.uid, 0, before_sequence=3)
    assert index.end_notice(begun(index), now_ms=NOW) is None
    assert index.untold(TOPIC.uid) == []


def test_one_of_many_claimants_notifies(index: Index, another: Open) -> None:
    handles = [index, another()] * 4
    for number in range(5):
        append(index, f"o{number}", {0: 1})
        answers = at_once(begin, handles)
        notices = [answer for answer in answers if isinstance(answer, AppendNotice)]
        assert len(notices) == 1
        assert answers.count(NOW + LATENCY_MS) == 7
        assert index.end_notice(notices[0], now_ms=NOW) is None


def test_nothing_stays_untold_when_many_append_and_tell(index: Index, another: Open) -> None:
    handles = [index, another()] * 4
    told: list[int] = []

    def append_and_tell(number: int) -> None:
        for each in range(8):
            append(handles[number], f"w{number}-{each}", {0: 1})
            notice = begin(handles[number])
            while isinstance(notice, AppendNotice):
                told.append(notice.sequence)
                notice = handles[number].end_notice(notice, now_ms=NOW)

    at_once(append_and_tell, range(8))
    assert ends(index)[0] == (0, 64)
    assert index.untold(TOPIC.uid) == []
    assert max(told) == 64
