"""Connections to databases: settings, transactions, errors, schemas. They know no tables.

A package that keeps rows in a database brings its own migrations and named queries, as `.sql` files.
"""
