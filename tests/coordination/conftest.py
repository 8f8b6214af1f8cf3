"""Fixtures: the engines of the coordination service."""

from tests.coordination.engines import engine

__all__ = ["engine"]
