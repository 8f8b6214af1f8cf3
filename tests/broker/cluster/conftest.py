"""Fixtures: the coordination services of the clusters."""

from tests.coordination.engines import engine

__all__ = ["engine"]
