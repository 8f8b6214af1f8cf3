"""The benches `store` and `bodies`: timelines in SQLite and PostgreSQL, beside the raw engines."""
