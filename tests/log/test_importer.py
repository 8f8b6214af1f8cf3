"""A log of one object per event is imported once with its sequences, also after interruptions."""

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import boto3
import obstore
import pytest

from chronoline.core.errors import InvalidInput, StoreUnavailable
from chronoline.log import Imported, Log, import_events, importer
from chronoline.log.objects.address import BucketAddress
from chronoline.log.objects.clients import open_client
from chronoline_bench.servers.aws import DynamoDBServer, S3Server

HOLES = {("0", 2), ("3", 0)}
ENDS = {"0": 6, "1": 0, "3": 1200}


def value(partition: str, sequence: int) -> bytes:
    return f"{partition}-{sequence}".encode()


def written(partition: str, end: int) -> dict[int, bytes]:
    return {n: value(partition, n) for n in range(end) if (partition, n) not in HOLES}


class Old:
    """A log as the layout has it, in a folder, and its tables in files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.table = folder / "partitions.json"
        self.consumers = folder / "consumers.json"

    @property
    def url(self) -> str:
        return self.folder.as_uri()

    def write(self, ends: Mapping[str, int] = ENDS) -> None:
        for partition, end in ends.items():
            place = self.folder / "events" / partition
            place.mkdir(parents=True, exist_ok=True)
            for number, data in written(partition, end).items():
                (place / str(number)).write_bytes(data)
        self.write_table(ends)

    def write_table(self, ends: Mapping[str, int]) -> None:
        items = [{"partitionId": each, "sequenceNumber": end} for each, end in ends.items()]
        self.table.write_text("\n".join(map(json.dumps, items)))

    def bring(self, log: Log, **more: Any) -> Imported:
        return import_events(log, "old", self.url, table=str(self.table), **more)


@pytest.fixture
def old(tmp_path: Path) -> Old:
    old = Old(tmp_path / "safe")
    old.write()
    return old


def check_all(log: Log, ends: Mapping[str, int] = ENDS) -> None:
    for partition, end in ends.items():
        events = list(log.read("old", partition=int(partition), follow=False))
        assert [event.sequence for event in events] == list(range(end))
        expected = written(partition, end)
        assert {each.sequence: each.value for each in events if each.value} == expected
        missing = [each.headers for each in events if each.value is None]
        assert missing == [(importer.MISSING,)] * (end - len(expected))


def test_every_event_keeps_its_partition_and_sequence(log: Log, old: Old) -> None:
    counts: list[int] = []
    done = old.bring(log, progress=counts.append)
    assert done == Imported(events=1206, missing=2, partitions=3, groups=0)
    assert sum(counts) == 1206
    assert len(log.heads("old")) == 4
    check_all(log)
    stat = (old.folder / "events" / "0" / "1").stat()
    (event, *_) = [e for e in log.read("old", partition=0, follow=False) if e.sequence == 1]
    assert event.ts == stat.st_mtime_ns // 1_000_000


def test_repeated_import_adds_only_new_events(log: Log, old: Old) -> None:
    old.bring(log)
    counts: list[int] = []
    assert old.bring(log, progress=counts.append).events == 0
    assert sum(counts) == 1206
    log.retain("old", max_bytes=0)
    log.sweep(grace_ms=0)
    assert old.bring(log).events == 0
    grown = ENDS | {"0": 9}
    old.write(grown)
    assert old.bring(log).events == 3
    assert log.heads("old")[0].next_sequence == 9


@pytest.mark.parametrize("lost", [True, False])
def test_an_import_that_was_broken_off_goes_on(
    log: Log, old: Old, monkeypatch: pytest.MonkeyPatch, lost: bool
) -> None:
    append_once = log.append_once
    calls: list[str] = []

    def die(topic: str, packed: Any, *, key: str, **more: Any) -> None:
        calls.append(key)
        if len(calls) < 2 or lost:
            append_once(topic, packed, key=key, **more)
        if len(calls) == 2:
            raise StoreUnavailable

    with monkeypatch.context() as patch:
        patch.setattr(log, "append_once", die)
        with pytest.raises(StoreUnavailable):
            old.bring(log)
    assert old.bring(log).events > 0
    check_all(log)


def test_two_imports_at_once_add_everything_once(log: Log, old: Old) -> None:
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda _: old.bring(log), range(2)))
    check_all(log)


def test_numbers_may_begin_with_1(log: Log, old: Old) -> None:
    place = old.folder / "events" / "0"
    (place / "6").write_bytes(b"last")
    (place / "0").unlink()
    old.bring(log)
    events = list(log.read("old", partition=0, follow=False))
    assert [each.value for each in events][::6] == [None, b"last"]


def test_consumers_become_groups_that_go_on(log: Log, old: Old) -> None:
    items = [
        {"consumerId": "billing", "partitionId": "0", "sequenceNumber": "4"},
        {"consumerId": "billing", "partitionId": "3", "sequenceNumber": 9_999},
    ]
    old.consumers.write_text("\n".join(map(json.dumps, items)))
    assert old.bring(log, consumers=str(old.consumers)).groups == 1
    assert [each.value for each in log.read("old", group="billing", follow=False)] == [
        b"0-4",
        b"0-5",
    ]
    assert old.bring(log, consumers=str(old.consumers)).groups == 0
    assert list(log.read("old", group="billing", follow=False)) == []


def test_other_ids_are_numbered_by_their_order(log: Log, tmp_path: Path) -> None:
    old = Old(tmp_path / "named")
    old.write({"b": 2, "a": 3})
    old.bring(log)
    assert [head.next_sequence for head in log.heads("old")] == [3, 2]


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ("", "no partitions"),
        ("{", "cannot be read"),
        ('{"partitionId": "../x", "sequenceNumber": 1}', "partitionId"),
        ('{"partitionId": "0"}', "sequenceNumber"),
        ('{"partitionId": "0", "sequenceNumber": -1}', "sequenceNumber"),
        ("[]", "partitionId"),
    ],
)
def test_invalid_table_is_refused(log: Log, old: Old, table: str, problem: str) -> None:
    old.table.write_text(table)
    with pytest.raises(InvalidInput, match=problem):
        old.bring(log)
    assert [topic.name for topic in log.topics()] == ["t"]


def test_partition_that_is_not_there_is_refused(log: Log, old: Old) -> None:
    old.write_table({**ENDS, "7": 3})
    with pytest.raises(InvalidInput, match="partition '7', whose next event is 3"):
        old.bring(log)
    old.write_table(ENDS)
    item = {"consumerId": "billing", "partitionId": "gone", "sequenceNumber": 1}
    old.consumers.write_text(json.dumps(item))
    with pytest.raises(InvalidInput, match="progress of 'billing' in the partition 'gone'"):
        old.bring(log, consumers=str(old.consumers))
    assert "old" not in [topic.name for topic in log.topics()]


def test_a_topic_with_other_events_is_refused(log: Log, old: Old) -> None:
    log.create_topic("old", partitions=4)
    log.append("old", value=b"mine", partition=3)
    with pytest.raises(InvalidInput, match="other events in partition 3"):
        old.bring(log)
    assert [head.next_sequence for head in log.heads("old")] == [0, 0, 0, 1]
    log.delete_topic("old")
    log.create_topic("old", partitions=5)
    with pytest.raises(InvalidInput, match="has 5 partitions"):
        old.bring(log)


def test_a_folder_that_is_not_there_is_refused(log: Log, old: Old) -> None:
    with pytest.raises(InvalidInput, match="there is no folder"):
        import_events(log, "old", f"{old.url}/nothing", table=str(old.table))
    assert "old" not in [each.name for each in log.topics()]


@pytest.mark.usefixtures("aws")
def test_from_a_bucket_and_its_tables(
    log: Log, s3_server: S3Server, dynamodb_server: DynamoDBServer
) -> None:
    ends = {"0": 6, "1": 3}
    s3_server.create_bucket("old-log")
    url = s3_server.url("old-log", "safe")
    store = open_client(BucketAddress.parse(url), 10)
    for partition, end in ends.items():
        for number, data in written(partition, end).items():
            obstore.put(store, f"events/{partition}/{number}", data)
    client = boto3.client(
        "dynamodb",
        endpoint_url=dynamodb_server.endpoint,
        region_name="us-east-1",
        aws_access_key_id="chronoline",
        aws_secret_access_key="chronoline",
    )
    client.create_table(
        TableName="old-partitions",
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": "partitionId", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "partitionId", "KeyType": "HASH"}],
    )
    for partition, end in ends.items():
        item = {"partitionId": {"S": partition}, "sequenceNumber": {"N": str(end)}}
        client.put_item(TableName="old-partitions", Item=item)
    client.close()
    table = dynamodb_server.url("old-partitions")
    assert import_events(log, "old", url, table=table).events == 9
    check_all(log, ends)
    assert import_events(log, "old", url, table=table).events == 0
