"""The documentation: links and paths are valid, examples compile, no machine or registry is named."""

import ast
import fnmatch
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parents[2]

FENCE = re.compile(
    r"^ *(?P<fence>```+|~~~+)(?P<info>[^\n]*)\n(?P<body>.*?)^ *(?P=fence) *$", re.M | re.S
)
CODE_SPAN = re.compile(r"(`+).+?\1")
HEADING = re.compile(r"^#{1,6} +(.+?)(?: +#+)? *$", re.M)
NAMED_ANCHOR = re.compile(r"<a\s+(?:id|name)=\"([^\"]+)\"")
LINK = re.compile(
    r"\]\(\s*<?([^)\s>]+)>?(?:\s+[\"'][^)]*)?\)"  # [text](target "title")
    r"|^ *\[[^\]^]+\]: +<?([^\s>]+)"  # [label]: target
    r"|\b(?:href|src)=\"([^\"]+)\"",
    re.M,
)
SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:", re.I)

MACHINE_PATH = re.compile(r"(?<![\w~.])/(?:work|root|home|Users)/")
REGISTRY = re.compile(
    r"https?://[^\s/]*(?:pypi|pythonhosted|registry|maven|artifactory|nexus|mirror)"
    r"|https?://\S+/simple\b"
    r"|--(?:extra-)?index-url|--find-links|--trusted-host"
)


CODE = re.compile(r"(`+)(.+?)\1")
FILE = re.compile(r"(?<![\w.*/-])[\w.*/-]*\w\.(?:py|sql|proto)\b(?!\.)")
FOLDER = re.compile(r"(?<![\w.*/-])\w+(?:/\w+)*/(?![\w.*{])")
DOTTED = re.compile(r"(?<![\w/.])chronoline(?:_bench)?(?:\.(?!proto\b)\w+)+")
NOT_OURS = {
    "first.py": "the reader of README makes it",
    "remind.py": "the reader of the tutorial makes it",
    "chronoline.identity": "a table in PostgreSQL",
    "chronoline.commands": "a group of entry points",
    "chronoline.notify": "a setting of PostgreSQL",
    "chronoline.send": "a function in SQL",
    "chronoline.v1": "the package of the protocol",
}


def visible(root: Path, *patterns: str) -> list[Path]:
    """Files that match, outside of hidden folders such as `.venv`."""
    found = (path for pattern in patterns for path in root.rglob(pattern))
    return sorted(
        path for path in found if not any(p.startswith(".") for p in path.relative_to(root).parts)
    )


def prose(text: str) -> str:
    """Returns the text without code, in which brackets and `#` have another meaning."""
    return CODE_SPAN.sub("", FENCE.sub("", text))


def anchors(page: Path) -> set[str]:
    """Returns the anchors of a page: its headings, by GitHub's rule, and anchors set by hand."""
    if page.suffix != ".md":
        return set()
    text = page.read_text("utf-8")
    found: set[str] = set()
    seen: Counter[str] = Counter()
    for heading in HEADING.findall(FENCE.sub("", text)):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return found | set(NAMED_ANCHOR.findall(text))


def broken_links(root: Path) -> Iterator[str]:
    for page in visible(root, "*.md"):
        for groups in LINK.findall(prose(page.read_text("utf-8"))):
            link = "".join(groups)
            if SCHEME.match(link):
                continue
            path, _, anchor = unquote(link).partition("#")
            target = (page.parent / path).resolve() if path else page
            where = f"{page.relative_to(root)}: {link}"
            if not target.is_relative_to(root) or not target.exists():
                yield f"{where} leads nowhere"
            elif anchor and anchor not in anchors(target):
                yield f"{where} names no heading"


def wrong_paths(root: Path) -> Iterator[str]:
    """Yields the files, folders, modules and names of ours that a page names and that do not exist."""
    parts = [path.relative_to(root).parts for path in visible(root, "*")]
    ends = {"/".join(each[begin:]) for each in parts for begin in range(len(each))}
    for page in visible(root, "*.md"):
        if page.name == "CHANGELOG.md":  # it names what was
            continue
        text = FENCE.sub("", page.read_text("utf-8"))
        for span in (found[1] for found in CODE.findall(text)):
            named = [*FILE.findall(span), *FOLDER.findall(span)]
            missing = [each for each in named if not fnmatch.filter(ends, each.rstrip("/"))]
            missing += [each for each in DOTTED.findall(span) if not is_ours(root, each)]
            yield from (
                f"{page.relative_to(root)}: {each}" for each in missing if each not in NOT_OURS
            )


def is_ours(root: Path, name: str) -> bool:
    """Whether a dotted name is a module, or a name that stands in one."""
    package, *rest = name.split(".")
    place = root / "bench" / package if package == "chronoline_bench" else root / package
    while rest and (place / rest[0]).is_dir():
        place /= rest.pop(0)
    if rest and (place / f"{rest[0]}.py").exists():
        place /= f"{rest.pop(0)}.py"
    module = place / "__init__.py" if place.is_dir() else place
    text = module.read_text("utf-8") if module.exists() else ""
    return not rest or bool(re.search(rf"\b{rest[0]}\b", text))


