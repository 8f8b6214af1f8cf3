"""The one place that chooses the log's engines, by URL.

A log is objects and an index, and one string names both: the URL of the objects, with that of the index as
its option `index`. Everything that takes the URL of a log takes such a string.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

from chronoline.core.errors import (
    ChronolineError,
    InvalidInput,
    StoreError,
    StoreUnavailable,
)
from chronoline.log.contract import BucketMissing, Index, Objects
from chronoline.log.log_identity import is_tied, tie
from chronoline.log.objects.address import BucketAddress
from chronoline.log.objects.cloudformation import bucket_resource
from chronoline.runtime.extras import needs
from chronoline.runtime.store_url import POSTGRES, join_url, scheme_of, split_url, sqlite_path

OBJECTS = {
    "file": "file:///folder",
    "s3": "s3://bucket/prefix",
    "gs": "gs://bucket/prefix",
    "az": "az://container/prefix",
}
INDEXES = {
    "sqlite": "sqlite:////folder/index.db",
    "postgresql": "postgresql://user@host:5432/database",
    "dynamodb": "dynamodb://table?region=eu-central-1",
}
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_REGION_OF_THE_STACK = "region-of-the-stack"


class ForeignObjects(Protocol):
    """Objects that others have put, by their paths."""

    def get_whole(self, path: str) -> tuple[bytes, int]: ...

    def has_any(self, path: str) -> bool: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a log is."""

    objects: str
    index: str | None
    """None for the one that a folder has beside its objects."""


def url_of(place: str | PathLike[str]) -> str:
    """A URL unchanged; a path as the URL of its folder."""
    if isinstance(place, str) and _SCHEME.match(place):
        return place
    if not place or (isinstance(place, str) and "\0" in place):
        raise InvalidInput(f"{place!r} is neither a URL nor a folder")
    return Path(place).expanduser().absolute().as_uri()


def open_parts(url: str, index: str | None = None) -> tuple[Objects, Index]:
    """The objects and the index of a log.

    - ``file:///folder`` keeps objects as files. Without an index of its own it has a SQLite database beside
      them, and needs no set-up.
    - ``s3://bucket/prefix``, ``gs://…`` and ``az://…`` keep them in a bucket; they need ``chronoline[aws]``,
      and credentials in the environment. Options are ``endpoint``, and for S3 ``region``.
    - The index is ``sqlite:////folder/file.db``, for one machine, ``postgresql://…``, or ``dynamodb://table``.
    """
    place = _read(url, index)
    if _opening_makes_something(place):
        _check_existing_parts(place, bucket_comes=False)
    with ExitStack() as opened:
        objects = opened.enter_context(closing(_open_objects(place.objects)))
        the_index = opened.enter_context(closing(_open_index(place)))
        tie(objects, the_index, place=_without_region(place.objects), random_id=uuid4().hex)
        opened.pop_all()
        return objects, the_index


def parts_on_one_machine(url: str) -> list[str]:
    """Which of a log's two parts only the processes of one machine can reach.

    Both of them for a folder that names no index: that lies beside the objects.
    """
    in_folder = scheme_of(url) == "file"
    index = parse_qs(urlsplit(url).query).get("index", [""])[0]
    parts = {
        "objects": in_folder,
        "index": scheme_of(index) == "sqlite" if index else in_folder,
    }
    return [part for part, is_there in parts.items() if is_there]


def lacks_files(url: str) -> bool:
    """Whether a folder or file of the log does not exist: to open it would make a new log."""
    return _lacks_files(_read(url, None))


def connection_string(url: str, index: str | None = None) -> str:
    """One string for objects and index, always written in the same way."""
    return _written(_read(url, index))


