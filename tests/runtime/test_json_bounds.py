"""Bounds on JSON, before it is parsed."""

from __future__ import annotations

import json
import random
import tracemalloc

import pytest

from chronoline.core.errors import InvalidInput
from chronoline.runtime import json_bounds
from chronoline.runtime.json_bounds import MOST_DIGITS, MOST_VALUES, check_json_bounds

_COMMAS = "," * (MOST_VALUES + 1)
_DIGITS = "7" * (MOST_DIGITS + 1)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[" + "[]," * MOST_VALUES + "[]]", "200,000 items"),
        ("[" + "1," * MOST_VALUES + "1]", "200,000 items"),
        ('{"a":1' + ',"a":1' * MOST_VALUES + "}", "200,000 items"),
        ('["' + '","' * MOST_VALUES + '"]', "200,000 items"),
        ("[" + '"",' * 4 * MOST_VALUES + '""]', "200,000 items"),
        ("[" + r'"\\","\"",' * MOST_VALUES + "1]", "200,000 items"),
        ('["' + "x" * 20_000 + f'",{_DIGITS}]', "100 digits"),
        ('["' + "x" * 20_000 + f'",0.{_DIGITS}]', "100 digits"),
        (f'["{_COMMAS}\\\\",{_DIGITS}]', "100 digits"),
        (f'["{_COMMAS}\\"",{_DIGITS}]', "100 digits"),
    ],
)
def test_too_much_is_refused(text: str, reason: str) -> None:
    json.loads(text)  # it is JSON
    with pytest.raises(InvalidInput, match=reason):
        check_json_bounds(text.encode())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[",
        f'["{_COMMAS}"]',
        f'["{_COMMAS} \\\\ \\" {_DIGITS} é"]',
        f'{{"{_COMMAS}": "{_DIGITS}"}}',
        "[" + "[]," * (MOST_VALUES // 2 - 1) + "[]]",
        "[" + f"{_DIGITS[1:]}," * 1_000 + "1]",
        "\ufeff{}",
    ],
)
def test_contents_of_texts_do_not_count(text: str) -> None:
    check_json_bounds(text.encode())


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32-be"])
def test_other_encodings_are_refused(encoding: str) -> None:
    """In them a byte of a character can look like a quotation mark."""
    with pytest.raises(InvalidInput, match="not UTF-8"):
        check_json_bounds('{"∀": 1}'.encode(encoding))


def test_values_are_counted_as_the_parser_finds_them(monkeypatch: pytest.MonkeyPatch) -> None:
    # Private: only generated texts are small, and they are to be counted too.
    monkeypatch.setattr(json_bounds, "_SMALL_BYTES", 0)
    monkeypatch.setattr(json_bounds, "MOST_VALUES", 20)
    choice = random.Random(0)
    for _ in range(2_000):
        text = json.dumps(_any_value(choice, 3), ensure_ascii=False)
        found = _count(json.loads(text))
        try:
            check_json_bounds(text.encode())
        except InvalidInput:
            assert found > 20 or text.count('"') > 80, text
        else:
            assert found <= 20, text


def _any_value(choice: random.Random, depth: int) -> object:
    kinds = ["text", "number"] + (["list", "object"] if depth else [])
    match choice.choice(kinds):
        case "list":
            return [_any_value(choice, depth - 1) for _ in range(choice.randrange(6))]
        case "object":
            size = choice.randrange(6)
            return {_any_text(choice): _any_value(choice, depth - 1) for _ in range(size)}
        case "text":
            return _any_text(choice)
    return choice.randrange(1_000)


def _any_text(choice: random.Random) -> str:
    return "".join(choice.choices('a,[]{}":\\\n∀', k=choice.randrange(8)))


def _count(value: object) -> int:
    """The commas and opening brackets of a value: an empty list or object has one, too."""
    if isinstance(value, dict):
        return 1 + max(0, len(value) - 1) + sum(map(_count, value.values()))
    if isinstance(value, list):
        return 1 + max(0, len(value) - 1) + sum(map(_count, value))
    return 0


def test_check_allocates_little() -> None:
    text = b'["' + b'\\\\,\\"' * 200_000 + b'"]'
    tracemalloc.start()
    check_json_bounds(text)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 3 * len(text)
