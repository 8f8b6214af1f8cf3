"""Output of commands, for people and for programs: tables, bytes, and text from anywhere."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from chronoline.runtime.terminal_text import json_text, printable

_NO_LIMIT = 1_000_000


def print_table(table: Table, *, most_columns: int = _NO_LIMIT) -> None:
    """Print a table; without a terminal its width has this limit alone, so that no line is folded.

    Cells are plain text: names such as `[a]` or `x:a:b` are no markup and no emoji.
    """
    console = Console(markup=False, emoji=False)
    if not console.is_terminal:
        unlimited = console.options.update(width=_NO_LIMIT)
        width = Measurement.get(console, unlimited, table).maximum
        console = Console(width=min(width, most_columns), markup=False, emoji=False)
    console.print(table)


def print_to_stderr(what: str) -> None:
    """Print to stderr, for people."""
    console = Console(stderr=True, markup=False, emoji=False, highlight=False)
    console.print(printable(what, keep="\n\t"), soft_wrap=True)


@contextmanager
def quiet_when_nobody_reads() -> Iterator[None]:
    """Ends the block when the reader of stdout closes it, as `head` does."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())  # the interpreter flushes once more at the end
        os.close(nowhere)


def count_of(number: int, noun: str) -> str:
    """Such as 1 event, or 1,200 events."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def print_line(text: str) -> None:
    """Print a line for programs, such as an id: as it is, unless a terminal shows it."""
    print(printable(text) if sys.stdout.isatty() else text)


def write_bytes(data: bytes, end: bytes = b"") -> None:
    """Write the bytes of a message to stdout: as they are, unless a terminal shows them."""
    sys.stdout.buffer.write(for_stdout(data) + end)
    sys.stdout.flush()


def for_stdout(data: bytes) -> bytes:
    """Bytes of a message as stdout gets them: a terminal gets text that cannot drive it."""
    if not sys.stdout.isatty():
        return data
    return printable(data.decode("utf-8", "replace"), keep="\n\t").encode()


def shown_bytes(data: bytes | None) -> str:
    """Bytes as one line of text, for people."""
    return "–" if data is None else printable(data.decode("utf-8", "replace"))


def json_line(fields: Mapping[str, object]) -> bytes:
    """An object as a line of JSON, with its line break."""
    return json_text(fields, compact=True).encode() + b"\n"