def prepare(url: str, index: str | None = None) -> str:
    """Makes what is missing, asks for everything once, and answers the connection string. Repeatable.

    It makes folders, buckets of S3, and tables, after it has looked whether what is there belongs together.
    Regions are written down, so that the string means the same where the environment names another.
    """
    place = _in_region(_read(url, index), None)
    _check_existing_parts(place, bucket_comes=scheme_of(place.objects) == "s3")
    made: list[str] = []
    try:
        if scheme_of(place.objects) == "s3" and _make_bucket(place.objects):
            made.append(f"the bucket {split_url(place.objects).host!r}")
        table = place.index if scheme_of(place.index or "") == "dynamodb" else None
        if table is not None and _make_table(table):
            made.append(f"the table {split_url(table).host!r}")
        objects, opened = open_parts(place.objects, place.index)
        try:
            next(iter(objects.list()), None)
        finally:
            objects.close()
            opened.close()
    except ChronolineError as error:
        if not made:
            raise
        left = " and ".join(made) + (" stay" if len(made) > 1 else " stays")
        raise StoreError(f"{error}; made before that, {left}") from error
    return _written(place)


def template(url: str, index: str | None = None) -> str:
    """A CloudFormation template of the bucket, and of the table where that is the index, as JSON.

    The stack's output `ConnectionString` is what to open. A stack is in one region: that which the URLs name,
    where the stack has to be made then, or else whatever it is made in.
    """
    place = _read(url, index)
    if scheme_of(place.objects) != "s3":
        raise InvalidInput(f"CloudFormation makes buckets of S3 alone; write {OBJECTS['s3']}")
    _check_no_password(place.index)
    resources = {"Bucket": bucket_resource(BucketAddress.parse(place.objects))}
    made = [place.objects]
    if place.index is not None and scheme_of(place.index) == "dynamodb":
        resources["Table"] = _table_resource(place.index)
        made.append(place.index)
    region = _region_of_all(made)
    output = _written(_in_region(place, region or _REGION_OF_THE_STACK))
    output = output.replace(_REGION_OF_THE_STACK, "${AWS::Region}")
    document = {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": "A Chronoline log" + (f". Make the stack in {region}" if region else ""),
        "Resources": resources,
        "Outputs": {"ConnectionString": {"Value": {"Fn::Sub": output}}},
    }
    return json.dumps(document, indent=2)


# URLs


def _read(url: str, index: str | None) -> _Place:
    """Raises `InvalidInput`. It does not repeat what may have a password in it."""
    if scheme_of(url) not in OBJECTS:
        known = ", ".join(OBJECTS.values())
        raise InvalidInput(
            f"no log can be at {scheme_of(url) or 'a bare path'}; write one of: {known}"
        )
    scheme, host, path, options = split_url(url)
    given = options.get("index", index)
    if index is not None and index != given:
        raise InvalidInput(f"the URL of {scheme}://{host} names another index than the argument")
    objects = join_url(scheme, host, path, {**options, "index": None})
    if scheme == "file":
        objects = join_url(scheme, "", str(_folder(objects)), {})
    else:
        objects = BucketAddress.parse(objects).url
        if given is None:
            raise InvalidInput(_needs_index(objects))
    if given is not None:
        _check_index(given)
    return _Place(objects, given)


def _written(place: _Place) -> str:
    scheme, host, path, options = split_url(place.objects)
    return join_url(scheme, host, path, {**options, "index": place.index})


def _folder(url: str) -> Path:
    _, host, path, options = split_url(url)
    if host or not path.strip("/") or not path.startswith("/"):
        raise InvalidInput(
            f"{url!r} names no folder; write {OBJECTS['file']}, with three slashes, from the root on"
        )
    if options:
        raise InvalidInput(f"no option of file:// is {', '.join(options)}; known: index")
    return Path(path)


def _check_index(index: str) -> None:
    scheme = scheme_of(index)
    if scheme == "sqlite":
        _sqlite_path(index)
    elif scheme == "dynamodb":
        split_url(index)
    elif scheme not in POSTGRES:
        known = ", ".join(INDEXES.values())
        raise InvalidInput(f"no index can be at {scheme or 'a bare path'}; write one of: {known}")


