"""Credentials and bucket creation, by Amazon's own library.

The credentials are those that every tool of Amazon's finds: variables, profiles, roles. The object-store
library by itself knows no profiles, and an index in DynamoDB would find others than the objects do.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

from chronoline.core.errors import InvalidInput, StoreError, StoreUnavailable
from chronoline.log.objects.address import BucketAddress

DEFAULT_REGION = "us-east-1"
NO_CREDENTIALS = (
    "no AWS credentials were found; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
)

_PATIENCE = Config(connect_timeout=3, read_timeout=10, retries={"total_max_attempts": 2})
_MISSING = ("404", "NoSuchBucket")
_ELSEWHERE = ("301", "PermanentRedirect", "AuthorizationHeaderMalformed")


def open_session(region: str | None = None) -> boto3.Session:
    """A session in a region, or else in that of the environment."""
    try:
        # Amazon's library reads the older variable only, AWS_DEFAULT_REGION.
        return boto3.Session(region_name=region or os.environ.get("AWS_REGION"))
    except BotoCoreError as error:
        raise StoreError(f"the environment's AWS settings cannot be used: {error}") from error


def make_bucket(address: BucketAddress) -> bool:
    """Makes a bucket, if it is missing; returns whether it did. Amazon's are private and encrypted."""
    with _translating(address):
        session = open_session(address.region)
        client = session.client("s3", endpoint_url=address.endpoint, config=_PATIENCE)
        try:
            client.head_bucket(Bucket=address.bucket)
        except ClientError as error:
            if _code(error) not in _MISSING:
                raise
            region = session.region_name or DEFAULT_REGION
            # The oldest region is the one that cannot be named.
            where = {"CreateBucketConfiguration": {"LocationConstraint": region}}
            client.create_bucket(
                Bucket=address.bucket, **({} if region == DEFAULT_REGION else where)
            )
            return True
    return False


@contextmanager
def _translating(address: BucketAddress) -> Iterator[None]:
    failed = f"the bucket {address.bucket!r} cannot be made"
    try:
        yield
    except NoCredentialsError as error:
        raise StoreUnavailable(f"{failed}: {NO_CREDENTIALS}") from error
    except BotoCoreError as error:
        raise StoreUnavailable(f"{failed}: {error}") from error
    except ClientError as error:
        code = _code(error)
        if code == "BucketAlreadyOwnedByYou":
            return  # another process was faster
        if code == "BucketAlreadyExists":
            raise StoreError(
                f"{failed}: another account has one of that name; choose another name"
            ) from error
        if code in _ELSEWHERE:
            raise InvalidInput(
                f"the bucket {address.bucket!r} is in another region; write that one, as in "
                f"{replace(address, region='eu-central-1').url}"
            ) from error
        raise StoreUnavailable(
            f"{failed}: {error}; check the credentials in the environment, and what they may do"
        ) from error


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))
