"""Fixtures: a real S3 server with a bucket."""

import itertools

import pytest

from chronoline_bench.servers.aws import S3Server

_prefixes = itertools.count()


@pytest.fixture
def s3(s3_server: S3Server, aws: None) -> S3Server:
    """A server with a bucket, and the environment that reaches it."""
    return s3_server


@pytest.fixture
def s3_url(s3: S3Server) -> str:
    """A prefix of the bucket for each test."""
    return s3.url("events", f"test {next(_prefixes)}/ä")