def _sqlite_path(url: str) -> str:
    if not url.lower().startswith("sqlite:////"):
        raise InvalidInput(
            f"{url!r} names no file from the root on; write {INDEXES['sqlite']}, with four slashes"
        )
    return sqlite_path(url)


def _needs_index(objects: str) -> str:
    example = _written(_Place(objects, INDEXES["dynamodb"]))
    return (
        f"{objects} has no index, which gives events their order. Name one, such as {INDEXES['postgresql']} "
        f"or {INDEXES['dynamodb']}: `chronoline log init` takes it as --index, Log as index=; or write both "
        f"as one string, such as {example}"
    )


def _in_region(place: _Place, region: str | None) -> _Place:
    """With a region, or else the environment's, wherever one matters and none is named."""

    def within(url: str) -> str:
        if scheme_of(url) not in ("s3", "dynamodb"):
            return url
        scheme, host, path, options = split_url(url)
        if "region" in options:
            return url
        found = region or _region_of_the_environment()
        if found is None and scheme == "s3" and "endpoint" in options:
            found = _region_without_any()
        if found is None:
            raise InvalidInput(
                f"{url} names no region, and neither does the environment; add region=eu-central-1 to its "
                "options"
            )
        return join_url(scheme, host, path, {"region": found, **options})

    return _Place(within(place.objects), None if place.index is None else within(place.index))


def _region_of_all(urls: Sequence[str]) -> str | None:
    """The one region of what a stack makes, if it is named."""
    options = [split_url(url).options for url in urls]
    if any("endpoint" in each for each in options):
        raise InvalidInput(
            "CloudFormation makes buckets and tables of Amazon's own; leave out endpoint=, or make them with "
            "`chronoline log init` without --template"
        )
    regions = sorted({each["region"] for each in options if "region" in each})
    if len(regions) > 1:
        raise InvalidInput(
            f"a stack is in one region, and {' and '.join(regions)} are named; name one, or none"
        )
    return regions[0] if regions else None


def _check_no_password(index: str | None) -> None:
    if index is not None and scheme_of(index) in POSTGRES:
        parts = urlsplit(index)
        if parts.password is not None or "password" in parse_qs(parts.query):
            raise InvalidInput(
                "the outputs of a stack are visible in it; leave the password out of the index's URL, and in "
                "PGPASSWORD or ~/.pgpass"
            )


# Checks before anything is made


def _opening_makes_something(place: _Place) -> bool:
    """Whether to open it may make a folder, a file, or the tables of a database."""
    return _lacks_files(place) or (place.index is not None and scheme_of(place.index) in POSTGRES)


def _lacks_files(place: _Place) -> bool:
    in_folder = scheme_of(place.objects) == "file"
    return (in_folder and not (_folder(place.objects) / "objects").is_dir()) or (
        _is_sqlite(place) and not _sqlite_file(place).exists()
    )


def _check_existing_parts(place: _Place, *, bucket_comes: bool) -> None:
    """Refuses what belongs to another log, or a bucket that nobody makes, while it leaves nothing behind."""
    try:
        _check_parts(place, bucket_comes)
    except StoreUnavailable:
        raise
    except StoreError:
        # A concurrent first opening may have made one part before this look, and the other after it.
        _check_parts(place, bucket_comes)


def _check_parts(place: _Place, bucket_comes: bool) -> None:
    named = _without_region(place.objects)
    with ExitStack() as opened:
        objects, index = _existing_objects(place), _existing_index(place)
        for each in (objects, index):
            if each is not None:
                opened.callback(each.close)
        try:
            is_tied(objects, index, place=named)
        except BucketMissing:
            if not bucket_comes:
                raise
            is_tied(None, index, place=named)


def _existing_objects(place: _Place) -> Objects | None:
    if scheme_of(place.objects) == "file" and not (_folder(place.objects) / "objects").is_dir():
        return None
    return _open_objects(place.objects)


