"""The outbox: the size of a write, and the limit of waiting frames."""

from __future__ import annotations

import asyncio

import pytest

import chronoline.broker.grpc.client_stream as module
from chronoline.broker.grpc.client_stream import Outbox


def test_waiting_frames_are_taken_together_in_order() -> None:
    async def play() -> None:
        outbox: Outbox[int] = Outbox()
        for number in range(3):
            outbox.put(number)
        assert await outbox.take() == [0, 1, 2]
        taking = asyncio.ensure_future(outbox.take())
        await asyncio.sleep(0)  # it begins to wait
        outbox.put(3)
        assert await taking == [3]

    asyncio.run(play())


def test_take_is_bounded_in_number_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    # No setting: a small bound is reached soon.
    monkeypatch.setattr(module, "_TOGETHER", 3)
    # No setting: a small bound is reached soon.
    monkeypatch.setattr(module, "_TOGETHER_BYTES", 100)

    async def play() -> None:
        outbox: Outbox[str] = Outbox()
        for size_bytes in (0, 0, 0, 60, 40, 1, 1_000, 2):
            outbox.put(f"{size_bytes}", size_bytes)
        together = [await outbox.take() for _ in range(4)]
        assert together == [["0", "0", "0"], ["60", "40"], ["1"], ["1000"]]
        assert await outbox.take() == ["2"]

    asyncio.run(play())


def test_outbox_is_clogged_until_enough_is_taken() -> None:
    async def play() -> None:
        outbox: Outbox[str] = Outbox()
        # The bound that is tested.
        outbox.put("large", module._CLOGGED_BYTES)
        assert not outbox.clogged
        outbox.put("one more", 1)
        assert outbox.clogged
        assert await outbox.take() == ["large"]
        assert not outbox.clogged

    asyncio.run(play())


def test_closed_outbox_gives_only_what_waits() -> None:
    async def play() -> None:
        outbox: Outbox[str] = Outbox()
        outbox.put("last words")
        outbox.close()
        outbox.put("too late")
        assert await outbox.take() == ["last words"]
        assert await outbox.take() == []

    asyncio.run(play())


def test_when_taken_calls_back_after_the_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_TOGETHER", 1)

    async def play() -> None:
        outbox: Outbox[str] = Outbox()
        told: list[str] = []
        outbox.when_taken(lambda: told.append("nothing waited"))
        for each in ("a", "b"):
            outbox.put(each)
            outbox.when_taken(lambda each=each: told.append(each))  # type: ignore[misc]  # of this turn
        assert told == ["nothing waited"]
        assert await outbox.take() == ["a"]
        assert told == ["nothing waited", "a"]
        assert await outbox.take() == ["b"]
        assert told == ["nothing waited", "a", "b"]

    asyncio.run(play())
