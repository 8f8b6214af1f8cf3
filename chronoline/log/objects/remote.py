"""Objects in a bucket of S3, Google Cloud Storage or Azure, by the library `obstore`.

A put creates, and never overwrites. If its answer is lost, the next try meets what the first one made: names
are random, so an object with our name and our bytes is ours. A failed put may leave an orphan.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    GenericError,
    PermissionDeniedError,
    UnauthenticatedError,
)

from chronoline.core.errors import InvalidInput, StoreError, StoreFull, StoreUnavailable
from chronoline.log.contract import BucketMissing, ObjectMissing, Objects, StoredObject
from chronoline.log.objects.address import BucketAddress, name_of, path_of
from chronoline.log.objects.clients import open_client

ANSWER_S = 10.0
"""How long to wait for the next part of an answer."""
_LARGE_BYTES = 1024 * 1024
_LARGE_PATIENCE = 6
"""The factor of that time for a large object."""
_LISTED_AT_ONCE = 1_000

# The library's errors are text.
_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w+)</Code>\s*(?:<Message>([^<]*))?")
_CAUSE = re.compile(r'\b(?:message|error): "([^"]+)"|\b(TimedOut)\b')
_UNTRUSTED = re.compile(r"InvalidCertificate\(\s*(\w+)")
_DETAILS = "\n\nDebug source:"
_BROKEN_CONNECTION = "kind: Interrupted"
_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound")
_NO_OBJECT = ("NoSuchKey", "BlobNotFound")
_BEYOND_THE_END = 416
_DENIED = (401, 403)
_NO_ROOM = 507

_library_process: int | None = None
"""The process in which the library's threads live: a fork has none of them, and would wait forever."""