def _existing_index(place: _Place) -> Index | None:
    if _is_sqlite(place):
        return _open_index(place) if _sqlite_file(place).exists() else None
    assert place.index is not None
    if scheme_of(place.index) in POSTGRES:
        from chronoline.log.index.postgres import exists  # noqa: PLC0415 - chosen by URL

        return _open_index(place) if exists(place.index) else None
    with needs("DynamoDB", "aws"):
        from chronoline.log.index.dynamodb import TableMissing  # noqa: PLC0415 - chosen by URL
    try:
        return _open_index(place)
    except TableMissing:
        return None


def _is_sqlite(place: _Place) -> bool:
    return place.index is None or scheme_of(place.index) == "sqlite"


def _sqlite_file(place: _Place) -> Path:
    if place.index is None:
        return _folder(place.objects) / "index.db"
    return Path(_sqlite_path(place.index))


def _without_region(url: str) -> str:
    """The name of a place, without its region."""
    scheme, host, path, options = split_url(url)
    return join_url(scheme, host, path, {**options, "region": None})


# Engines


def _open_objects(url: str) -> Objects:
    if scheme_of(url) == "file":
        from chronoline.log.objects.local import LocalObjects  # noqa: PLC0415 - chosen by URL

        return LocalObjects(_folder(url) / "objects")
    with needs("a bucket", "aws"):
        from chronoline.log.objects.remote import RemoteObjects  # noqa: PLC0415 - chosen by URL
    return RemoteObjects(url)


def _open_index(place: _Place) -> Index:
    if _is_sqlite(place):
        from chronoline.log.index.sqlite import SqliteIndex  # noqa: PLC0415 - chosen by URL

        return SqliteIndex(str(_sqlite_file(place)))
    assert place.index is not None
    if scheme_of(place.index) == "dynamodb":
        with needs("DynamoDB", "aws"):
            from chronoline.log.index.dynamodb import DynamoDbIndex  # noqa: PLC0415 - chosen by URL
        return DynamoDbIndex(place.index)
    from chronoline.log.index.postgres import PostgresIndex  # noqa: PLC0415 - chosen by URL

    return PostgresIndex(place.index)


def open_foreign_bucket(url: str) -> ForeignObjects:
    """A bucket with objects that are not a log's."""
    with needs("a bucket", "aws"):
        from chronoline.log.objects.remote import RemoteObjects  # noqa: PLC0415 - chosen by URL
    return RemoteObjects(url)


def items_of_table(url: str) -> Iterator[dict[str, Any]]:
    """The items of a DynamoDB table that is not a log's."""
    with needs("DynamoDB", "aws"):
        from chronoline.log.index.dynamodb import scan_table  # noqa: PLC0415 - chosen by URL
    return scan_table(url)


def _make_bucket(url: str) -> bool:
    with needs("a bucket", "aws"):
        from chronoline.log.objects.aws import make_bucket  # noqa: PLC0415 - chosen by URL
    return make_bucket(BucketAddress.parse(url))


def _make_table(url: str) -> bool:
    with needs("DynamoDB", "aws"):
        from chronoline.log.index.dynamodb import create_table  # noqa: PLC0415 - chosen by URL
    return create_table(url)


def _table_resource(url: str) -> dict[str, Any]:
    with needs("DynamoDB", "aws"):
        from chronoline.log.index.dynamodb.schema import (  # noqa: PLC0415 - chosen by URL
            template_resource,
        )
    return template_resource(url)


def _region_of_the_environment() -> str | None:
    with needs("AWS", "aws"):
        from chronoline.log.objects.aws import open_session  # noqa: PLC0415 - chosen by URL
    return open_session().region_name


def _region_without_any() -> str:
    """The region for a server that speaks S3, if none is named."""
    with needs("AWS", "aws"):
        from chronoline.log.objects.aws import DEFAULT_REGION  # noqa: PLC0415 - chosen by URL
    return DEFAULT_REGION
