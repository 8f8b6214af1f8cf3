import io

from rich.console import Console

from chronoline.cli.progress import showing


def test_long_work_shows_progress_and_clears_it() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    with showing("appended", console=console, after_s=0) as advance:
        advance(1_200)
    shown = console.file.getvalue()  # type: ignore[attr-defined]  # it is a StringIO
    assert "appended" in shown
    assert "1,200" in shown
    assert shown.endswith("\x1b[2K")


def test_parts_of_a_whole_are_shown() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    with showing("partitions", 8, console=console, after_s=0) as advance:
        advance(3)
    assert "3/8" in console.file.getvalue()  # type: ignore[attr-defined]  # it is a StringIO


def test_short_work_shows_nothing() -> None:
    console = Console(file=io.StringIO(), force_terminal=True)
    with showing("appended", console=console, after_s=3_600) as advance:
        advance(1)
    assert console.file.getvalue() == ""  # type: ignore[attr-defined]  # it is a StringIO


def test_progress_needs_a_terminal() -> None:
    console = Console(file=io.StringIO(), force_terminal=False)
    with showing("appended", console=console, after_s=0) as advance:
        advance(1)
    assert console.file.getvalue() == ""  # type: ignore[attr-defined]  # it is a StringIO