class RemoteObjects(Objects):
    """Objects in a bucket, under a prefix. The first call contacts the bucket."""

    def __init__(self, url: str, *, answer_s: float = ANSWER_S) -> None:
        _check_process()
        self._address = address = BucketAddress.parse(url)
        try:
            self._store = open_client(address, answer_s)
            self._patient_store = open_client(address, answer_s * _LARGE_PATIENCE)
        except BaseError as error:
            raise InvalidInput(f"{address.url} cannot be opened: {_reason(error)}") from error

    def put(self, name: str, data: bytes) -> None:
        store = self._store if len(data) < _LARGE_BYTES else self._patient_store
        with self._translating(f"object {name!r} was not put"):
            try:
                _again_if_broken(lambda: obstore.put(store, path_of(name), data, mode="create"))
            except AlreadyExistsError as error:
                if obstore.get(store, path_of(name)).bytes() != data:
                    raise StoreError(
                        f"object {name!r} exists already, with other bytes; nothing was changed"
                    ) from error

    def get(self, name: str, offset: int, length: int) -> bytes:
        if length <= 0:
            return b""
        with self._translating(f"object {name!r} cannot be read"):
            try:
                part = obstore.get_range(self._store, path_of(name), start=offset, length=length)
            except FileNotFoundError as error:
                if not self._is_object_missing(error):
                    raise
                raise ObjectMissing(f"there is no object {name!r}") from error
            except GenericError as error:
                if _status(error) != _BEYOND_THE_END:
                    raise
                return b""
            return part.to_bytes()

    def get_whole(self, path: str) -> tuple[bytes, int]:
        """An object by its path below the prefix, of any writer and any age. Raises `ObjectMissing`."""
        with self._translating(f"{path!r} cannot be read"):
            try:
                found = obstore.get(self._patient_store, path)
            except FileNotFoundError as error:
                if not self._is_object_missing(error):
                    raise
                raise ObjectMissing(f"there is no object {path!r}") from error
            modified_ms = int(found.meta["last_modified"].timestamp() * 1000)
            return found.bytes().to_bytes(), modified_ms

    def has_any(self, path: str) -> bool:
        """Whether there is an object under a path below the prefix."""
        with self._translating(f"{path!r} cannot be listed"):
            return any(obstore.list(self._patient_store, f"{path}/", chunk_size=1))

    def list(self) -> Iterator[StoredObject]:
        with self._translating("the objects cannot be listed"):
            for page in obstore.list(self._store, chunk_size=_LISTED_AT_ONCE):
                for found in page:
                    name = name_of(found["path"])
                    if name is not None:
                        modified_ms = int(found["last_modified"].timestamp() * 1000)
                        yield StoredObject(name, found["size"], modified_ms)

    def delete(self, names: Sequence[str]) -> None:
        with self._translating("not all objects were deleted"):
            try:
                paths = [path_of(name) for name in names]
                _again_if_broken(lambda: obstore.delete(self._store, paths))
            except FileNotFoundError as error:
                if not self._is_object_missing(error):
                    raise
                self._delete_each(names)

    def _delete_each(self, names: Sequence[str]) -> None:
        """Deletes one by one, for stores in which a missing object ends the deletion of all."""
        for name in names:
            try:
                obstore.delete(self._store, path_of(name))
            except FileNotFoundError as error:
                if not self._is_object_missing(error):
                    raise

    def close(self) -> None:
        pass

    @contextmanager
    def _translating(self, failed: str) -> Iterator[None]:
        _check_process()
        try:
            yield
        except (BaseError, OSError) as error:
            raise self._unavailable(failed, error) from error

    def _is_object_missing(self, error: FileNotFoundError) -> bool:
        """Whether an object is missing, and not its bucket or the whole service."""
        code = _code(error)
        return code in _NO_OBJECT or (code is None and self._address.scheme == "az")

    def _unavailable(self, failed: str, error: Exception) -> StoreError:
        address, status, reason = self._address, _status(error), _reason(error)
        bucket = f"the bucket {address.bucket!r}"
        if _code(error) in _NO_BUCKET:
            how = "with `chronoline log init`" if address.scheme == "s3" else "first"
            return BucketMissing(f"{failed}: {bucket} does not exist; make it {how}")
        if isinstance(error, PermissionDeniedError | UnauthenticatedError) or status in _DENIED:
            return StoreUnavailable(
                f"{failed}: access to {bucket} is denied ({reason}); check the credentials in the "
                "environment, and what they may do"
            )
        if status == _NO_ROOM:
            return StoreFull(f"{failed}: {bucket} has no room left ({reason})")
        where = f"{bucket} at {address.endpoint}" if address.endpoint else bucket
        if (untrusted := _UNTRUSTED.search(str(error))) is not None:
            return StoreUnavailable(
                f"{failed}: the certificate of {where} is not trusted ({untrusted[1]}); name the file of its "
                "authority in SSL_CERT_FILE, and in AWS_CA_BUNDLE for `chronoline log init`"
            )
        if status is None:
            return StoreUnavailable(f"{failed}: {where} cannot be reached ({reason})")
        return StoreUnavailable(f"{failed}: {where} answered {status} ({reason})")


def _again_if_broken(call: Callable[[], object]) -> None:
    """Repeats a request after a broken connection, since all of ours can be repeated."""
    try:
        call()
    except GenericError as error:
        if _BROKEN_CONNECTION not in str(error):
            raise
        call()


def _check_process() -> None:
    global _library_process  # noqa: PLW0603 - the library's threads are the process's, not an object's
    if _library_process is None:
        _library_process = os.getpid()
    if _library_process != os.getpid():
        raise StoreError(
            "this process was forked from one that uses an object store, whose threads it does not have; "
            "start it by spawn, or open the log only after the fork"
        )


def _status(error: Exception) -> int | None:
    found = _STATUS.search(str(error))
    return int(found[1]) if found else None


def _code(error: Exception) -> str | None:
    found = _CODE.search(str(error))
    return found[1] if found else None


def _reason(error: Exception) -> str:
    """One line of the library's message."""
    text, _, details = str(error).partition(_DETAILS)
    if found := _CODE.search(text):
        return f"{found[1]}: {found[2]}" if found[2] else found[1]
    line = text.strip().splitlines()[0].rpartition(" - ")[2]
    cause = None if _STATUS.search(text) else _CAUSE.search(details)
    return f"{line}: {cause[1] or 'it did not answer in time'}" if cause else line
