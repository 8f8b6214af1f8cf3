"""One DynamoDB table: requests, tries, errors.

The driver does not retry by itself: when the answer to a conditional write is lost, a second try meets the
first, and looks like a refusal. This module repeats a write where that does not matter, and a transaction
under its token, by which DynamoDB recognizes it.
"""

from __future__ import annotations

import functools
import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeAlias, TypeVar, cast

from chronoline.core.errors import (
    InvalidInput,
    OutcomeUnknown,
    StoreBusy,
    StoreClosed,
    StoreError,
    StoreUnavailable,
)
from chronoline.log.index.dynamodb.address import Address
from chronoline.log.index.dynamodb.items import (
    Item,
    Key,
    decode,
    encode,
    encode_key,
    encode_keys,
    key_of,
)
from chronoline.runtime.backoff import Backoff, Waits
from chronoline.runtime.extras import needs
from chronoline.runtime.fork_guard import ForkGuard

with needs("DynamoDB", "aws"):
    from botocore.config import Config
    from botocore.exceptions import (
        BotoCoreError,
        ClientError,
        ConnectTimeoutError,
        EndpointConnectionError,
        NoCredentialsError,
        NoRegionError,
    )
    from botocore.exceptions import ConnectionError as NetworkError
    from botocore.exceptions import HTTPClientError as RequestError
    from botocore.loaders import Loader, create_loader
    from botocore.parsers import ResponseParserError
    from botocore.session import Session, get_session

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import (
        AttributeValueTypeDef,
        CreateTableInputTypeDef,
        QueryInputTypeDef,
    )

NEW = "attribute_not_exists(pk)"
_KEYS_PER_READ = 100
_CONNECT_TIMEOUT_S = 2
_READ_TIMEOUT_S = 10
_MOST_CONNECTIONS = 32
_PATIENCE_S = 10.0
_BACKOFF = Backoff(0.005, 0.2, spread=1.0)
_MAKING_S = 120

_DECLINED = {
    "ConditionalCheckFailedException",
    "ResourceInUseException",
    "TransactionCanceledException",
}
# Nothing was done; a retry may succeed.
_BUSY = {
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "ThrottlingException",
    "TransactionConflictException",
    "TransactionInProgressException",
}
_NOT_SENT = (EndpointConnectionError, ConnectTimeoutError)
_UNANSWERED = (RequestError, NetworkError, ResponseParserError)
# Why an item of a transaction was not written, if it can be tried again.
_OVERTAKEN = {
    "None",
    "ConditionalCheckFailed",
    "ProvisionedThroughputExceeded",
    "ThrottlingError",
    "TransactionConflict",
}
_SERVER_FAILED = 500

Write: TypeAlias = dict[str, dict[str, Any]]
"""One item of a transaction."""

Answer = TypeVar("Answer")
Arguments = ParamSpec("Arguments")


class Overtaken(Exception):
    """The item has changed since it was read: nothing was written."""


class TableMissing(StoreError):
    """There is no such table."""


class _Declined(Exception):
    """The request does not fit the items of the table."""

    def __init__(self, error: ClientError, *, unsure: bool) -> None:
        super().__init__(str(error))
        self.error = error
        self.response = cast("dict[str, Any]", error.response)
        self.unsure = unsure
        """An earlier try was not answered: it may have been done, and be the reason of this refusal."""


class Updated(NamedTuple):
    """The item as it is now, or, if the condition did not hold, as it was."""

    done: bool
    item: Item


def tries() -> Iterator[None]:
    """Yields for each attempt, after a wait that grows, until `_PATIENCE_S` is over."""
    give_up = time.monotonic() + _PATIENCE_S
    pauses = Waits(_BACKOFF)
    yield
    while time.monotonic() < give_up:
        time.sleep(pauses.next())
        yield


