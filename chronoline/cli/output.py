"""Output of commands, for people and for programs: tables, bytes, and text from anywhere."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

_NO_LIMIT = 1_000_000


def print_table(table: Table) -> None:
    """Print a table; without a terminal its width is unlimited, so that no line is folded.

    Cells are plain text: names such as `[a]` or `x:a:b` are no markup and no emoji.
    """
    console = Console(markup=False, emoji=False)
    if not console.is_terminal:
        unlimited = console.options.update(width=_NO_LIMIT)
        width = Measurement.get(console, unlimited, table).maximum
        console = Console(width=width, markup=False, emoji=False)
    console.print(table)


def print_to_stderr(what: str) -> None:
    """Print to stderr, for people."""
    console = Console(stderr=True, markup=False, emoji=False, highlight=False)
    console.print(what, soft_wrap=True)


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


def printable(text: str, keep: str = "") -> str:
    """Untrusted text, without characters that would move the cursor."""
    return "".join(
        each if each.isprintable() or each in keep else "\N{REPLACEMENT CHARACTER}" for each in text
    )


def shown_bytes(data: bytes | None) -> str:
    """Bytes as one line of text, for people."""
    return "–" if data is None else printable(data.decode("utf-8", "replace"))


def json_line(fields: Mapping[str, object]) -> bytes:
    """An object as a line of JSON, with its line break."""
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
