"""Clients of object stores that end in bounded time."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import TYPE_CHECKING

from obstore.auth.boto3 import Boto3CredentialProvider
from obstore.store import AzureStore, GCSStore, S3Store

from chronoline.core.errors import StoreUnavailable
from chronoline.log.objects.address import BucketAddress
from chronoline.log.objects.aws import DEFAULT_REGION, NO_CREDENTIALS, open_session

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig, S3Config

_CONNECT_S = 3.0
_RETRY_S = 5.0
"""How long a failed request is retried."""
_REQUEST_S = 120.0
_RETRIES = 5
_CREDENTIALS_TTL = timedelta(minutes=5)
"""Shorter than the remaining life of temporary credentials when Amazon's library renews them."""
_ENDPOINT_VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")


def open_client(address: BucketAddress, answer_s: float) -> S3Store | GCSStore | AzureStore:
    """A client that gives up an endpoint which takes no connections, or is silent for `answer_s`."""
    client: ClientConfig = {
        "connect_timeout": timedelta(seconds=_CONNECT_S),
        "read_timeout": timedelta(seconds=answer_s),
        "timeout": timedelta(seconds=max(_REQUEST_S, answer_s)),
    }
    if _is_plain_http(address):
        client["allow_http"] = True
    retries: RetryConfig = {
        "max_retries": _RETRIES,
        "retry_timeout": timedelta(seconds=min(_RETRY_S, answer_s)),
        "backoff": {"max_backoff": timedelta(seconds=1)},
    }
    if address.scheme == "s3":
        return _open_s3(address, client, retries)
    prefix = address.prefix or None
    if address.scheme == "gs":
        return GCSStore(
            address.bucket,
            prefix=prefix,
            config={"base_url": address.endpoint} if address.endpoint else {},
            client_options=client,
            retry_config=retries,
        )
    return AzureStore(
        address.bucket,
        prefix=prefix,
        config={"endpoint": address.endpoint} if address.endpoint else {},
        client_options=client,
        retry_config=retries,
    )


def _open_s3(address: BucketAddress, client: ClientConfig, retries: RetryConfig) -> S3Store:
    session = open_session(address.region)
    try:
        credentials = Boto3CredentialProvider(session, ttl=_CREDENTIALS_TTL)
    except ValueError as error:
        raise StoreUnavailable(NO_CREDENTIALS) from error
    config: S3Config = {"region": session.region_name or DEFAULT_REGION}
    if address.endpoint:
        config["endpoint"] = address.endpoint
        if _ENDPOINT_VARIABLES[0] in os.environ:  # it would win
            config["aws_endpoint_url_s3"] = address.endpoint
    return S3Store(
        address.bucket,
        prefix=address.prefix or None,
        config=config,
        client_options=client,
        retry_config=retries,
        credential_provider=credentials,
    )


def _is_plain_http(address: BucketAddress) -> bool:
    endpoint = address.endpoint
    if endpoint is None and address.scheme == "s3":
        given = (os.environ.get(name) for name in _ENDPOINT_VARIABLES)
        endpoint = next(filter(None, given), None)
    return endpoint is not None and endpoint.startswith("http://")
