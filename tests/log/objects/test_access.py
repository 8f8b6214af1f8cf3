"""TLS and credentials towards S3: a server that demands both."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest

from chronoline.core.errors import StoreError
from chronoline.log.objects.remote import RemoteObjects
from chronoline_bench.servers.aws import REGION, S3Server
from tests.certificates import Authority
from tests.conftest import running

_ALL = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def guarded(authority: Authority, aws: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """A server with one user, whose credentials are in the environment, as its authority is."""
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    monkeypatch.setenv("AWS_CA_BUNDLE", str(authority.file))
    for server in running(S3Server(authority.issue("s3"))):
        at = {"endpoint_url": server.endpoint, "region_name": REGION}
        boto3.client("s3", **at).create_bucket(Bucket="events")  # type: ignore[call-overload]  # by name
        users = boto3.client("iam", **at)  # type: ignore[call-overload]  # as above
        users.create_user(UserName="log")
        users.put_user_policy(UserName="log", PolicyName="all", PolicyDocument=json.dumps(_ALL))
        key = users.create_access_key(UserName="log")["AccessKey"]
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", key["AccessKeyId"])
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", key["SecretAccessKey"])
        server.check_credentials(True)
        yield server


def _write(server: S3Server) -> None:
    objects = RemoteObjects(server.url("events"))
    try:
        objects.put("a", b"x")
        assert objects.get("a", 0, 1) == b"x"
    finally:
        objects.close()


def test_objects_are_written_with_credentials_over_tls(guarded: S3Server) -> None:
    assert guarded.endpoint.startswith("https://")
    _write(guarded)


def test_wrong_credentials_and_unknown_authority_are_clear(
    guarded: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as changed:
        changed.setenv("AWS_SECRET_ACCESS_KEY", "wr0ng-s3cret")
        with pytest.raises(StoreError, match="check the credentials") as refused:
            _write(guarded)
        assert "wr0ng-s3cret" not in str(refused.value)
        assert "\n" not in str(refused.value)
    with monkeypatch.context() as changed:
        other = Authority(tmp_path, "other")
        changed.setenv("SSL_CERT_FILE", str(other.file))
        with pytest.raises(StoreError, match="certificate") as refused:
            _write(guarded)
        assert "\n" not in str(refused.value)
