"""Optional libraries: the error for a missing one has the command that installs it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from chronoline.core.errors import MissingExtra


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
