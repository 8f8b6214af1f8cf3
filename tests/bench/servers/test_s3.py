"""The S3 server: start, stop, crash and hang on demand."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import boto3
import psutil  # type: ignore[import-untyped]  # it ships no types
import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from chronoline.core.errors import ChronolineError
from chronoline.log.objects.address import BucketAddress
from chronoline_bench.servers.aws import S3Server

# Starts a server, prints its address and process id, survives the exit of a fork, and waits to be killed.
OWNER = """
import os, sys
from chronoline_bench.servers.aws import S3Server

server = S3Server()
server.start()
if os.fork() == 0:
    sys.exit()
os.wait()
server.create_bucket("after-the-fork")
server.pause()
print(server.pid, flush=True)
sys.stdin.readline()
"""


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


def client(server: S3Server) -> Any:
    given = server.environment
    return boto3.client(
        "s3",
        endpoint_url=server.endpoint,
        region_name=given["AWS_REGION"],
        aws_access_key_id=given["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=given["AWS_SECRET_ACCESS_KEY"],
        config=Config(connect_timeout=10, read_timeout=10, retries={"total_max_attempts": 1}),
    )


def is_over(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


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


def test_restart_is_empty_on_the_same_port(server: S3Server) -> None:
    server.create_bucket("bucket-4")
    endpoint, pid = server.endpoint, server.pid
    server.start()
    assert server.pid == pid
    server.stop()
    server.stop()
    assert server.pid is None
    with pytest.raises(BotoCoreError):
        client(server).list_buckets()
    server.start()
    assert server.endpoint == endpoint
    assert client(server).list_buckets()["Buckets"] == []


def test_server_can_be_killed_and_paused(server: S3Server) -> None:
    process = psutil.Process(server.pid)
    server.pause()
    with pytest.raises(BotoCoreError):
        client(server).list_buckets()
    server.resume()
    client(server).list_buckets()
    server.pause()
    server.kill()
    server.kill()
    assert is_over(process)
    server.start()
    client(server).list_buckets()


def test_calls_before_the_start_are_harmless() -> None:
    server = S3Server()
    server.stop()
    server.kill()
    server.pause()
    server.resume()
    assert server.pid is None


def test_taken_port_is_left_to_its_owner() -> None:
    server = S3Server()
    taken = urlsplit(server.endpoint).port
    with socket.socket() as other:
        other.bind(("127.0.0.1", taken))
        other.listen()
        with server:
            assert urlsplit(server.endpoint).port != taken
            server.create_bucket("bucket")
    endpoint = server.endpoint
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", urlsplit(endpoint).port))
        other.listen()
        with pytest.raises(ChronolineError, match=r"did not start(.|\n)*in use"):
            server.start()
    assert server.endpoint == endpoint


def test_server_ends_with_its_parent() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout
        server = psutil.Process(int(owner.stdout.readline()))
        owner.kill()
    give_up = time.monotonic() + 60
    while not is_over(server):
        assert time.monotonic() < give_up, "the server outlives its owner"
        time.sleep(0.01)
