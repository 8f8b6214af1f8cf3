"""The index on DynamoDB: lost answers, refusals, servers that are gone, and changes seen in the middle."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, cast

import pytest

from chronoline.core.errors import OutcomeUnknown, StoreBusy, StoreError, StoreUnavailable
from chronoline.log.contract import AppendNotice, Index
from chronoline.log.index.dynamodb import DynamoDbIndex, create_table
from chronoline.log.index.dynamodb import table as table_module
from chronoline.log.index.dynamodb.items import chunk_key, encode_key
from chronoline_bench.servers.aws import DynamoDBServer
from tests.log.index.dynamo import (
    TABLE,
    Call,
    Line,
    answer_lost,
    cancelled,
    no_fault,
    refused,
    request_lost,
)
from tests.log.index.steps import NOW, TOPIC, all_chunks, append, ends, fill, held, merge, take

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

TRANSACTION = "transact_write_items"
ALWAYS = 10_000

Fault = Callable[[Call], Any]


@pytest.fixture
def line(dynamodb_client: "DynamoDBClient") -> Line:
    return Line(dynamodb_client)


@pytest.fixture
def index(dynamodb_url: str, line: Line) -> Index:
    """On a line that fails on demand; others share it, so it stays open."""
    index = DynamoDbIndex(dynamodb_url, client=cast("DynamoDBClient", line))
    index.create_topic(TOPIC)
    return index


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    # No setting: the test does not wait for the usual time.
    monkeypatch.setattr(table_module, "_PATIENCE_S", 0.1)


# Concurrent changes


def test_empty_table_can_be_opened_twice_at_once(dynamodb_url: str, line: Line) -> None:
    def after_another(call: Call) -> Any:
        DynamoDbIndex(dynamodb_url).close()
        return call()

    line.faults["scan"] = [after_another]
    index = DynamoDbIndex(dynamodb_url, client=cast("DynamoDBClient", line))
    assert index.list_topics() == []


def test_progress_during_a_takeover_is_kept(index: Index, line: Line, dynamodb_url: str) -> None:
    """The clock of the holder is slow: its hold still lives when the other process sees its end."""
    fill(index, 9)
    slow = held(take(index, "slow", until_ms=NOW + 10))
    other = DynamoDbIndex(dynamodb_url)

    def after_progress(call: Call) -> Any:
        assert other.progress(slow, 5, now_ms=NOW + 9) is not None
        return call()

    line.faults[TRANSACTION] = [after_progress]
    assert held(take(index, "quick", now_ms=NOW + 10)).sequence == 5
    assert [state.sequence for state in index.groups(TOPIC.uid)] == [5]
    other.close()


def test_notice_end_does_not_cover_concurrently_untold_events(
    index: Index, line: Line, dynamodb_url: str
) -> None:
    append(index, "a", {0: 5})
    notice = index.begin_notice(TOPIC.uid, 0, max_latency_ms=100, now_ms=NOW)
    assert isinstance(notice, AppendNotice)
    other = DynamoDbIndex(dynamodb_url)

    def after_the_end(call: Call) -> Any:
        assert other.end_notice(notice, now_ms=NOW + 1) is None
        return call()

    line.faults["update_item"] = [no_fault, after_the_end]
    index.untell(TOPIC.uid, 0, sequence=3)
    assert index.untold(TOPIC.uid) == [0]
    line.faults["update_item"] = [answer_lost, answer_lost]
    index.untell(TOPIC.uid, 0, sequence=2)
    assert index.untold(TOPIC.uid) == [0]
    other.close()


# Lost answers


@pytest.mark.parametrize("fault", [answer_lost, request_lost])
@pytest.mark.parametrize("times", [1, 3])
def test_unanswered_commit_is_settled(index: Index, line: Line, fault: Fault, times: int) -> None:
    append(index, "before", {0: 3})
    line.faults[TRANSACTION] = [fault] * times
    assert append(index, "a", {0: 2, 1: 1}) == [3, 0]
    assert append(index, "a", {0: 2, 1: 1}) == [3, 0]
    assert ends(index)[:2] == [(0, 5), (0, 1)]
    assert [chunk.object_name for chunk in all_chunks(index)] == ["before", "a"]


@pytest.mark.parametrize(("fault", "first"), [(answer_lost, 0), (request_lost, 1)])
@pytest.mark.usefixtures("impatient")
def test_never_answered_commit_is_settled_by_its_name(
    index: Index, line: Line, fault: Fault, first: int
) -> None:
    line.faults[TRANSACTION] = [fault] * ALWAYS
    with pytest.raises(OutcomeUnknown, match="did not answer"):
        append(index, "a", {0: 1})
    line.faults.clear()
    append(index, "another", {0: 1})
    assert append(index, "a", {0: 1}) == [first]
    assert append(index, "a", {0: 1}) == [first]
    assert ends(index)[0] == (0, 2)


def test_commit_overtaken_by_itself_is_unknown(index: Index, line: Line) -> None:
    line.faults[TRANSACTION] = [answer_lost, cancelled("ConditionalCheckFailed")]
    with pytest.raises(OutcomeUnknown):
        append(index, "a", {0: 1})
    assert append(index, "a", {0: 1}) == [0]
    assert ends(index)[0] == (0, 1)


def test_server_error_after_a_commit_is_settled(index: Index, line: Line) -> None:
    def failed(call: Call) -> Any:
        call()
        refused("InternalServerError", status=500)(call)

    line.faults[TRANSACTION] = [failed]
    assert append(index, "a", {0: 1}) == [0]
    assert ends(index)[0] == (0, 1)


def test_progress_that_was_not_answered_is_noted_once(index: Index, line: Line) -> None:
    fill(index, 5)
    hold = held(take(index, "a"))
    line.faults["update_item"] = [answer_lost]
    assert index.progress(hold, 3, now_ms=NOW) == hold._replace(sequence=3)
    line.faults[TRANSACTION] = [answer_lost]
    assert index.renew([hold], until_ms=NOW + 200, now_ms=NOW) != []
    line.faults[TRANSACTION] = [answer_lost]
    index.let_go([hold])
    assert [(state.holder, state.sequence) for state in index.groups(TOPIC.uid)] == [(None, 3)]


def test_unanswered_notice_is_unknown_and_lapses(index: Index, line: Line) -> None:
    def begin(now_ms: int) -> AppendNotice | int | None:
        return index.begin_notice(TOPIC.uid, 0, max_latency_ms=100, now_ms=now_ms)

    append(index, "a", {0: 1})
    line.faults["update_item"] = [answer_lost]
    with pytest.raises(OutcomeUnknown):
        begin(NOW)
    assert begin(NOW + 1) == NOW + 100
    notice = begin(NOW + 100)
    assert isinstance(notice, AppendNotice)
    line.faults["update_item"] = [answer_lost]
    with pytest.raises(OutcomeUnknown):
        index.end_notice(notice, now_ms=NOW + 101)
    assert index.untold(TOPIC.uid) == []


def test_upkeep_that_was_not_answered_is_done_once(index: Index, line: Line) -> None:
    chunks = fill(index, 4)
    line.faults[TRANSACTION] = [answer_lost]
    assert merge(index, chunks[:2], "merged")
    line.faults[TRANSACTION] = [answer_lost]
    assert index.trim(TOPIC.uid, 0, before_sequence=3) == 3
    line.faults[TRANSACTION] = [answer_lost]
    assert index.sweep(["orphan", "o3"], now_ms=NOW) == ["orphan"]
    assert index.unreferenced(10) == ["merged", "o0", "o1", "o2"]
    line.faults[TRANSACTION] = [answer_lost]
    index.forget(["o1", "merged"])
    assert index.unreferenced(10) == ["o0", "o2"]


# Conflicts and throttling


@pytest.mark.parametrize(
    "reason", ["TransactionConflict", "ConditionalCheckFailed", "ThrottlingError"]
)
def test_overtaken_change_reads_again(index: Index, line: Line, reason: str) -> None:
    line.faults[TRANSACTION] = [cancelled(reason)] * 3
    assert append(index, "a", {0: 1}) == [0]
    line.faults[TRANSACTION] = [cancelled(reason)]
    assert held(take(index, "a")).fence == 1


@pytest.mark.usefixtures("impatient")
def test_always_overtaken_change_is_busy(index: Index, line: Line) -> None:
    line.faults[TRANSACTION] = [cancelled("TransactionConflict")] * ALWAYS
    with pytest.raises(StoreBusy, match="others change the same items"):
        append(index, "a", {0: 1})
    line.faults.clear()
    assert ends(index)[0] == (0, 0)
    assert index.sweep(["a"], now_ms=NOW) == ["a"]


@pytest.mark.usefixtures("impatient")
def test_throttled_request_is_retried(index: Index, line: Line) -> None:
    busy = refused("ThrottlingException")
    line.faults = {"query": [busy] * 2, "batch_get_item": [busy], TRANSACTION: [busy]}
    assert index.list_topics() == [TOPIC]
    assert append(index, "a", {0: 1}) == [0]
    hold = held(take(index, "a"))
    line.faults["update_item"] = [refused("TransactionConflictException")] * 2
    assert index.progress(hold, 1, now_ms=NOW) is not None
    line.faults["query"] = [busy] * ALWAYS
    with pytest.raises(StoreBusy, match="overloaded"):
        index.list_topics()


def test_unprocessed_items_are_requested_again(index: Index, line: Line) -> None:
    fill(index, 1)
    append(index, "a", {1: 5, 2: 7})

    def half(call: Call) -> Any:
        answer = call()
        items = answer["Responses"][TABLE]
        left = [{"pk": item["pk"], "sk": item["sk"]} for item in items[1:]]
        return answer | {
            "Responses": {TABLE: items[:1]},
            "UnprocessedKeys": {TABLE: {"Keys": left}},
        }

    line.faults["batch_get_item"] = [half, half]
    assert append(index, "b", {0: 1, 1: 1, 2: 1}) == [1, 5, 7]


def test_permanent_refusal_is_not_retried(index: Index, line: Line) -> None:
    line.faults = {
        "query": [refused("AccessDeniedException")],
        TRANSACTION: [cancelled("ValidationError")],
    }
    with pytest.raises(StoreError, match="AccessDeniedException"):
        index.list_topics()
    with pytest.raises(StoreError, match="TransactionCanceledException"):
        append(index, "a", {0: 1})
    assert append(index, "a", {0: 1}) == [0]


# Unreachable servers


def test_unreachable_endpoint_is_named(aws: None) -> None:
    url = "dynamodb://table?region=us-east-1&endpoint=http://127.0.0.1:1"
    for action in (DynamoDbIndex, create_table):
        with pytest.raises(StoreUnavailable, match=r"cannot be reached.*127\.0\.0\.1:1/"):
            action(url)


@pytest.fixture
def own_server(aws: None) -> Iterator[DynamoDBServer]:
    with DynamoDBServer() as server:
        yield server


def test_a_server_that_hangs_or_is_gone(
    own_server: DynamoDBServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = own_server.url(TABLE)
    create_table(url)
    # No setting: the test does not wait for the usual time.
    monkeypatch.setattr(table_module, "_READ_TIMEOUT_S", 2)
    index = DynamoDbIndex(url)
    index.create_topic(TOPIC)
    append(index, "a", {0: 1})
    hold = held(take(index, "a"))
    monkeypatch.setattr(table_module, "_PATIENCE_S", 0.1)
    own_server.pause()
    with pytest.raises(StoreUnavailable, match="did not answer"):
        index.list_topics()
    with pytest.raises(OutcomeUnknown, match="did not answer"):
        index.progress(hold, 1, now_ms=NOW)
    own_server.resume()
    assert append(index, "b", {0: 1}) == [1]
    own_server.kill()
    # A connection that was open may break while it is used: that is doubt. A new one is refused.
    with pytest.raises((StoreUnavailable, OutcomeUnknown)):
        index.progress(hold, 1, now_ms=NOW)
    with pytest.raises(StoreUnavailable, match="nothing was changed"):
        index.progress(hold, 1, now_ms=NOW)
    with pytest.raises(StoreUnavailable, match="nothing was changed"):
        append(index, "c", {0: 1})
    index.close()


# A transaction under way, of which one item is seen and another not yet


class Hidden:
    """Hides an item, as if it were not written yet, and restores it."""

    def __init__(self, client: "DynamoDBClient", first_sequence: int) -> None:
        self._client = client
        self._key = cast(Any, encode_key(chunk_key(TOPIC.uid, 0, first_sequence)))
        self.item = client.get_item(TableName=TABLE, Key=self._key)["Item"]
        client.delete_item(TableName=TABLE, Key=self._key)

    def bring_back(self) -> None:
        self._client.put_item(TableName=TABLE, Item=cast(Any, self.item))


def firsts(index: Index, from_sequence: int, limit: int = 10) -> list[int]:
    chunks = index.chunks(TOPIC.uid, 0, from_sequence=from_sequence, limit=limit)
    return [chunk.first_sequence for chunk in chunks]


def test_chunks_end_before_an_invisible_one(
    index: Index, dynamodb_client: "DynamoDBClient"
) -> None:
    fill(index, 4, events=2)
    Hidden(dynamodb_client, 4)
    assert firsts(index, 0) == [0, 2]
    assert firsts(index, 3) == [2]


@pytest.mark.parametrize("from_sequence", [0, 2, 3])
def test_invisible_chunk_is_not_skipped(
    index: Index, line: Line, dynamodb_client: "DynamoDBClient", from_sequence: int
) -> None:
    fill(index, 4, events=2)
    hidden = Hidden(dynamodb_client, from_sequence // 2 * 2)

    def bring_back(call: Call) -> Any:
        hidden.bring_back()
        return call()

    line.faults["query"] = [no_fault] * 5 + [bring_back]
    assert firsts(index, from_sequence, limit=1) == [from_sequence // 2 * 2]
    assert not line.faults["query"]


@pytest.mark.usefixtures("impatient")
def test_trim_stops_before_an_invisible_chunk(
    index: Index, dynamodb_client: "DynamoDBClient"
) -> None:
    fill(index, 4, events=2)
    middle = Hidden(dynamodb_client, 4)
    assert index.trim(TOPIC.uid, 0, before_sequence=8) == 4
    with pytest.raises(StoreBusy):
        index.trim(TOPIC.uid, 0, before_sequence=8)
    middle.bring_back()
    assert index.trim(TOPIC.uid, 0, before_sequence=8) == 4
    assert ends(index)[0] == (8, 8)


@pytest.mark.usefixtures("impatient")
def test_replaced_chunk_that_is_still_visible_is_omitted(
    index: Index, dynamodb_client: "DynamoDBClient"
) -> None:
    chunks = fill(index, 4, events=2)
    old = Hidden(dynamodb_client, 2)
    old.bring_back()
    assert merge(index, chunks[:3], "merged")
    old.bring_back()
    assert firsts(index, 0) == [0, 6]
    with pytest.raises(StoreBusy):
        firsts(index, 4)  # it lies in the merged chunk, which the old one hides
    Hidden(dynamodb_client, 2)
    assert firsts(index, 4) == [0, 6]
