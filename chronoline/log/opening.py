"""The one place that chooses the log's engines, by URL.

A log is objects and an index, and one string names both: the URL of the objects, with that of the index as
its option `index`. Everything that takes the URL of a log takes such a string.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from uuid import uuid4

from chronoline.core.errors import InvalidInput, MissingExtra
from chronoline.log.contract import Index, Objects
from chronoline.log.objects.address import BucketAddress, join_url, split_url
from chronoline.log.objects.cloudformation import bucket_resource
from chronoline.log.tying import tie

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
_SQLITE = "sqlite:///"
_REGION_OF_THE_STACK = "region-of-the-stack"


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a log is."""

    objects: str
    index: str | None
    """None for the one that a folder has beside its objects."""


def open_parts(url: str, index: str | None = None) -> tuple[Objects, Index]:
    """The objects and the index of a log.

    - ``file:///folder`` keeps objects as files. Without an index of its own it has a SQLite database beside
      them, and needs no set-up.
    - ``s3://bucket/prefix``, ``gs://…`` and ``az://…`` keep them in a bucket; they need ``chronoline[aws]``,
      and credentials in the environment. Options are ``endpoint``, and for S3 ``region``.
    - The index is ``sqlite:////folder/file.db``, for one machine, ``postgresql://…``, or ``dynamodb://table``.
    """
    place = _read(url, index)
    with ExitStack() as opened:
        objects = opened.enter_context(closing(_open_objects(place.objects)))
        the_index = opened.enter_context(closing(_open_index(place)))
        tie(objects, the_index, uuid4().hex)
        opened.pop_all()
        return objects, the_index


def connection_string(url: str, index: str | None = None) -> str:
    """One string for objects and index, always written in the same way."""
    return _written(_read(url, index))


def prepare(url: str, index: str | None = None) -> str:
    """Makes what is missing, asks for everything once, and answers the connection string. Repeatable.

    It makes folders, buckets of S3, and tables. Regions are written down, so that the string means the same
    where the environment names another.
    """
    place = _in_region(_read(url, index), None)
    if _scheme(place.objects) == "s3":
        _make_bucket(place.objects)
    if place.index is not None and _scheme(place.index) == "dynamodb":
        _make_table(place.index)
    objects, opened = open_parts(place.objects, place.index)
    try:
        next(iter(objects.list()), None)
    finally:
        objects.close()
        opened.close()
    return _written(place)


def template(url: str, index: str | None = None) -> str:
    """A CloudFormation template of the bucket, and of the table where that is the index, as JSON.

    The stack's output `ConnectionString` is what to open. A region that the URLs do not name is the stack's.
    """
    place = _read(url, index)
    if _scheme(place.objects) != "s3" or "endpoint" in split_url(place.objects).options:
        raise InvalidInput(f"CloudFormation makes buckets of S3 alone; write {OBJECTS['s3']}")
    _check_no_password(place.index)
    resources = {"Bucket": bucket_resource(BucketAddress.parse(place.objects))}
    if place.index is not None and _scheme(place.index) == "dynamodb":
        resources["Table"] = _table_resource(place.index)
    output = _written(_in_region(place, _REGION_OF_THE_STACK))
    output = output.replace(_REGION_OF_THE_STACK, "${AWS::Region}")
    document = {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": "A Chronoline log",
        "Resources": resources,
        "Outputs": {"ConnectionString": {"Value": {"Fn::Sub": output}}},
    }
    return json.dumps(document, indent=2)


# URLs


