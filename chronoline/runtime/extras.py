"""Optional libraries: a missing one is answered with the command that installs it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from chronoline.core.errors import MissingExtra


@contextmanager
def needs(what: str, extra: str) -> Iterator[None]:
    """Imports inside raise `MissingExtra` where a library of this extra is not installed.

    A missing module of our own, or a missing name, is a defect and stays the error that it is.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "chronoline").partition(".")[0] == "chronoline":
            raise
        raise MissingExtra(f"{what} needs: pip install 'chronoline[{extra}]'") from error
