"""Works of one joint call: each has its own result."""

from __future__ import annotations

from typing import Any

import pytest

from chronoline.core.errors import InvalidInput, TopicNotFound
from chronoline.stores.contract import Store
from tests.stores.line import NOW, Line, MakeLine, new, words


def test_each_work_sees_the_changes_of_earlier_works(
    make_line: MakeLine,
) -> None:
    line = make_line()
    line.put("old")
    lease = line.take("old")

    def count() -> Any:
        return line.store.count(
            line.uid, line.topic.all_buckets, start=0, end=NOW + 60_000, now_ms=NOW
        ).total

    works: list[Any] = [lambda: line.create(new("a")), count, lambda: line.ack(lease), count]
    assert line.store.together(works) == [["done"], 2, ["done"], 1]
    assert line.store.together([]) == []


def test_failed_work_changes_nothing_in_a_joint_commit(make_line: MakeLine) -> None:
    line = make_line()
    capabilities = line.store.capabilities
    is_one_commit = capabilities.durable and not capabilities.concurrent_writers

    def fail_in_the_middle() -> object:
        line.put("b")
        raise InvalidInput("after a part")

    works: list[Any] = [
        lambda: line.create(new("a")),
        fail_in_the_middle,
        lambda: line.store.create(line.uid + 1, [new("x")], now_ms=NOW),
        lambda: line.create(new("c"), new("a")),
    ]
    first, second, third, last = line.store.together(works)
    assert (first, last) == (["done"], ["done", "exists"])
    assert isinstance(second, InvalidInput)
    assert isinstance(third, TopicNotFound)
    stays = [] if is_one_commit else ["b"]
    assert sorted(line.store.lookup(line.uid, ["a", "b", "c"])) == ["a", *stays, "c"]


def test_refusals_are_returned_as_outcomes(make_line: MakeLine) -> None:
    line = make_line()
    line.put("a")
    lease = line.take("a")
    works: list[Any] = [
        lambda: line.cancel("a", "nowhere"),
        lambda: line.ack(lease),
        lambda: line.ack(lease),
        lambda: line.create(new("a")),
    ]
    one_by_one = make_line()
    one_by_one.put("a")
    other = one_by_one.take("a")
    expected = [
        one_by_one.cancel("a", "nowhere"),
        one_by_one.ack(other),
        one_by_one.ack(other),
        one_by_one.create(new("a")),
    ]
    assert line.store.together(works) == expected


@pytest.mark.parametrize("failing", [False, True], ids=["done", "one of them failed"])
def test_together_wakes_watches(store: Store, make_line: MakeLine, failing: bool) -> None:
    line: Line = make_line()

    def fail() -> object:
        raise InvalidInput("no")

    with store.watch() as watch:
        watch.wait(0)
        works: list[Any] = [lambda: line.create(new("a"))] + [fail] * failing
        assert store.together(works)[0] == ["done"]
        heard = watch.wait(60)
        assert any(each.topic_uid in (None, line.uid) for each in heard)
        assert words(store.create(line.uid, [new("a")], now_ms=NOW)) == ["exists"]
