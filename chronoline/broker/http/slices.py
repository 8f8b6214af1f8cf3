"""Long lists, piece by piece: pushes must not wait until thousands of messages were read or told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError

_SLICE = 100
"""A millisecond or two."""

Item = TypeVar("Item")
Result = TypeVar("Result")
Shape = TypeVar("Shape", bound=BaseModel)


async def in_slices(items: Iterable[Item], work: Callable[[Item], Result]) -> list[Result]:
    """Does something with each; others have their turn in between."""
    results: list[Result] = []
    for number, item in enumerate(items, 1):
        results.append(work(item))
        if number % _SLICE == 0:
            await asyncio.sleep(0)  # others have their turn
    return results


async def checked(shape: type[Shape], items: Sequence[Any], name: str) -> list[Shape]:
    """Items of a request, which were left as they came. Raises `RequestValidationError`."""

    def check(place: int) -> Shape:
        try:
            return shape.model_validate(items[place])
        except ValidationError as error:
            faults = error.errors(include_url=False, include_input=False)
            for fault in faults:
                fault["loc"] = ("body", name, place, *fault["loc"])
            raise RequestValidationError(faults) from None

    return await in_slices(range(len(items)), check)
