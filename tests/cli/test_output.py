import pytest
from rich.table import Table

from chronoline.cli.output import count_of, print_table, print_to_stderr, shown_bytes
from chronoline.runtime.terminal_text import printable


def test_control_characters_are_not_printed() -> None:
    assert printable("a\x1b[31mb\tc\nd") == "a�[31mb�c�d"
    assert printable("a\tb\nc\r", keep="\n\t") == "a\tb\nc�"
    assert shown_bytes(b"\xff\x1b") == "��"
    assert shown_bytes(None) == "–"


def test_counts_have_plurals_and_separators() -> None:
    counts = [count_of(number, "event") for number in (0, 1, 2, 1_200)]
    assert counts == ["0 events", "1 event", "2 events", "1,200 events"]


def test_names_are_no_markup_and_no_emoji(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table()
    table.add_row("produce:a:b [red]x[/red]")
    print_table(table)
    print_to_stderr("'produce:a:b [red]x[/red]'")
    printed = capsys.readouterr()
    assert "produce:a:b [red]x[/red]" in printed.out
    assert printed.err == "'produce:a:b [red]x[/red]'\n"
