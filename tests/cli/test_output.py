from chronoline.cli.output import count_of, printable, shown_bytes


def test_control_characters_are_not_printed() -> None:
    assert printable("a\x1b[31mb\tc\nd") == "a�[31mb�c�d"
    assert printable("a\tb\nc\r", keep="\n\t") == "a\tb\nc�"
    assert shown_bytes(b"\xff\x1b") == "��"
    assert shown_bytes(None) == "–"


def test_counts_have_plurals_and_separators() -> None:
    counts = [count_of(number, "event") for number in (0, 1, 2, 1_200)]
    assert counts == ["0 events", "1 event", "2 events", "1,200 events"]
