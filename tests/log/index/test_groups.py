"""Groups: members, holds, and progress that only the holder writes and that never decreases."""

from chronoline.log.contract import GroupState, Hold, Index
from tests.log.index.conftest import Open
from tests.log.index.steps import NOW, OTHER, TOPIC, append, at_once, fill, held, take


def join(
    index: Index, member: str, *, group: str = "g", until_ms: int = NOW + 100, now_ms: int = NOW
) -> list[str]:
    return index.join(group, TOPIC.uid, member, until_ms=until_ms, now_ms=now_ms)


def states(index: Index) -> list[tuple[str | None, int]]:
    """Returns the holder and the progress of each partition of the groups."""
    return [(state.holder, state.sequence) for state in index.groups(TOPIC.uid)]


# Members


def test_join_returns_the_members_by_name(index: Index, another: Open) -> None:
    assert join(index, "b") == ["b"]
    assert join(another(), "c") == ["b", "c"]
    assert join(index, "a") == ["a", "b", "c"]
    assert join(index, "b") == ["a", "b", "c"]


def test_leave_removes_the_member(index: Index) -> None:
    join(index, "a")
    join(index, "b")
    index.leave("g", TOPIC.uid, "a")
    index.leave("g", TOPIC.uid, "a")
    assert join(index, "b") == ["b"]


def test_member_lapses_unless_it_joins_again(index: Index) -> None:
    join(index, "a", until_ms=NOW + 10)
    join(index, "b", until_ms=NOW + 10)
    assert join(index, "c", now_ms=NOW + 9) == ["a", "b", "c"]
    join(index, "b", until_ms=NOW + 20, now_ms=NOW + 9)
    assert join(index, "c", now_ms=NOW + 10) == ["b", "c"]
    assert join(index, "a", until_ms=NOW + 30, now_ms=NOW + 20) == ["a", "c"]


def test_groups_and_topics_have_members_of_their_own(index: Index) -> None:
    index.create_topic(OTHER)
    join(index, "a")
    assert join(index, "b", group="h") == ["b"]
    assert index.join("g", OTHER.uid, "c", until_ms=NOW + 9, now_ms=NOW) == ["c"]
    index.leave("h", TOPIC.uid, "a")
    assert join(index, "d") == ["a", "d"]


def test_many_may_join_at_once(index: Index, another: Open) -> None:
    handles = [index, another()] * 8
    names = [f"m{number:02}" for number in range(16)]
    for name in names:
        join(index, name, until_ms=NOW + 1)
    # All members lapse, and join again together.
    at_once(lambda n: join(handles[n], names[n], until_ms=NOW + 50, now_ms=NOW + 1), range(16))
    assert join(index, "m00", now_ms=NOW + 2) == names


# Holds


def test_a_hold_says_everything(index: Index) -> None:
    fill(index, 3)
    holds = index.hold("g", TOPIC.uid, [2, 0], "a", until_ms=NOW + 100, now_ms=NOW)
    first, second = holds
    assert first == Hold("g", TOPIC.uid, 2, "a", first.fence, NOW + 100, 0)
    assert second == Hold("g", TOPIC.uid, 0, "a", second.fence, NOW + 100, 0)
    assert index.groups(TOPIC.uid) == [
        GroupState("g", 0, 0, "a", NOW + 100),
        GroupState("g", 2, 0, "a", NOW + 100),
    ]


def test_new_group_begins_at_the_first_event(index: Index) -> None:
    fill(index, 5, events=2)
    index.trim(TOPIC.uid, 0, before_sequence=4)
    holds = index.hold("g", TOPIC.uid, [0, 1], "a", until_ms=NOW + 100, now_ms=NOW)
    assert [hold.sequence for hold in holds] == [4, 0]


def test_partitions_of_another_holder_are_omitted(index: Index, another: Open) -> None:
    index.hold("g", TOPIC.uid, [1, 3], "a", until_ms=NOW + 100, now_ms=NOW)
    other = another()
    holds = other.hold("g", TOPIC.uid, [0, 1, 2, 3], "b", until_ms=NOW + 100, now_ms=NOW)
    assert [hold.partition for hold in holds] == [0, 2]
    assert [state.holder for state in index.groups(TOPIC.uid)] == ["b", "a", "b", "a"]


def test_missing_partition_cannot_be_held(index: Index) -> None:
    holds = index.hold("g", TOPIC.uid, [3, 4], "a", until_ms=NOW + 100, now_ms=NOW)
    assert [hold.partition for hold in holds] == [3]
    assert index.hold("g", 99, [0], "a", until_ms=NOW + 100, now_ms=NOW) == []
    assert index.hold("g", TOPIC.uid, [], "a", until_ms=NOW + 100, now_ms=NOW) == []
    assert index.groups(99) == []


