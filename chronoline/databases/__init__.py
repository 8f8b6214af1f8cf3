"""Connections to databases: settings, transactions, errors, schemas. They know no tables.

What keeps its rows in a database brings its own migrations and named queries, as `.sql` files in its package.
"""
