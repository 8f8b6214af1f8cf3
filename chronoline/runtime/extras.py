"""Optional libraries: the error for a missing one has the command that installs it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from chronoline.core.errors import MissingExtra

Result = TypeVar("Result")

_MOST_TRIES = 10


@contextmanager
def needs(what: str, extra: str) -> Iterator[None]:
    """A context in which the import of a missing library of this extra raises `MissingExtra`.

    A missing module of Chronoline, or a missing name, is a defect and keeps its error.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "chronoline").partition(".")[0] == "chronoline":
            raise
        raise MissingExtra(f"{what} needs: pip install 'chronoline[{extra}]'") from error


def beside_imports(work: Callable[[], Result]) -> Result:
    """Calls a function that imports optional libraries, while other threads may import the same.

    A thread that imports a module at the moment at which this fails in another one gets a part of the module,
    so that a name is missing in it. Then the function is called again, and says what is missing.
    """
    for _ in range(_MOST_TRIES - 1):
        try:
            return work()
        except ModuleNotFoundError:
            raise
        except ImportError:
            continue
    return work()