def test_groups_hold_the_same_partition_independently(index: Index) -> None:
    index.create_topic(OTHER)
    fill(index, 3)
    mine, theirs = held(take(index, "a")), held(take(index, "b", group="h"))
    assert index.hold("g", OTHER.uid, [0], "c", until_ms=NOW + 100, now_ms=NOW) != []
    assert index.progress(mine, 2, now_ms=NOW) is not None
    assert index.progress(theirs, 1, now_ms=NOW) is not None
    assert index.groups(TOPIC.uid) == [
        GroupState("g", 0, 2, "a", NOW + 100),
        GroupState("h", 0, 1, "b", NOW + 100),
    ]


def test_hold_is_free_from_its_end_on(index: Index) -> None:
    first = held(take(index, "a", until_ms=NOW + 10))
    assert take(index, "b", now_ms=NOW + 9) is None
    second = held(take(index, "b", now_ms=NOW + 10))
    assert second.fence > first.fence
    assert take(index, "a", now_ms=NOW + 11) is None


def test_one_of_many_contenders_gets_a_hold(index: Index, another: Open) -> None:
    handles = [index, another()] * 8
    for now_ms in (NOW, NOW + 100, NOW + 200):  # a new group, and twice one whose holder is gone

        def contend(number: int, now_ms: int = now_ms) -> Hold | None:
            return take(handles[number], f"c{number}", until_ms=now_ms + 100, now_ms=now_ms)

        won = [hold for hold in at_once(contend, range(16)) if hold is not None]
        assert len(won) == 1
        assert states(index) == [(won[0].holder, 0)]


def test_contenders_for_many_partitions_share_them(index: Index, another: Open) -> None:
    handles = [index, another()] * 4

    def contend(number: int) -> list[int]:
        wanted = [0, 1, 2, 3] if number % 2 else [3, 2, 1, 0]
        holds = handles[number].hold(
            "g", TOPIC.uid, wanted, f"c{number}", until_ms=NOW + 100, now_ms=NOW
        )
        return [hold.partition for hold in holds]

    taken = [partition for share in at_once(contend, range(8)) for partition in share]
    assert sorted(taken) == [0, 1, 2, 3]


# Renewal and release


def test_a_live_hold_is_renewed(index: Index) -> None:
    fill(index, 3)
    hold = held(take(index, "a", until_ms=NOW + 10))
    index.progress(hold, 2, now_ms=NOW)
    assert index.renew([hold], until_ms=NOW + 50, now_ms=NOW + 9) == [
        hold._replace(until_ms=NOW + 50, sequence=2)
    ]
    assert take(index, "b", now_ms=NOW + 49) is None
    assert take(index, "b", now_ms=NOW + 50) is not None


def test_lapsed_hold_cannot_be_renewed(index: Index) -> None:
    hold = held(take(index, "a", until_ms=NOW + 10))
    assert index.renew([hold], until_ms=NOW + 50, now_ms=NOW + 10) == []
    assert index.progress(hold, 0, now_ms=NOW + 10) is None
    assert take(index, "b", now_ms=NOW + 10) is not None


def test_live_holds_of_a_batch_are_renewed_in_order(index: Index) -> None:
    wanted = [3, 0, 2, 1]
    holds = index.hold("g", TOPIC.uid, wanted, "a", until_ms=NOW + 10, now_ms=NOW)
    other = held(take(index, "a", group="h", until_ms=NOW + 10))
    index.seek("g", TOPIC.uid, {2: 0})
    held(take(index, "a", partition=0, now_ms=NOW + 1))  # under a new fence
    renewed = index.renew([*holds, other], until_ms=NOW + 50, now_ms=NOW + 9)
    assert [(hold.group, hold.partition) for hold in renewed] == [("g", 3), ("g", 1), ("h", 0)]
    assert {hold.until_ms for hold in renewed} == {NOW + 50}
    assert index.renew([], until_ms=NOW + 50, now_ms=NOW) == []


def test_released_hold_is_free_and_keeps_its_progress(index: Index) -> None:
    fill(index, 5)
    holds = index.hold("g", TOPIC.uid, [0, 1], "a", until_ms=NOW + 100, now_ms=NOW)
    index.progress(holds[0], 3, now_ms=NOW)
    index.let_go(holds)
    index.let_go(holds)
    index.let_go([])
    assert states(index) == [(None, 3), (None, 0)]
    assert index.renew(holds, until_ms=NOW + 200, now_ms=NOW) == []
    assert index.progress(holds[0], 4, now_ms=NOW) is None
    taken = held(take(index, "b"))
    assert taken.sequence == 3
    assert taken.fence > holds[0].fence


def test_a_lost_hold_cannot_be_let_go(index: Index) -> None:
    lost = held(take(index, "a", until_ms=NOW + 10))
    held(take(index, "b", now_ms=NOW + 10))
    mine = held(take(index, "a", partition=1))
    index.let_go([lost, mine])
    assert states(index) == [("b", 0), (None, 0)]


