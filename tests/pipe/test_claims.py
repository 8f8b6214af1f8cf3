"""Claims on partitions: each pipe has its share; lost records are skipped and logged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from chronoline.core.errors import InvalidInput, RowsLocked
from chronoline.core.topic import Topic
from chronoline.pipe.claims import InputClaims, Start
from chronoline.pipe.inputs import Input
from chronoline.stores.contract import Store
from chronoline.stores.factory import open_store
from chronoline.stores.inputs import InputClaim

CLAIM_MS = 1_000


class Topics(Input):
    """An input whose state the test sets."""

    def __init__(self) -> None:
        self.first = {0: 0, 1: 0, 2: 0}
        self.next = {0: 10, 1: 10, 2: 10}

    def identity(self) -> str:
        return "7"

    def partitions(self) -> list[int]:
        return sorted(self.first)

    def earliest(self) -> dict[int, int]:
        return dict(self.first)

    def latest(self) -> dict[int, int]:
        return dict(self.next)

    def commit(self, positions: Mapping[int, int]) -> None:
        raise AssertionError("claims are not shown")

    def close(self) -> None: ...


@pytest.fixture
def store() -> Iterator[Store]:
    with open_store("memory:") as store:
        yield store


@pytest.fixture
def topic(store: Store) -> Topic:
    return store.create_topic("pipe", now_ms=1)


@pytest.fixture
def source() -> Topics:
    return Topics()


def claiming(
    store: Store, topic: Topic, source: Topics, node: str, start: Start = "earliest"
) -> InputClaims:
    return InputClaims(
        store, topic, source, name="pipe/in", node=node, start=start, claim_ms=CLAIM_MS
    )


def test_claims_whose_rows_are_held_are_kept_for_the_next_round(
    store: Store, topic: Topic, source: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = claiming(store, topic, source, "a")
    mine.share(["a"], [0, 1, 2], 1)

    def held(*_: object, **__: object) -> list[InputClaim]:
        raise RowsLocked("an intake writes")

    with monkeypatch.context() as busy:
        busy.setattr(store, "renew_claims", held)
        assert mine.renew(2)
    assert mine.claims.keys() == {0, 1, 2}
    assert mine.renew(3)
    assert {each.until_ms for each in mine.claims.values()} == {3 + CLAIM_MS}


def test_two_pipes_come_to_their_shares(store: Store, topic: Topic, source: Topics) -> None:
    a, b = (claiming(store, topic, source, node) for node in "ab")
    assert a.share(["a"], [0, 1, 2], 1)
    assert a.claims.keys() == {0, 1, 2}
    assert not a.share(["a"], [0, 1, 2], 2)
    # b is there: it gets nothing until a has given up what is no longer its own.
    assert not b.share(["a", "b"], [0, 1, 2], 3)
    assert a.share(["a", "b"], [0, 1, 2], 4)
    assert a.claims.keys() == {0, 2}
    assert b.share(["a", "b"], [0, 1, 2], 5)
    assert b.claims.keys() == {1}
    # a is gone: its claims end by themselves.
    assert not b.share(["b"], [0, 1, 2], 6)
    assert b.renew(6 + CLAIM_MS // 2)
    assert b.share(["b"], [0, 1, 2], 6 + CLAIM_MS)
    assert b.claims.keys() == {0, 1, 2}
    assert not a.renew(6 + CLAIM_MS)
    assert a.claims == {}


def test_released_partition_is_free_at_once(store: Store, topic: Topic, source: Topics) -> None:
    a, b = (claiming(store, topic, source, node) for node in "ab")
    a.share(["a"], [0, 1, 2], 1)
    a.release()
    assert a.claims == {}
    assert b.share(["b"], [0, 1, 2], 1)
    assert b.claims.keys() == {0, 1, 2}


@pytest.mark.parametrize(("start", "position"), [("earliest", 3), ("latest", 10)])
def test_new_partition_begins_at_the_start_setting(
    store: Store, topic: Topic, source: Topics, start: Start, position: int
) -> None:
    source.first[1] = 3
    a = claiming(store, topic, source, "a", start)
    a.share(["a"], [1], 1)
    assert a.claims[1].position == position
    source.next[1] = 20
    a.release()
    b = claiming(store, topic, source, "b", start)
    b.share(["b"], [1], 2)
    assert b.claims[1].position == position


def test_deleted_records_are_skipped_and_logged(
    store: Store, topic: Topic, source: Topics, caplog: pytest.LogCaptureFixture
) -> None:
    a = claiming(store, topic, source, "a")
    a.share(["a"], [0, 1], 1)
    a.release()
    source.first[0] = 5
    a.share(["a"], [0, 1], 2)
    assert {each: claim.position for each, claim in a.claims.items()} == {0: 5, 1: 0}
    (said,) = caplog.messages
    assert said.startswith("5 records of partition 0, from offset 0 on, were deleted")
    positions = [account.position for account in store.input_accounts("pipe/in")]
    assert positions == [5, 0]
    assert a.renew(3)
    assert a.claims[0].position == 5


def test_records_deleted_under_a_claim_are_skipped(
    store: Store, topic: Topic, source: Topics, caplog: pytest.LogCaptureFixture
) -> None:
    a = claiming(store, topic, source, "a")
    a.share(["a"], [0, 1], 1)
    source.first[1] = 4
    a.skip_lost(2)
    a.skip_lost(3)
    assert {each: claim.position for each, claim in a.claims.items()} == {0: 0, 1: 4}
    assert len(caplog.messages) == 1


def test_a_partition_that_lost_its_end_is_refused(
    store: Store, topic: Topic, source: Topics
) -> None:
    claiming(store, topic, source, "a", "latest").share(["a"], [0, 1], 1)
    b = claiming(store, topic, source, "b")
    source.next[1] = 3
    b.share(["b"], [0, 1], 2 + CLAIM_MS)
    with pytest.raises(
        InvalidInput, match="ends at offset 3, and was taken in up to 10: its end was lost"
    ):
        b.skip_lost(2 + CLAIM_MS)


def test_added_partition_starts_at_its_first_record(
    store: Store, topic: Topic, source: Topics
) -> None:
    a = claiming(store, topic, source, "a", "latest")
    a.share(["a", "b"], source.partitions(), 1)
    assert {each: claim.position for each, claim in a.claims.items()} == {0: 10, 2: 10}
    source.first[3], source.next[3] = 0, 5
    b = claiming(store, topic, source, "b", "latest")
    b.share(["a", "b"], source.partitions(), 2)
    assert {each: claim.position for each, claim in b.claims.items()} == {1: 10, 3: 0}
