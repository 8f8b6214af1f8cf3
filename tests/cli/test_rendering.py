from chronoline.cli.rendering import json_bytes, printable, shown_bytes


def test_what_would_move_the_cursor_is_not_shown() -> None:
    assert printable("a\x1b[31mb\tc\nd") == "a�[31mb�c�d"
    assert printable("a\tb\nc\r", keep="\n\t") == "a\tb\nc�"
    assert shown_bytes(b"\xff\x1b") == "��"
    assert shown_bytes(None) == "–"


def test_bytes_are_text_where_they_can_be() -> None:
    assert json_bytes("ä".encode()) == "ä"
    assert json_bytes(b"") == ""
    assert json_bytes(b"\xff") == {"base64": "/w=="}
    assert json_bytes(None) is None
