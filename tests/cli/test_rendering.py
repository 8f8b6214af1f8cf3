from chronoline.cli.rendering import printable, shown_bytes


def test_what_would_move_the_cursor_is_not_shown() -> None:
    assert printable("a\x1b[31mb\tc\nd") == "a�[31mb�c�d"
    assert printable("a\tb\nc\r", keep="\n\t") == "a\tb\nc�"
    assert shown_bytes(b"\xff\x1b") == "��"
    assert shown_bytes(None) == "–"
