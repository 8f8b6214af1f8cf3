"""Making a bucket."""

from dataclasses import replace
from pathlib import Path

import boto3
import pytest
from botocore.exceptions import ClientError

from chronoline.core.errors import ChronolineError, InvalidInput, StoreError, StoreUnavailable
from chronoline.log.objects import aws
from chronoline.log.objects.address import BucketAddress
from chronoline.log.objects.aws import make_bucket, open_session
from chronoline_bench.servers.aws import S3Server


@pytest.fixture
def address(s3: S3Server) -> BucketAddress:
    return BucketAddress(scheme="s3", bucket="made", endpoint=s3.endpoint)


def region_of(s3: S3Server, bucket: str) -> str | None:
    client = boto3.client("s3", endpoint_url=s3.endpoint)
    answer = client.get_bucket_location(Bucket=bucket)["LocationConstraint"]
    return None if answer is None else str(answer)


def test_a_bucket_is_made_once(s3: S3Server, address: BucketAddress) -> None:
    make_bucket(address)
    make_bucket(address)
    assert region_of(s3, "made") is None


def test_a_bucket_is_made_in_its_region(s3: S3Server, address: BucketAddress) -> None:
    make_bucket(replace(address, bucket="made-elsewhere", region="eu-west-3"))
    make_bucket(replace(address, bucket="made-elsewhere", region="eu-west-3"))
    assert region_of(s3, "made-elsewhere") == "eu-west-3"


@pytest.mark.parametrize("variable", ["AWS_REGION", "AWS_DEFAULT_REGION"])
def test_either_variable_names_the_region(
    s3: S3Server, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_REGION")
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    monkeypatch.setenv(variable, "eu-north-1")
    assert open_session().region_name == "eu-north-1"
    assert open_session("us-west-2").region_name == "us-west-2"


def test_missing_permission_is_reported(s3: S3Server, address: BucketAddress) -> None:
    s3.check_credentials(True)
    try:
        with pytest.raises(StoreUnavailable, match=r"'made' cannot be made.*check the credentials"):
            make_bucket(address)
    finally:
        s3.check_credentials(False)


def test_a_server_that_is_gone_is_given_up(s3: S3Server, address: BucketAddress) -> None:
    with pytest.raises(StoreUnavailable, match=r"cannot be made.*127\.0\.0\.1:9"):
        make_bucket(replace(address, endpoint="http://127.0.0.1:9"))


def test_without_credentials_it_says_what_to_set(
    address: BucketAddress, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(variable)
    for variable in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(variable, str(tmp_path / "nothing"))
    with pytest.raises(StoreUnavailable, match="set AWS_ACCESS_KEY_ID"):
        make_bucket(address)


@pytest.mark.parametrize(
    ("code", "kind", "said"),
    [
        ("BucketAlreadyExists", StoreError, "choose another name"),
        ("301", InvalidInput, "in another region; .*region=eu-central-1"),
        ("AccessDenied", StoreUnavailable, "check the credentials"),
    ],
)
def test_answers_of_amazon_are_explained(
    address: BucketAddress, code: str, kind: type[ChronolineError], said: str
) -> None:
    # Errors that no server sends at will.
    with pytest.raises(kind, match=said), aws._translating(address):
        raise ClientError({"Error": {"Code": code}}, "CreateBucket")


def test_concurrent_creation_counts_as_done(address: BucketAddress) -> None:
    with aws._translating(address):
        raise ClientError({"Error": {"Code": "BucketAlreadyOwnedByYou"}}, "CreateBucket")
