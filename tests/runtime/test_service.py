"""A block starts a service and stops it, or closes an object, whatever happens inside."""

from __future__ import annotations

import asyncio

import pytest

from chronoline.runtime.service import AsyncService, Closing, Service


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


class Door(Closing):
    closed = 0

    def close(self) -> None:
        self.closed += 1


def test_block_closes_at_its_end() -> None:
    with Door() as door:
        assert door.closed == 0
    assert door.closed == 1


def test_failing_block_closes_too() -> None:
    door = Door()
    with pytest.raises(KeyError), door:
        raise KeyError
    assert door.closed == 1


def test_close_must_be_implemented() -> None:
    with pytest.raises(TypeError, match="close"):
        Closing()  # type: ignore[abstract]  # on purpose