def again_if_overtaken(action: Callable[Arguments, Answer]) -> Callable[Arguments, Answer]:
    """Repeats reading and writing whenever another process wrote in between."""

    @functools.wraps(action)
    def run(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Answer:
        for _ in tries():
            try:
                return action(*args, **kwargs)
            except Overtaken:
                continue
        raise StoreBusy(
            f"others change the same items all the time: given up after {_PATIENCE_S:.0f} s. Try again"
        )

    return run


# The items of a transaction. Conditions name their values as SQL does: `:seen` is the argument `seen`.


def put(item: Item, *, when: str | None = None, **values: Any) -> Write:
    return {"Put": {"Item": encode(item)} | _condition(when, values)}


def update(key: Key, change: str, *, when: str | None = None, **values: Any) -> Write:
    what = {"Key": encode_key(key), "UpdateExpression": change}
    return {"Update": what | _condition(when, values)}


def delete(key: Key, *, when: str | None = None, **values: Any) -> Write:
    return {"Delete": {"Key": encode_key(key)} | _condition(when, values)}


def check(key: Key, *, when: str, **values: Any) -> Write:
    """Changes nothing, and fails the transaction if the condition does not hold."""
    return {"ConditionCheck": {"Key": encode_key(key)} | _condition(when, values)}


def _condition(when: str | None, values: dict[str, Any]) -> dict[str, Any]:
    body: dict[str, Any] = {} if when is None else {"ConditionExpression": when}
    if values:
        body["ExpressionAttributeValues"] = _parameters(values)
    return body


def _parameters(values: dict[str, Any]) -> dict[str, AttributeValueTypeDef]:
    return encode({f":{name}": value for name, value in values.items()})


class Table:
    """A table and its client. Reads are consistent, item by item."""

    def __init__(self, address: Address, *, client: DynamoDBClient | None = None) -> None:
        self._address = address
        self._name = address.table
        self._client = client or _connect(address)
        self._fork_guard = ForkGuard("the store")
        self._closed = False

    def get(self, keys: Iterable[Key]) -> dict[Key, Item]:
        """The items of these keys that exist."""
        items: dict[Key, Item] = {}
        wanted = encode_keys(dict.fromkeys(keys))
        while wanted:
            some, wanted = wanted[:_KEYS_PER_READ], wanted[_KEYS_PER_READ:]
            request = {self._name: {"Keys": some, "ConsistentRead": True}}
            answer = self._read(self._client.batch_get_item, RequestItems=request)
            found = map(decode, answer["Responses"].get(self._name, []))
            items |= {key_of(item): item for item in found}
            if left := answer.get("UnprocessedKeys", {}).get(self._name):
                wanted += left["Keys"]
        return items

    def get_one(self, key: Key) -> Item | None:
        return self.get([key]).get(key)

    def query(
        self,
        pk: str,
        bound: tuple[str, str] | None = None,
        *,
        limit: int | None = None,
        backwards: bool = False,
    ) -> list[Item]:
        """Items of one `pk` by `sk`, those within a bound such as `(">=", sk)`."""
        values = {"pk": pk} | ({"sk": bound[1]} if bound else {})
        request: QueryInputTypeDef = {
            "TableName": self._name,
            "ConsistentRead": True,
            "ScanIndexForward": not backwards,
            "KeyConditionExpression": "pk = :pk" + (f" AND sk {bound[0]} :sk" if bound else ""),
            "ExpressionAttributeValues": _parameters(values),
        }
        items: list[Item] = []
        while limit is None or len(items) < limit:
            if limit is not None:
                request["Limit"] = limit - len(items)
            answer = self._read(self._client.query, **request)
            items += map(decode, answer["Items"])
            if "LastEvaluatedKey" not in answer:
                break
            request["ExclusiveStartKey"] = answer["LastEvaluatedKey"]
        return items

    def is_empty(self) -> bool:
        return not self._read(self._client.scan, TableName=self._name, Limit=1)["Items"]

    def scan(self, when: str | None = None, **values: Any) -> Iterator[Item]:
        """All items of the table, or those for which a condition holds. It reads all of it."""
        request: dict[str, Any] = {"TableName": self._name, "ConsistentRead": True}
        if when is not None:
            request |= {
                "FilterExpression": when,
                "ExpressionAttributeValues": _parameters(values),
            }
        while True:
            answer = self._read(self._client.scan, **request)
            yield from map(decode, answer["Items"])
            if "LastEvaluatedKey" not in answer:
                return
            request["ExclusiveStartKey"] = answer["LastEvaluatedKey"]

    def update(self, key: Key, change: str, *, when: str, repeat: bool, **values: Any) -> Updated:
        """Changes one item under a condition. `repeat` says that the change is idempotent."""
        try:
            answer = self._ask(
                self._client.update_item,
                OutcomeUnknown,
                repeat=repeat,
                TableName=self._name,
                ReturnValues="ALL_NEW",
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
                **update(key, change, when=when, **values)["Update"],
            )
        except _Declined as declined:
            return Updated(False, decode(declined.response.get("Item", {})))
        return Updated(True, decode(answer["Attributes"]))

    def write(self, writes: Sequence[Write]) -> None:
        """All of them, or none. Raises `Overtaken` if a condition does not hold, or others write as well."""
        if not writes:
            return
        items = [
            {kind: {"TableName": self._name, **body}} for ((kind, body),) in map(dict.items, writes)
        ]
        try:
            self._ask(
                self._client.transact_write_items,
                OutcomeUnknown,
                TransactItems=items,
                ClientRequestToken=str(uuid.uuid4()),
            )
        except _Declined as declined:
            if declined.unsure:
                raise OutcomeUnknown from declined.error
            reasons = declined.response.get("CancellationReasons", [])
            if not {reason.get("Code", "None") for reason in reasons} <= _OVERTAKEN:
                raise self._refused(declined.error) from declined.error
            raise Overtaken from declined.error

    def make(self, definition: CreateTableInputTypeDef) -> bool:
        """Makes the table, and waits until it can be used; false if it was there before."""
        made = True
        try:
            self._ask(self._client.create_table, OutcomeUnknown, **definition)
        except _Declined:
            made = False
        waiter = self._client.get_waiter("table_exists")
        try:
            waiter.wait(TableName=self._name, WaiterConfig={"Delay": 1, "MaxAttempts": _MAKING_S})
        except (BotoCoreError, ClientError) as error:
            raise StoreUnavailable(f"table {self._name!r} is not ready yet: {error}") from error
        return made

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._client.close()

    # How it is done

    def _read(self, call: Callable[..., Answer], **request: Any) -> Answer:
        return self._ask(call, StoreUnavailable, **request)

    def _ask(
        self,
        call: Callable[..., Answer],
        when_lost: type[StoreError],
        *,
        repeat: bool = True,
        **request: Any,
    ) -> Answer:
        """Translates the driver's errors into ours, and retries where that helps."""
        self._check_open()
        unanswered: Exception | None = None
        for _ in tries():
            try:
                return call(**request)
            except ClientError as error:
                failed = error.response["ResponseMetadata"]["HTTPStatusCode"] >= _SERVER_FAILED
                code = error.response["Error"]["Code"]
                if code in _DECLINED:
                    raise _Declined(error, unsure=unanswered is not None) from error
                if failed:
                    unanswered = error
                elif code not in _BUSY and unanswered is None:
                    raise self._refused(error) from error
            except _NOT_SENT as error:
                if unanswered is None:
                    raise StoreUnavailable(
                        f"DynamoDB cannot be reached; nothing was changed: {error}"
                    ) from error
                break
            except _UNANSWERED as error:
                unanswered = error
            except BotoCoreError as error:
                raise StoreError(f"DynamoDB cannot be asked: {_advice(error)}") from error
            if unanswered is not None and not repeat:
                break
        if unanswered is not None:
            raise when_lost(f"DynamoDB did not answer: {unanswered}") from unanswered
        raise StoreBusy(
            f"DynamoDB is overloaded, or table {self._name!r} is; nothing was changed. Try again"
        )

    def _refused(self, error: ClientError) -> StoreError:
        if error.response["Error"]["Code"] == "ResourceNotFoundException":
            return TableMissing(
                f"there is no table {self._name!r}; make it: chronoline log init s3://bucket/prefix "
                f"--index {self._address.url!r}"
            )
        return StoreError(f"DynamoDB refused a request to table {self._name!r}: {error}")

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed
        self._fork_guard.check()


def _connect(address: Address) -> DynamoDBClient:
    config = Config(
        connect_timeout=_CONNECT_TIMEOUT_S,
        read_timeout=_READ_TIMEOUT_S,
        retries={"total_max_attempts": 1, "mode": "standard"},
        max_pool_connections=_MOST_CONNECTIONS,
        tcp_keepalive=True,
    )
    try:
        client = _open_session().create_client(
            "dynamodb",
            region_name=address.region or os.environ.get("AWS_REGION"),
            endpoint_url=address.endpoint,
            config=config,
        )
    except NoRegionError as error:
        raise InvalidInput(
            f"{address.url!r} names no region, nor does the environment; add ?region=… to it, or set "
            "AWS_REGION"
        ) from error
    except (BotoCoreError, ValueError) as error:
        raise InvalidInput(f"{address.url!r} cannot be used: {error}") from error
    return cast("DynamoDBClient", client)


def _open_session() -> Session:
    session = get_session()
    session.register_component("data_loader", _models(session.get_config_variable("data_path")))
    return session


@functools.lru_cache(maxsize=1)
def _models(folders: str | None) -> Loader:
    """The driver's descriptions of services, which all sessions share: to read them takes 50 ms."""
    return create_loader(folders)


def _advice(error: BotoCoreError) -> str:
    if isinstance(error, NoCredentialsError):
        return (
            "no AWS credentials were found; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
            "AWS_PROFILE"
        )
    return str(error)
