"""Docstrings, comments and documentation are plain technical English, as far as a check can find."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("chronoline", "bench", "scripts", "examples", "tests")
PAGES = ("README.md", "CONTRIBUTING.md", "docs")

BEGINNING = re.compile(r"(?:^|(?<=[.:;] ))(?:What|Whoever|Those|Who)\b(?![^.]*\?)")
PHRASE = re.compile(
    r"\b[Ww]hoever\b|\bso (?:many|long|often)\b(?! as\b)|\bfor as long as that is\b|\bgone by\b"
    r"|\b(?:is|are|was|were|be|been) told\b|\bsomebody\b|\bfor ever\b|\bspeaks? against\b|\bcomes? round\b",
    re.I,
)
FENCE = re.compile(r"^ *```.*?^ *```", re.M | re.S)


def texts_of(source: str) -> Iterator[tuple[int, str]]:
    """Yields docstrings, other bare strings and comments, each with its line."""
    for node in ast.walk(ast.parse(source)):
        value = node.value if isinstance(node, ast.Expr) else None
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            yield value.lineno, value.value
    if any(problems_of(each) for each in possible_comments(source)):
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string.lstrip("#! ")


def possible_comments(source: str) -> Iterator[str]:
    """Yields all comments, and parts of strings: tokens, which tell them apart, take ten times as long."""
    for line in source.split("\n"):
        for found in re.finditer("#", line):
            yield line[found.end() :].lstrip("#! ")


def problems_of(text: str) -> list[str]:
    """Returns the beginnings and phrases of a text that are not plain English."""
    plain = " ".join(text.split())
    return [found[0] for found in (*BEGINNING.finditer(plain), *PHRASE.finditer(plain))]


def problems_in_code(room: Path) -> Iterator[str]:
    for path in sorted(room.rglob("*.py")):
        if path.name.endswith("_pb2.py") or any(part.startswith(".") for part in path.parts):
            continue
        for line, text in texts_of(path.read_text("utf-8")):
            for problem in problems_of(text):
                yield f"{path.relative_to(ROOT)}:{line}: {problem!r} in {text.strip()[:80]!r}"


def problems_in_page(page: Path) -> Iterator[str]:
    for paragraph in re.split(r"\n\s*\n|\n(?=[-|#])", FENCE.sub("", page.read_text("utf-8"))):
        for cell in paragraph.split("|"):
            for problem in problems_of(cell.lstrip("-# *")):
                yield f"{page.relative_to(ROOT)}: {problem!r} in {cell.strip()[:80]!r}"


@pytest.mark.parametrize("room", ROOMS)
def test_code_reads_as_plain_english(room: str) -> None:
    assert list(problems_in_code(ROOT / room)) == []


@pytest.mark.parametrize("page", PAGES)
def test_documentation_reads_as_plain_english(page: str) -> None:
    path = ROOT / page
    pages = [path] if path.is_file() else sorted(path.rglob("*.md"))
    assert pages
    assert [problem for each in pages for problem in problems_in_page(each)] == []


@pytest.mark.parametrize(
    "text",
    [
        "What a node counts.",
        "Whoever comes last has it.",
        "The line is lost. Those who wait are woken.",
        "After so many attempts it is given up.",
        "The node was told of two timers.",
    ],
)
def test_riddles_are_found(text: str) -> None:
    assert problems_of(text)


@pytest.mark.parametrize(
    "text",
    [
        "The counts of a node.",
        "What happens when a broker dies?",
        "The latest subscriber owns the name.",
        "It stays open so long as the client reads.",
    ],
)
def test_plain_sentences_pass(text: str) -> None:
    assert problems_of(text) == []


# Names

OF_THE_SDK_AND_THE_STORE = {
    "DeadLetter",
    "Lease",
    "Message",
    "Outcome",
    "Pause",
    "Schedule",
    "Topic",
    "TopicSettings",
}
"""Users of the SDK and of a store meet each of them under one name: once in `client`, once in `core`."""
NO_VERBS = {"BucketMissing", "Finding", "ObjectMissing", "TableMissing"}
"""Classes that end in -ing, and are nouns or adjectives."""


@cache
def classes_of(room: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / room).rglob("*.py")):
        if not path.name.endswith("_pb2.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.ClassDef):
                    found.setdefault(node.name, []).append(
                        f"{path.relative_to(ROOT)}:{node.lineno}"
                    )
    return found


def test_class_names_are_unique() -> None:
    twice = [
        f"{name} in {', '.join(places)}"
        for name, places in classes_of("chronoline").items()
        if len(places) > 1
        and (
            name not in OF_THE_SDK_AND_THE_STORE
            or sorted(place.split("/")[1] for place in places) != ["client", "core"]
        )
    ]
    assert twice == []


def test_classes_are_named_by_nouns() -> None:
    classes = classes_of("chronoline").items()
    assert [
        places for name, places in classes if name.endswith("ing") and name not in NO_VERBS
    ] == []


VERB = re.compile(r"ing(?:_module)?$")


def verbs_in(source: str) -> list[str]:
    """Returns the aliases of imports that are named as activities."""
    if not re.search(r"\bas\s+\w*ing(?:_module)?\b", source):
        return []
    return [
        alias.asname
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
        if alias.asname and VERB.search(alias.asname)
    ]


@pytest.mark.parametrize("room", ROOMS)
def test_modules_are_not_imported_as_verbs(room: str) -> None:
    paths = sorted((ROOT / room).rglob("*.py"))
    found = {str(path.relative_to(ROOT)): verbs_in(path.read_text("utf-8")) for path in paths}
    assert {path: aliases for path, aliases in found.items() if aliases} == {}


def test_alias_that_is_a_verb_is_found() -> None:
    source = "from a import b as sending_module\nimport c as king_maker, d as asking\n"
    assert verbs_in(source) == ["sending_module", "asking"]
    assert verbs_in("with a as sending:\n    pass\n") == []


def test_comment_with_a_riddle_is_found() -> None:
    source = 'text = "# What it is."  # Whoever asks.\n'
    assert [problems_of(text) for _, text in texts_of(source)] == [["Whoever", "Whoever"]]
    assert list(texts_of('text = "# What it is."\n')) == []
