"""The index in a DynamoDB table, for logs whose machines come and go. Needs `chronoline[aws]`."""

from chronoline.log.index.dynamodb.index import DynamoDbIndex
from chronoline.log.index.dynamodb.schema import (
    create_table,
    scan_table,
    table_definition,
    template,
    template_resource,
)
from chronoline.log.index.dynamodb.table import TableMissing

__all__ = [
    "DynamoDbIndex",
    "TableMissing",
    "create_table",
    "scan_table",
    "table_definition",
    "template",
    "template_resource",
]
