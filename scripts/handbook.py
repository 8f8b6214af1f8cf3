"""A hook of MkDocs: files outside docs/ that pages link to are on the site too, and anchors are GitHub's.

Pages are written for the repository, where `../examples/reminders.py` leads to a file. On the site such a
link leads to a page that shows the file, so the handbook is complete without a server of the repository.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
SHOWN = "files"
"""The folder of the site for files that lie outside docs/."""

FENCE = re.compile(r"^ *(```+|~~~+).*?^ *\1 *$", re.M | re.S)
LINK = re.compile(r"(\]\(\s*<?)([^)\s>]+)")
LANGUAGES = {
    ".py": "python",
    ".toml": "toml",
    ".yaml": "yaml",
    ".yml": "yaml",
    ".proto": "protobuf",
}


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Adds a page for each file outside docs/ that a page, or an added page, links to."""
    waiting = [DOCS / each.src_uri for each in files.documentation_pages()]
    added: set[Path] = set()
    while waiting:
        for target in outside_links(waiting.pop()):
            if target not in added:
                added.add(target)
                files.append(File.generated(config, page_of(target), content=shown(target)))
                if target.suffix == ".md" or target.is_dir():
                    waiting.append(target)
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Points links to files outside docs/, and links of added pages, to their place on the site."""
    source = source_of(page.file.src_uri)
    here = posixpath.dirname(page.file.src_uri)

    def point(found: re.Match[str]) -> str:
        target = target_of(source, found[2])
        anchor = found[2].partition("#")[2]
        if target is None:
            return found[0]
        place = posixpath.relpath(page_of(target), here or ".")
        return f"{found[1]}{place}{'#' + anchor if anchor else ''}"

    if page.file.src_uri.startswith(f"{SHOWN}/"):
        page.meta["search"] = {
            "exclude": True
        }  # the search finds pages, not the sources behind them
    return outside_code(markdown, lambda text: LINK.sub(point, text))


def outside_links(source: Path) -> Iterator[Path]:
    text = shown(source) if source.is_dir() else source.read_text("utf-8")
    for found in LINK.finditer(FENCE.sub("", text)):
        target = target_of(source, found[2])
        if target is not None and not target.is_relative_to(DOCS):
            yield target


def target_of(source: Path, link: str) -> Path | None:
    """Returns the file that a link leads to; none for other sites, and for anchors of the same page."""
    path = unquote(link.partition("#")[0])
    if not path or ":" in path:
        return None
    folder = source if source.is_dir() else source.parent
    target = Path(os.path.normpath(folder / path))
    return target if target.exists() and target.is_relative_to(ROOT) else None


def page_of(target: Path) -> str:
    """Returns the place of a file within the sources of the site."""
    if target.is_relative_to(DOCS):
        place = target.relative_to(DOCS).as_posix()
        return f"{place}/index.md" if target.is_dir() else place
    place = f"{SHOWN}/{target.relative_to(ROOT).as_posix()}"
    if target.is_dir():
        return f"{place}/index.md"
    return place if target.suffix == ".md" else f"{place}.md"


def source_of(uri: str) -> Path:
    """Returns the file or folder of which a page is made."""
    if not uri.startswith(f"{SHOWN}/"):
        return DOCS / uri
    place = ROOT / uri.removeprefix(f"{SHOWN}/")
    if place.exists():
        return place
    return place.parent if place.name == "index.md" else place.with_suffix("")


def shown(target: Path) -> str:
    """Returns a page that shows a file, or lists a folder."""
    name = target.relative_to(ROOT).as_posix()
    if target.is_dir():
        names = sorted(each.name for each in target.iterdir() if not each.name.startswith("_"))
        return "\n".join([f"# {name}/", "", *(f"- [{each}]({each})" for each in names), ""])
    text = target.read_text("utf-8")
    if target.suffix == ".md":
        return text
    return f"# {name}\n\n````{LANGUAGES.get(target.suffix, 'text')}\n{text}\n````\n"


def outside_code(markdown: str, change: Any) -> str:
    """Changes the text of a page, and leaves its blocks of code as they are."""
    parts, end = [], 0
    for block in FENCE.finditer(markdown):
        parts += [change(markdown[end : block.start()]), block[0]]
        end = block.end()
    return "".join([*parts, change(markdown[end:])])


def slug(text: str, separator: str) -> str:
    """Returns the anchor of a heading by GitHub's rule, as tests/project/test_docs.py has it."""
    return re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", separator)
