"""Admission: bytes and requests of all clients are bounded, and a flood delays its own client."""

from __future__ import annotations

import asyncio

import pytest

from chronoline.core.errors import NodeBusy
from chronoline.runtime.admission import Admission, Admitted, client_key
from tests.deadline import run_scene


def _node(patience_s: float = 10) -> Admission:
    """Four requests of ten bytes fit in, or forty small ones; one client has twenty bytes."""
    return Admission(most_bytes=40, most_requests=40, largest_bytes=10, patience_s=patience_s)


async def _begin(node: Admission, client: str, size_bytes: int = 10) -> asyncio.Task[Admitted]:
    task = asyncio.create_task(node.admit(client, size_bytes))
    await asyncio.sleep(0)  # so that it is admitted, or waits
    return task


def test_one_client_waits_for_its_own_share() -> None:
    async def scene() -> None:
        node = _node()
        first, second, third = [await _begin(node, "flood") for _ in range(3)]
        assert [first.done(), second.done(), third.done()] == [True, True, False]
        assert (await _begin(node, "other")).done()
        first.result().end()
        await third
        assert node.under_way_bytes == 30

    run_scene(scene)


def test_full_node_admits_the_smallest_client_first() -> None:
    async def scene() -> None:
        node = _node()
        held = [await node.admit(client, 10) for client in ("a", "a", "b", "c")]
        from_b, from_d = await _begin(node, "b"), await _begin(node, "d")
        held[0].end()
        await from_d
        assert not from_b.done()
        held[1].end()
        await from_b

    run_scene(scene)


def test_small_requests_do_not_keep_a_large_one_out() -> None:
    async def scene() -> None:
        node = _node()
        held = [await node.admit(client, 10) for client in ("a", "b", "c")]
        small = await node.admit("d", 1)
        large = await _begin(node, "large")
        assert not large.done()
        late = await _begin(node, "late", 1)
        assert not late.done()  # it would fit, and came later
        small.end()
        await large
        held[0].end()
        await late

    run_scene(scene)


def test_small_requests_are_bounded_by_their_number() -> None:
    async def scene() -> None:
        node = _node()
        for client in "abcd":
            for _ in range(10):
                await node.admit(client, 0)
        assert not (await _begin(node, "e", 0)).done()

    run_scene(scene)


def test_a_request_that_turns_out_smaller_makes_room() -> None:
    async def scene() -> None:
        node = _node()
        first, _ = [await node.admit("a", 10) for _ in range(2)]
        third = await _begin(node, "a", 5)
        first.shrink(5)
        await third
        first.end()
        first.end()
        assert node.under_way_bytes == 15

    run_scene(scene)


def test_a_request_without_room_in_time_is_refused() -> None:
    async def scene() -> None:
        node = _node(patience_s=0.01)
        held = [await node.admit("a", 10) for _ in range(2)]
        with pytest.raises(NodeBusy, match="nothing was changed"):
            await node.admit("a", 10)
        for each in held:
            each.end()
        await node.admit("a", 10)

    run_scene(scene)


def test_waiting_read_requests_are_bounded() -> None:
    async def scene() -> None:
        node = _node()
        for _ in range(2):
            await node.admit("a", 10)
        waiting = [asyncio.create_task(node.admit("a", 10, read_bytes=10)) for _ in range(4)]
        await asyncio.sleep(0)  # they wait
        with pytest.raises(NodeBusy):
            await node.admit("a", 10, read_bytes=10)
        for each in waiting:
            each.cancel()

    run_scene(scene)


def test_a_request_that_is_given_up_leaves_nothing_behind() -> None:
    async def scene() -> None:
        node = _node()
        held = [await node.admit("a", 10) for _ in range(2)]
        waits, is_admitted = await _begin(node, "a"), await _begin(node, "a")
        waits.cancel()
        held[0].end()  # for the second, which is cancelled in the same turn
        is_admitted.cancel()
        await asyncio.gather(waits, is_admitted, return_exceptions=True)
        held[1].end()
        assert node.under_way_bytes == 0

    run_scene(scene)


def test_clients_are_told_apart_by_token_and_host() -> None:
    assert client_key("t", "10.0.0.1:1", is_local=False) == client_key(
        "t", "10.0.0.1:2", is_local=False
    )
    assert client_key("t", "10.0.0.1:1", is_local=False) != client_key(
        "u", "10.0.0.1:1", is_local=False
    )
    assert client_key("", "127.0.0.1:1", is_local=True) != client_key(
        "", "127.0.0.1:2", is_local=True
    )
