"""The S3 server of the tests. `tests.runtime.test_child_process` has the rules that all servers share."""

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from chronoline.core.errors import ChronolineError
from chronoline.log.objects.address import BucketAddress
from chronoline_bench.servers.aws import S3Server


@pytest.fixture(scope="module")
def shared() -> Iterator[S3Server]:
    with S3Server() as server:
        yield server


@pytest.fixture
def server(shared: S3Server) -> S3Server:
    """A running server, started again if the test before stopped it."""
    shared.resume()
    shared.start()
    return shared


def client(server: S3Server, *, patience_s: float = 10) -> Any:
    given = server.environment
    return boto3.client(
        "s3",
        endpoint_url=server.endpoint,
        region_name=given["AWS_REGION"],
        aws_access_key_id=given["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=given["AWS_SECRET_ACCESS_KEY"],
        config=Config(
            connect_timeout=patience_s, read_timeout=patience_s, retries={"total_max_attempts": 1}
        ),
    )


def test_objects_are_kept_and_created_once(server: S3Server) -> None:
    server.create_bucket("bucket")
    client(server).put_object(Bucket="bucket", Key="a", Body=b"one", IfNoneMatch="*")
    with pytest.raises(ClientError, match="PreconditionFailed"):
        client(server).put_object(Bucket="bucket", Key="a", Body=b"two", IfNoneMatch="*")
    answer = client(server).get_object(Bucket="bucket", Key="a", Range="bytes=1-2")
    assert answer["Body"].read() == b"ne"


def test_a_bucket_has_a_url(server: S3Server) -> None:
    url = server.create_bucket("bucket-2")
    assert server.create_bucket("bucket-2") == url
    assert BucketAddress.parse(url).endpoint == server.endpoint
    assert BucketAddress.parse(server.url("bucket-2", "a b/ä")).prefix == "a b/ä"
    with pytest.raises(ChronolineError, match="InvalidBucketName"):
        server.create_bucket("B")


def test_it_can_refuse_credentials(server: S3Server) -> None:
    server.create_bucket("bucket-3")
    server.check_credentials(True)
    with pytest.raises(ClientError, match="InvalidAccessKeyId"):
        client(server).list_objects_v2(Bucket="bucket-3")
    server.check_credentials(False)
    client(server).list_objects_v2(Bucket="bucket-3")


def test_killed_server_starts_empty_on_the_same_port(server: S3Server) -> None:
    server.create_bucket("bucket-4")
    endpoint = server.endpoint
    server.pause()
    with pytest.raises(BotoCoreError):
        client(server, patience_s=1).list_buckets()
    server.kill()
    with pytest.raises(BotoCoreError):
        client(server).list_buckets()
    server.start()
    assert server.endpoint == endpoint
    assert client(server).list_buckets()["Buckets"] == []
