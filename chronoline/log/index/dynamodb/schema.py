"""The table: its definition, and the version of its layout."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

from chronoline.core.errors import SchemaTooNew, StoreError
from chronoline.log.index.dynamodb.address import parse_address
from chronoline.log.index.dynamodb.items import SCHEMA_KEY, Item, keyed
from chronoline.log.index.dynamodb.table import NEW, Overtaken, Table, put

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import CreateTableInputTypeDef

VERSION = 2
"""From 2 on, names of objects have floors, which a program of version 1 would ignore."""


def table_definition(name: str) -> CreateTableInputTypeDef:
    """The definition for `CreateTable` and for a template."""
    return {
        "TableName": name,
        "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": [
            {"AttributeName": "pk", "AttributeType": "S"},
            {"AttributeName": "sk", "AttributeType": "S"},
        ],
        "KeySchema": [
            {"AttributeName": "pk", "KeyType": "HASH"},
            {"AttributeName": "sk", "KeyType": "RANGE"},
        ],
    }


def template_resource(url: str) -> dict[str, Any]:
    """The table as a resource of a CloudFormation template; it stays when the stack is deleted."""
    return {
        "Type": "AWS::DynamoDB::Table",
        "DeletionPolicy": "Retain",
        "UpdateReplacePolicy": "Retain",
        "Properties": table_definition(parse_address(url).table),
    }


def template(url: str) -> str:
    """A CloudFormation template with the table alone."""
    resources = {"ChronolineIndex": template_resource(url)}
    return json.dumps({"AWSTemplateFormatVersion": "2010-09-09", "Resources": resources}, indent=2)


def create_table(url: str) -> bool:
    """Makes the table that a URL names, and waits until it can be used; false if it was there before."""
    address = parse_address(url)
    table = Table(address)
    try:
        made = table.make(table_definition(address.table))
        check_version(table, address.table)
    finally:
        table.close()
    return made


def scan_table(url: str) -> Iterator[Item]:
    """All items of a table, of any log."""
    with closing(Table(parse_address(url))) as table:
        yield from table.scan()


def check_version(table: Table, name: str) -> None:
    """Refuses a table that is newer, or another program's. An empty one, from a template, is made ours."""
    item = table.get_one(SCHEMA_KEY)
    if item is None and not table.is_empty():
        item = table.get_one(SCHEMA_KEY)  # another process may have claimed it in between
        if item is None:
            raise StoreError(f"table {name!r} is another program's; name another")
    if item is None:
        with suppress(Overtaken):  # another process was faster, with the same version
            table.write([put(keyed(SCHEMA_KEY, version=VERSION), when=NEW)])
    elif item["version"] < VERSION:
        when = "log_id = :log_id" if "log_id" in item else "attribute_not_exists(log_id)"
        values = {"log_id": item["log_id"]} if "log_id" in item else {}
        with suppress(
            Overtaken
        ):  # another process ties it to its log; the next opening upgrades it
            table.write([put(item | {"version": VERSION}, when=when, **values)])
    elif item["version"] > VERSION:
        raise SchemaTooNew(
            f"table {name!r} has schema version {item['version']}, and this Chronoline knows up to "
            f"{VERSION}: upgrade Chronoline, or name another table"
        )
