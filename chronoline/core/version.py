"""The version of Chronoline; `pyproject.toml` has the same."""

VERSION = "0.1.0"
