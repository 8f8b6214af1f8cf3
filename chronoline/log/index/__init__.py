"""Index engines: order and progress, in SQLite, PostgreSQL or DynamoDB."""
