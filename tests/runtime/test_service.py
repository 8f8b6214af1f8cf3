"""A block starts a service and stops it, whatever happens inside."""

from __future__ import annotations

import asyncio

import pytest

from chronoline.runtime.service import AsyncService, Service


class Lamp(Service):
    def __init__(self) -> None:
        self.is_on = False

    def start(self) -> None:
        self.is_on = True

    def stop(self) -> None:
        self.is_on = False


class AsyncLamp(AsyncService):
    def __init__(self) -> None:
        self.is_on = False

    async def start(self) -> None:
        self.is_on = True

    async def stop(self) -> None:
        self.is_on = False


def test_block_starts_and_stops() -> None:
    with Lamp() as lamp:
        assert lamp.is_on
    assert not lamp.is_on


def test_failing_block_stops_too() -> None:
    lamp = Lamp()
    with pytest.raises(KeyError), lamp:
        raise KeyError
    assert not lamp.is_on


def test_async_block_starts_and_stops() -> None:
    async def play() -> None:
        lamp = AsyncLamp()
        async with lamp:
            assert lamp.is_on
        assert not lamp.is_on

    asyncio.run(play())
