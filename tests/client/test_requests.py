"""The queue of requests: the contents and the order of frames."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from chronoline.client.requests import FrameLimits, Part, Request, RequestQueue
from chronoline.core.errors import InvalidInput

_LOOP = asyncio.new_event_loop()
_LOOP.close()  # futures need a loop; no task awaits these
_LIMITS = FrameLimits(items=10, size_bytes=100, most_bytes=1_000)


def _request(kind: str, sizes_bytes: Sequence[int]) -> Request:
    items = [f"{kind}{number}" for number in range(len(sizes_bytes))]
    return Request(kind, items, sizes_bytes, asyncio.Future(loop=_LOOP))


def _part(request: Request) -> Part:
    return Part(request, 0, len(request.items))


def _drain(line: RequestQueue) -> list[list[Part]]:
    frames = []
    while line:
        frame = line.take(_LIMITS)
        for part in frame:
            part.left()
        frames.append(frame)
    return frames


@given(st.lists(st.tuples(st.sampled_from("ab"), st.lists(st.integers(1, 1_000), min_size=1))))
def test_frames_keep_the_order_and_the_limits(
    asked: list[tuple[str, list[int]]],
) -> None:
    line = RequestQueue()
    requests = [_request(kind, sizes_bytes) for kind, sizes_bytes in asked]
    for request in requests:
        line.add(_part(request))
    frames = _drain(line)
    for frame in frames:
        sizes = [part.request.sizes_bytes[n] for part in frame for n in range(part.begin, part.end)]
        assert 1 <= len(sizes) <= _LIMITS.items
        assert sum(sizes) <= _LIMITS.size_bytes or len(sizes) == 1
        assert len({part.request.kind for part in frame}) == 1
    for kind in "ab":
        left = [
            (requests.index(part.request), number)
            for frame in frames
            for part in frame
            for number in range(part.begin, part.end)
            if part.request.kind == kind
        ]
        assert left == [
            (place, number)
            for place, request in enumerate(requests)
            if request.kind == kind
            for number in range(len(request.items))
        ]


def test_kinds_of_requests_take_turns() -> None:
    line = RequestQueue()
    line.add(_part(_request("a", [1] * 50)))
    line.add(_part(_request("b", [1])))
    kinds = [frame[0].request.kind for frame in _drain(line)]
    assert kinds == ["a", "b", "a", "a", "a", "a"]


def test_answers_of_parts_keep_the_order_of_items() -> None:
    line = RequestQueue()
    request = _request("a", [1] * 25)
    line.add(_part(request))
    frames = _drain(line)
    for frame in reversed(frames):
        (part,) = frame
        assert not request.done
        part.answered([f"{item}!" for item in part.items])
    assert request.future.result() == [f"{item}!" for item in request.items]


def test_abandoned_request_is_not_sent() -> None:
    line = RequestQueue()
    gone, kept = _request("a", [1]), _request("a", [1])
    line.add(_part(gone))
    line.add(_part(kept))
    gone.future.cancel()
    assert [[part.request for part in frame] for frame in _drain(line)] == [[kept]]


def test_dropped_request_leaves_the_line() -> None:
    line = RequestQueue()
    gone, kept = _request("a", [1] * 25), _request("a", [1])
    line.add(_part(gone))
    line.add(_part(kept))
    line.add_first(line.take(_LIMITS))  # it waits in two parts
    line.drop(gone)
    assert [part.request for part in line.parts] == [kept]
    line.drop(kept)
    line.drop(kept)
    assert not line


def test_oversized_item_fails_its_whole_request_unsent() -> None:
    line = RequestQueue()
    request = _request("a", [1] * 30 + [1_001])
    other = _request("a", [1])
    line.add(_part(request))
    line.add(_part(other))
    assert [[part.request for part in frame] for frame in _drain(line)] == [[other]]
    assert isinstance(request.future.exception(), InvalidInput)
    assert request.sent == 0


def test_returned_part_counts_as_unsent() -> None:
    request = _request("a", [1])
    part = _part(request)
    part.left()
    part.left()
    part.turned_back()
    assert (part.sent, request.sent) == (1, 1)
    part.turned_back()
    assert request.sent == 0
