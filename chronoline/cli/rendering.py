"""Values for people and for programs: tables, bytes, and text that is anybody's."""

from __future__ import annotations

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

_NO_LIMIT = 1_000_000


def print_table(table: Table) -> None:
    """As wide as it needs to be where no terminal shows it; a terminal folds what does not fit."""
    console = Console()
    if not console.is_terminal:
        unlimited = console.options.update(width=_NO_LIMIT)
        console = Console(width=Measurement.get(console, unlimited, table).maximum)
    console.print(table)


def tell(what: str) -> None:
    """To people, beside what is printed for programs."""
    Console(stderr=True).print(what, markup=False, highlight=False, soft_wrap=True)


def printable(text: str, keep: str = "") -> str:
    """Ids, headers and bodies are anybody's: what would move the cursor is not shown as it is."""
    return "".join(
        each if each.isprintable() or each in keep else "\N{REPLACEMENT CHARACTER}" for each in text
    )


def shown_bytes(data: bytes | None) -> str:
    """For people, in a line."""
    return "–" if data is None else printable(data.decode("utf-8", "replace"))