def local_names(root: Path) -> Iterator[str]:
    """Yields lines with paths of one machine, or with names of package registries."""
    for path in visible(root, "*.md", "*.toml", "*.lock", "Makefile"):
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            lock_with_address = path.suffix == ".lock" and "://" in line
            if lock_with_address or MACHINE_PATH.search(line) or REGISTRY.search(line):
                yield f"{path.relative_to(root)}:{number}: {line.strip()}"


def uncompilable_examples(root: Path) -> Iterator[str]:
    pages = [page for page in [root / "README.md"] if page.exists()]
    for page in [*pages, *visible(root, "docs/**/*.md")]:
        text = page.read_text("utf-8")
        for block in FENCE.finditer(text):
            if block["info"].split()[:1] != ["python"]:
                continue
            first_line = text.count("\n", 0, block.start("body"))
            try:
                # The padding lets the error name the line of the page.
                source = "\n" * first_line + block["body"]
                compile(source, page.name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            except SyntaxError as error:
                yield f"{page.relative_to(root)}:{error.lineno}: {error.msg}"


def test_links_lead_to_files_and_headings() -> None:
    assert list(broken_links(ROOT)) == []


def test_paths_in_pages_exist() -> None:
    assert list(wrong_paths(ROOT)) == []


def test_no_machine_or_registry_is_named() -> None:
    assert list(local_names(ROOT)) == []


def test_python_examples_compile() -> None:
    assert list(uncompilable_examples(ROOT)) == []


# Tests of these checks, on a small repository with known faults.


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")


def test_link_check_finds_broken_links_only(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "README.md": "# Top\n[a](docs/a.md) [b](docs/a.md#what-it-is-1) [c](#top) [d](https://x.test/#y)\n"
            "[e](docs/gone.md) [f](docs/a.md#gone) [g](#gone) ![h](gone.png) [i](../outside.md)\n"
            "[label]: docs/lost.md\n`[x](code.md)`\n```\n# Code\n[y](code.md)\n```\n[j](#code)\n",
            "docs/a.md": "## What it is\n## What it *is*\n[up](../README.md 'title')\n",
            ".hidden/x.md": "[x](gone.md)\n",
        },
    )
    assert list(broken_links(tmp_path)) == [
        "README.md: docs/gone.md leads nowhere",
        "README.md: docs/a.md#gone names no heading",
        "README.md: #gone names no heading",
        "README.md: gone.png leads nowhere",
        "README.md: ../outside.md leads nowhere",
        "README.md: docs/lost.md leads nowhere",
        "README.md: #code names no heading",
    ]


def test_path_check_finds_wrong_paths_only(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "chronoline/__init__.py": "",
            "chronoline/core/__init__.py": "",
            "chronoline/core/agenda.py": "class Agenda: ...\n",
            "README.md": "`core/agenda.py` `agenda.py` `core/*.py` `core/` `chronoline.core.agenda.Agenda`\n"
            "`core/gone.py` `core/agenda.sql`, `gone/`, `chronoline.gone`, `chronoline.core.agenda.Plan`\n"
            "plain/words.py `/v1/topics` `a.b`\n```\n`x/code.py`\n```\n",
            "CHANGELOG.md": "`core/old.py`\n",
        },
    )
    assert list(wrong_paths(tmp_path)) == [
        "README.md: core/gone.py",
        "README.md: core/agenda.sql",
        "README.md: gone/",
        "README.md: chronoline.gone",
        "README.md: chronoline.core.agenda.Plan",
    ]


@pytest.mark.parametrize(
    ("heading", "anchor"),
    [
        ("Timeline: the rules", "timeline-the-rules"),
        ("`core` & stores", "core--stores"),
        ("reserve_ahead_ms", "reserve_ahead_ms"),
        ("See [the log](log.md)!", "see-the-log"),
        ("Größe – 10 %", "größe--10-"),
    ],
)
def test_anchors_follow_the_rule_of_github(tmp_path: Path, heading: str, anchor: str) -> None:
    write(tmp_path, {"a.md": f"# {heading}\n"})
    assert anchors(tmp_path / "a.md") == {anchor}


# In two pieces, so that the check does not find them here.
HOMES, ROOTS_HOME = "/" + "home", "/" + "root"


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("docs/a.md", f"see {HOMES}/me/notes"),
        ("a.toml", f'store = "sqlite:///{ROOTS_HOME}/x.db"'),
        ("Makefile", "\tpip install --index-url $(INDEX) x"),
        ("x.toml", 'url = "https://mirror.test/packages"'),
        ("requirements.lock", "x @ https://host.test/x.whl"),
    ],
)
def test_name_check_finds_machines_and_registries(tmp_path: Path, name: str, line: str) -> None:
    write(tmp_path, {name: f"fine\n{line}\n", "ok.md": f"https://x.test{HOMES}/page and ~/x\n"})
    assert list(local_names(tmp_path)) == [f"{name}:2: {line.strip()}"]


def test_example_check_names_the_line(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "README.md": "# X\n```python\nawait fine()\n```\n```text\nnot python\n```\n",
            "docs/deep/a.md": "# X\n\n```python\nx = 1\nx = = 2\n```\n",
        },
    )
    assert list(uncompilable_examples(tmp_path)) == ["docs/deep/a.md:5: invalid syntax"]