# Progress


def test_progress_never_goes_backwards(index: Index) -> None:
    fill(index, 9)
    hold = held(take(index, "a"))
    assert index.progress(hold, 5, now_ms=NOW) == hold._replace(sequence=5)
    assert index.progress(hold, 4, now_ms=NOW) is None
    assert index.progress(hold, 5, now_ms=NOW) == hold._replace(sequence=5)
    assert index.progress(hold, 6, now_ms=NOW) == hold._replace(sequence=6)
    assert states(index) == [("a", 6)]


def test_progress_of_several_partitions_is_each_by_itself(index: Index, another: Open) -> None:
    first, gone, last = (held(take(index, "a", partition=each)) for each in (2, 1, 0))
    held(take(another(), "b", partition=1, now_ms=gone.until_ms))
    answers = index.progress_all([(first, 3), (gone, 5), (last, 1)], now_ms=NOW)
    assert answers == [first._replace(sequence=3), None, last._replace(sequence=1)]
    assert states(index) == [("a", 1), ("b", 0), ("a", 3)]
    assert index.progress_all([], now_ms=NOW) == []


def test_progress_returns_the_end_of_the_hold(index: Index) -> None:
    fill(index, 3)
    hold = held(take(index, "a", until_ms=NOW + 10))
    index.renew([hold], until_ms=NOW + 50, now_ms=NOW)
    assert index.progress(hold, 1, now_ms=NOW + 20) == hold._replace(until_ms=NOW + 50, sequence=1)


def test_frozen_reader_cannot_write_after_its_hold(index: Index, another: Open) -> None:
    fill(index, 9)
    frozen = held(take(index, "a", until_ms=NOW + 10))
    taken = held(take(another(), "b", now_ms=NOW + 10))
    assert index.progress(frozen, 5, now_ms=NOW + 11) is None
    assert index.progress(frozen, 5, now_ms=NOW) is None  # its clock may be frozen, too
    assert index.renew([frozen], until_ms=NOW + 500, now_ms=NOW) == []
    assert index.progress(taken, 3, now_ms=NOW + 11) is not None
    assert states(index) == [("b", 3)]


def test_a_holders_twin_takes_its_hold_over(index: Index) -> None:
    fill(index, 9)
    first = held(take(index, "a"))
    index.progress(first, 2, now_ms=NOW)
    twin = held(take(index, "a"))
    assert twin.fence > first.fence
    assert twin.sequence == 2
    assert index.progress(first, 5, now_ms=NOW) is None
    assert index.renew([first], until_ms=NOW + 200, now_ms=NOW) == []
    index.let_go([first])
    assert index.progress(twin, 3, now_ms=NOW) is not None
    assert states(index) == [("a", 3)]


def test_a_fence_is_never_used_again(index: Index) -> None:
    fences = []
    for number in range(4):
        hold = held(take(index, "a", until_ms=NOW + 100 + number, now_ms=NOW + number))
        fences.append(hold.fence)
        if number == 1:
            index.let_go([hold])
        if number == 2:
            index.seek("g", TOPIC.uid, {0: 0})
    assert fences == sorted(set(fences))


# Seeking


def test_seek_moves_progress_and_takes_the_holds_away(index: Index) -> None:
    append(index, "o", {0: 9, 1: 9, 2: 9})
    holds = index.hold("g", TOPIC.uid, [0, 1, 2], "a", until_ms=NOW + 100, now_ms=NOW)
    for hold in holds:
        index.progress(hold, 5, now_ms=NOW)
    index.seek("g", TOPIC.uid, {0: 2, 2: 8})
    assert states(index) == [(None, 2), ("a", 5), (None, 8)]
    assert index.progress(holds[0], 6, now_ms=NOW) is None
    assert index.progress(holds[1], 6, now_ms=NOW) is not None
    assert [each.partition for each in index.renew(holds, until_ms=NOW + 200, now_ms=NOW)] == [1]
    assert held(take(index, "a", partition=2)).sequence == 8


def test_seek_says_where_a_new_group_begins(index: Index) -> None:
    fill(index, 9)
    index.seek("g", TOPIC.uid, {0: 4})
    index.seek("g", TOPIC.uid, {})
    assert index.groups(TOPIC.uid) == [GroupState("g", 0, 4, None, 0)]
    assert held(take(index, "a")).sequence == 4


def test_groups_are_listed_by_group_and_partition(index: Index) -> None:
    index.seek("b", TOPIC.uid, {3: 1, 1: 2})
    index.seek("B", TOPIC.uid, {2: 3})
    index.seek("a", TOPIC.uid, {0: 4})
    found = [(state.group, state.partition, state.sequence) for state in index.groups(TOPIC.uid)]
    assert found == [("B", 2, 3), ("a", 0, 4), ("b", 1, 2), ("b", 3, 1)]