def _read(url: str, index: str | None) -> _Place:
    """Raises `InvalidInput`. It does not repeat what may have a password in it."""
    if _scheme(url) not in OBJECTS:
        known = ", ".join(OBJECTS.values())
        raise InvalidInput(
            f"no log can be at {_scheme(url) or 'a bare path'}; write one of: {known}"
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


def _scheme(url: str) -> str:
    return urlsplit(url[: url.find(":") + 1]).scheme


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
    scheme = _scheme(index)
    if scheme == "sqlite":
        _sqlite_path(index)
    elif scheme == "dynamodb":
        split_url(index)
    elif scheme not in ("postgresql", "postgres"):
        known = ", ".join(INDEXES.values())
        raise InvalidInput(f"no index can be at {scheme or 'a bare path'}; write one of: {known}")


def _sqlite_path(url: str) -> str:
    path = unquote(url[len(_SQLITE) :])
    if not url.lower().startswith(_SQLITE) or not path.startswith("/") or "?" in url:
        raise InvalidInput(
            f"{url!r} names no file from the root on; write {INDEXES['sqlite']}, with four slashes"
        )
    return path


def _needs_index(objects: str) -> str:
    example = _written(_Place(objects, INDEXES["dynamodb"]))
    return (
        f"{objects} has no index, which gives events their order: pass index={INDEXES['postgresql']!r} or "
        f"index={INDEXES['dynamodb']!r}, or write both as one string, such as {example}"
    )


def _in_region(place: _Place, region: str | None) -> _Place:
    """With a region, or else the environment's, wherever one matters and none is named."""

    def within(url: str) -> str:
        if _scheme(url) not in ("s3", "dynamodb"):
            return url
        scheme, host, path, options = split_url(url)
        if options.keys() & {"region", "endpoint"}:
            return url
        found = region or _region_of_the_environment()
        if found is None:
            raise InvalidInput(
                f"{url} names no region, and neither does the environment; add ?region=eu-central-1"
            )
        return join_url(scheme, host, path, {"region": found, **options})

    return _Place(within(place.objects), None if place.index is None else within(place.index))


def _check_no_password(index: str | None) -> None:
    if index is not None and _scheme(index) in ("postgresql", "postgres"):
        parts = urlsplit(index)
        if parts.password is not None or "password" in parse_qs(parts.query):
            raise InvalidInput(
                "whoever sees a stack sees its outputs; leave the password out of the index's URL, and in "
                "PGPASSWORD or ~/.pgpass"
            )


# Engines


def _open_objects(url: str) -> Objects:
    if _scheme(url) == "file":
        from chronoline.log.objects.local import LocalObjects  # noqa: PLC0415 - chosen by URL

        return LocalObjects(_folder(url) / "objects")
    with _needing("a bucket", "aws", "obstore", "boto"):
        from chronoline.log.objects.remote import RemoteObjects  # noqa: PLC0415 - chosen by URL
    return RemoteObjects(url)


def _open_index(place: _Place) -> Index:
    scheme = "sqlite" if place.index is None else _scheme(place.index)
    if place.index is None or scheme == "sqlite":
        from chronoline.log.index.sqlite import SqliteIndex  # noqa: PLC0415 - chosen by URL

        if place.index is None:
            return SqliteIndex(str(_folder(place.objects) / "index.db"))
        return SqliteIndex(_sqlite_path(place.index))
    if scheme == "dynamodb":
        with _needing("DynamoDB", "aws", "boto"):
            from chronoline.log.index.dynamodb import DynamoDbIndex  # noqa: PLC0415 - chosen by URL
        return DynamoDbIndex(place.index)
    from chronoline.log.index.postgres import PostgresIndex  # noqa: PLC0415 - chosen by URL

    return PostgresIndex(place.index)


def _make_bucket(url: str) -> None:
    with _needing("a bucket", "aws", "obstore", "boto"):
        from chronoline.log.objects.aws import make_bucket  # noqa: PLC0415 - chosen by URL
    make_bucket(BucketAddress.parse(url))


def _make_table(url: str) -> None:
    with _needing("DynamoDB", "aws", "boto"):
        from chronoline.log.index.dynamodb import create_table  # noqa: PLC0415 - chosen by URL
    create_table(url)


def _table_resource(url: str) -> dict[str, Any]:
    with _needing("DynamoDB", "aws", "boto"):
        from chronoline.log.index.dynamodb.schema import (  # noqa: PLC0415 - chosen by URL
            template_resource,
        )
    return template_resource(url)


def _region_of_the_environment() -> str | None:
    with _needing("AWS", "aws", "boto"):
        from chronoline.log.objects.aws import open_session  # noqa: PLC0415 - chosen by URL
    return open_session().region_name


@contextmanager
def _needing(what: str, extra: str, *packages: str) -> Iterator[None]:
    """Answers what is not installed with the command that installs it."""
    try:
        yield
    except ImportError as error:
        if error.name is None or not error.name.startswith(packages):
            raise
        raise MissingExtra(f"{what} needs a library: pip install 'chronoline[{extra}]'") from error
