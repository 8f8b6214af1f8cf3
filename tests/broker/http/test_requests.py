"""Long lists are worked through piece by piece."""

from __future__ import annotations

import asyncio

import pytest
from fastapi.exceptions import RequestValidationError

from chronoline.broker.http.requests import LeaseRef, checked, in_slices


def test_long_list_yields_to_other_tasks() -> None:
    async def play() -> None:
        seen: list[int] = []
        done: list[int] = []

        async def other() -> None:
            while True:
                seen.append(len(done))
                await asyncio.sleep(0)  # its turn is over

        turning = asyncio.ensure_future(other())
        assert await in_slices(range(350), done.append) == [None] * 350
        turning.cancel()
        assert seen == [100, 200, 300]

    asyncio.run(play())


def test_bad_item_is_named_by_its_index() -> None:
    async def play() -> None:
        items = [{"id": "a", "version": 1}, {"id": "b", "version": 2.0}]
        assert [each.version for each in await checked(LeaseRef, items, "leases")] == [1, 2]
        with pytest.raises(RequestValidationError) as told:
            await checked(LeaseRef, [*items, {"id": "c"}], "leases")
        assert told.value.errors()[0]["loc"] == ("body", "leases", 2, "version")

    asyncio.run(play())
