"""The index on DynamoDB: the behaviour that the conformance suite does not cover."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

import pytest

from chronoline.core.errors import InvalidInput, SchemaTooNew, StoreClosed, StoreError
from chronoline.core.ids import ID_ENTROPY_BYTES, make_id
from chronoline.log.contract import Index, LogTopic, NewChunk
from chronoline.log.index.dynamodb import (
    DynamoDbIndex,
    create_table,
    table_definition,
    template,
)
from chronoline.log.index.dynamodb.address import Address, parse_address
from chronoline_bench.servers.aws import DynamoDBServer
from tests.log.index.dynamo import TABLE
from tests.log.index.steps import NOW, TOPIC, append, ends, fill, merge

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

WIDE = LogTopic(uid=1, name="wide", partitions=250)


@pytest.fixture
def index(dynamodb_url: str) -> Iterator[Index]:
    index = DynamoDbIndex(dynamodb_url)
    index.create_topic(TOPIC)
    index.create_topic(WIDE)
    yield index
    index.close()


# URLs


@pytest.mark.parametrize(
    ("url", "region", "endpoint"),
    [
        ("dynamodb://My_table-1.x", None, None),
        ("dynamodb://My_table-1.x/?region=eu-west-1", "eu-west-1", None),
        ("dynamodb://My_table-1.x?endpoint=http://127.0.0.1:8000", None, "http://127.0.0.1:8000"),
        ("dynamodb://My_table-1.x?region=r&endpoint=https%3A%2F%2Fh%3A1", "r", "https://h:1"),
    ],
)
def test_a_url_names_a_table(url: str, region: str | None, endpoint: str | None) -> None:
    assert parse_address(url) == Address(url, "My_table-1.x", region, endpoint)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("dynamodb:", "is no name"),
        ("dynamodb://ab", "is no name"),
        ("dynamodb://ta ble", "is no name"),
        ("dynamodb://table/path", "names no"),
        ("s3://table", "names no"),
        ("dynamodb://key:secret@table", "has credentials"),
        ("dynamodb://table?regoin=x", "not known: regoin"),
        ("dynamodb://table?region", "cannot be read"),
        ("dynamodb://table?endpoint=127.0.0.1:8000", "is no URL"),
        ("dynamodb://[table", "cannot be read"),
    ],
)
def test_url_without_a_table_is_refused(url: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        DynamoDbIndex(url)


# The table


def test_missing_table_error_names_the_remedy(dynamodb_server: DynamoDBServer, aws: None) -> None:
    url = dynamodb_server.url("nowhere")
    with pytest.raises(
        StoreError, match=r"no table 'nowhere'.*log init s3:.*--index 'dynamodb://nowhere"
    ):
        DynamoDbIndex(url)


def test_a_table_is_made_once(dynamodb_server: DynamoDBServer, aws: None) -> None:
    url = dynamodb_server.url("made")
    assert create_table(url)
    with_topic = DynamoDbIndex(url)
    with_topic.create_topic(TOPIC)
    assert not create_table(url)
    assert with_topic.list_topics() == [TOPIC]
    with_topic.close()


def test_table_from_the_template_works(
    dynamodb_server: DynamoDBServer, dynamodb_client: "DynamoDBClient", aws: None
) -> None:
    url = dynamodb_server.url("templated")
    (resource,) = json.loads(template(url))["Resources"].values()
    assert resource["Type"] == "AWS::DynamoDB::Table"
    assert resource["DeletionPolicy"] == "Retain"
    dynamodb_client.create_table(**resource["Properties"])
    for _ in range(2):
        index = DynamoDbIndex(url)
        assert index.list_topics() == []
        index.close()


def test_a_newer_table_is_refused(dynamodb_url: str, dynamodb_client: "DynamoDBClient") -> None:
    item = {"pk": {"S": "schema"}, "sk": {"S": "version"}, "version": {"N": "99"}}
    dynamodb_client.put_item(TableName=TABLE, Item=cast(Any, item))
    with pytest.raises(SchemaTooNew, match="version 99"):
        DynamoDbIndex(dynamodb_url)


def test_the_table_of_another_program_is_refused(
    dynamodb_server: DynamoDBServer,
    dynamodb_url: str,
    dynamodb_client: "DynamoDBClient",
) -> None:
    dynamodb_client.put_item(TableName=TABLE, Item={"pk": {"S": "mine"}, "sk": {"S": "mine"}})
    with pytest.raises(StoreError, match="another program's"):
        DynamoDbIndex(dynamodb_url)
    other: Any = table_definition("other-keys")
    for part in (*other["KeySchema"], *other["AttributeDefinitions"]):
        part["AttributeName"] += "2"
    dynamodb_client.create_table(**other)
    with pytest.raises(StoreError, match="refused a request to table 'other-keys'"):
        DynamoDbIndex(dynamodb_server.url("other-keys"))


# Opening and closing


def test_a_region_must_be_known(aws: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_REGION")
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    with pytest.raises(InvalidInput, match="names no region"):
        DynamoDbIndex("dynamodb://table")


def test_missing_credentials_are_reported(
    dynamodb_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    with pytest.raises(StoreError, match="no AWS credentials were found; set AWS_ACCESS_KEY_ID"):
        DynamoDbIndex(dynamodb_url)


def test_a_closed_index_says_so(index: Index) -> None:
    index.close()
    with pytest.raises(StoreClosed):
        append(index, "a", {0: 1})
    with pytest.raises(StoreClosed):
        index.list_topics()


def test_after_a_fork_it_must_be_opened_again(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(StoreError, match="opened before a fork"):
        index.list_topics()


def test_a_missing_driver_is_answered_with_the_command() -> None:
    script = "import sys; sys.modules['botocore'] = None; import chronoline.log.index.dynamodb"
    done = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True
    )
    assert "MissingExtra" in done.stderr
    assert "pip install 'chronoline[aws]'" in done.stderr


# More than a transaction takes


def test_a_commit_of_more_chunks_than_fit_is_refused(index: Index) -> None:
    assert index.max_chunks_per_commit == 45
    with pytest.raises(InvalidInput, match="46 chunks"):
        append(index, "a", dict.fromkeys(range(46), 1), topic_uid=WIDE.uid)
    assert set(ends(index, WIDE.uid)) == {(0, 0)}
    assert index.sweep(["a"], now_ms=NOW) == ["a"]
    with pytest.raises(InvalidInput, match="46 chunks"):
        index.replace(TOPIC.uid, 0, [fill(index, 1)[0]] * 46, "merged", cast(Any, None))


def test_replace_and_trim_keep_to_the_transaction_limit(index: Index) -> None:
    chunks = fill(index, 90)
    assert merge(index, chunks[:45], "merged")
    assert len(index.unreferenced(100)) == 45
    assert index.trim(TOPIC.uid, 0, before_sequence=90) == 45 + 44
    assert index.trim(TOPIC.uid, 0, before_sequence=90) == 1
    names = index.unreferenced(100)
    assert len(names) == 91
    index.forget(names)
    assert index.unreferenced(100) == []
    assert ends(index)[0] == (90, 90)


def test_holds_may_exceed_one_transaction(index: Index) -> None:
    wanted = list(range(WIDE.partitions))
    holds = index.hold("g", WIDE.uid, wanted, "a", until_ms=NOW + 10, now_ms=NOW)
    assert [hold.partition for hold in holds] == wanted
    renewed = index.renew(holds, until_ms=NOW + 20, now_ms=NOW)
    assert [hold.until_ms for hold in renewed] == [NOW + 20] * len(wanted)
    index.let_go(holds[:-1])
    states = index.groups(WIDE.uid)
    assert [state.holder for state in states] == [None] * (len(wanted) - 1) + ["a"]
    index.seek("g", WIDE.uid, {partition: 1 + partition for partition in wanted})
    states = index.groups(WIDE.uid)
    assert [state.sequence for state in states] == [1 + partition for partition in wanted]
    assert {state.holder for state in states} == {None}


def test_sweep_may_exceed_one_transaction(index: Index) -> None:
    append(index, "o120", {0: 1})
    names = [f"o{number}" for number in range(250)]
    assert index.sweep([*names, "o3"], now_ms=NOW) == [*names[:120], *names[121:], "o3"]


def test_dead_members_are_forgotten_in_parts(index: Index) -> None:
    for number in range(110):
        index.join("g", TOPIC.uid, f"m{number}", until_ms=NOW + 1, now_ms=NOW)
    for _ in range(2):
        assert index.join("g", TOPIC.uid, "a", until_ms=NOW + 9, now_ms=NOW + 2) == ["a"]


def test_sequence_at_a_time_is_found_among_many_chunks(index: Index) -> None:
    fill(index, 40, events=3)  # at NOW, NOW + 1, …
    found = [index.sequence_at(TOPIC.uid, 0, NOW + at) for at in range(41)]
    assert found == [3 * at for at in range(41)]


# A table of an earlier version


def test_names_without_a_gone_entry_are_forgotten(
    index: Index, dynamodb_client: "DynamoDBClient"
) -> None:
    names = [make_id(NOW, bytes([number] * ID_ENTROPY_BYTES)) for number in range(3)]
    index.sweep(names, now_ms=NOW)
    for name in names:
        key: Any = {"pk": {"S": "gone"}, "sk": {"S": name}}
        dynamodb_client.delete_item(TableName=TABLE, Key=key)
    index.raise_floor(make_id(NOW + 1, bytes(ID_ENTROPY_BYTES)))
    assert index.forget_names(10) == 3
    assert [index.was_committed(name) for name in names] == [None] * 3


def test_table_of_version_1_is_upgraded(
    index: Index, dynamodb_url: str, dynamodb_client: "DynamoDBClient"
) -> None:
    index.tie("log")
    key: Any = {"pk": {"S": "schema"}, "sk": {"S": "version"}}
    item: Any = key | {"version": {"N": "1"}, "log_id": {"S": "log"}}
    dynamodb_client.put_item(TableName=TABLE, Item=item)
    DynamoDbIndex(dynamodb_url).close()
    found = dynamodb_client.get_item(TableName=TABLE, Key=key)["Item"]
    assert found == item | {"version": {"N": "2"}}


def test_a_commit_to_many_new_topics_makes_their_heads(index: Index) -> None:
    topics = [LogTopic(uid=100 + n, name=f"n{n}", partitions=1) for n in range(45)]
    for topic in topics:
        index.create_topic(topic)
    chunks = [NewChunk(topic.uid, 0, 2, 8, 10) for topic in topics]
    assert index.commit("a", chunks, now_ms=NOW) == [0] * 45
    assert index.commit("b", chunks, now_ms=NOW) == [2] * 45
