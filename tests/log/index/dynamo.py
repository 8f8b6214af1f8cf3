"""The index on a DynamoDB server of our own, and a line to it that fails on demand."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, cast

import boto3
import pytest
from botocore.exceptions import ClientError, ConnectionClosedError

from chronoline.log.contract import Index
from chronoline.log.index.dynamodb import DynamoDbIndex, create_table
from chronoline_bench.servers.aws import DynamoDBServer

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

TABLE = "index"

Call = Callable[[], Any]


@pytest.fixture(scope="session")
def dynamodb_client(dynamodb_server: DynamoDBServer) -> "Iterator[DynamoDBClient]":
    """A plain client of the driver."""
    client = boto3.client(
        "dynamodb",
        endpoint_url=dynamodb_server.endpoint,
        region_name="us-east-1",
        aws_access_key_id="chronoline",
        aws_secret_access_key="chronoline",
    )
    yield client
    client.close()


@pytest.fixture
def dynamodb_url(
    dynamodb_server: DynamoDBServer, dynamodb_client: "DynamoDBClient", aws: None
) -> str:
    """The URL of an empty table; one for the session, since to make one takes longer than most tests."""
    url = dynamodb_server.url(TABLE)
    if TABLE not in dynamodb_client.list_tables()["TableNames"]:
        create_table(url)
    found = dynamodb_client.scan(TableName=TABLE, ProjectionExpression="pk, sk")["Items"]
    for start in range(0, len(found), 25):
        requests = [{"DeleteRequest": {"Key": key}} for key in found[start : start + 25]]
        dynamodb_client.batch_write_item(RequestItems=cast(Any, {TABLE: requests}))
    return url


def dynamodb(request: pytest.FixtureRequest) -> Callable[[], Index]:
    url: str = request.getfixturevalue("dynamodb_url")
    return lambda: DynamoDbIndex(url)


class Line:
    """A client whose next requests fail by the given faults of each operation."""

    def __init__(self, client: "DynamoDBClient") -> None:
        self._client = client
        self.faults: dict[str, list[Callable[[Call], Any]]] = {}
        self.asked: list[tuple[str, dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)
        if not callable(method) or name == "close":
            return method

        def ask(**request: Any) -> Any:
            self.asked.append((name, request))
            faults = self.faults.get(name)
            fault = faults.pop(0) if faults else None
            return fault(lambda: method(**request)) if fault else method(**request)

        return ask


def no_fault(call: Call) -> Any:
    return call()


def answer_lost(call: Call) -> Any:
    """The request is done, and its answer does not arrive."""
    call()
    raise ConnectionClosedError(endpoint_url="http://test")


def request_lost(call: Call) -> Any:
    """The request is lost without an error."""
    raise ConnectionClosedError(endpoint_url="http://test")


def refused(code: str, *, status: int = 400, **more: Any) -> Callable[[Call], Any]:
    """The service answers with an error."""

    def fault(call: Call) -> Any:
        response = {"Error": {"Code": code, "Message": "as the test says"}, **more}
        response["ResponseMetadata"] = {"HTTPStatusCode": status}
        raise ClientError(cast(Any, response), "Test")

    return fault


def cancelled(reason: str) -> Callable[[Call], Any]:
    return refused("TransactionCanceledException", CancellationReasons=[{"Code": reason}])
