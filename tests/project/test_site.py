"""The handbook's site: it builds without a warning, and its pages load nothing from other sites."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts import lateness_picture

ROOT = Path(__file__).parents[2]
LOADED = re.compile(r"<(?:script|img|iframe|link)\b[^>]*?\b(?:src|href)=\"((?:https?:)?//[^\"]+)\"")


def build(folder: Path, config: Path) -> str:
    """Builds a site strictly; returns its output if that fails."""
    run = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "-f",
        str(config),
        "-d",
        str(folder),
    ]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        run, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    return "" if done.returncode == 0 else done.stderr


def loaded_from_elsewhere(folder: Path) -> Iterator[str]:
    for page in sorted(folder.rglob("*.html")):
        for address in LOADED.findall(page.read_text("utf-8")):
            yield f"{page.relative_to(folder)}: {address}"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    assert build(folder, ROOT / "mkdocs.yml") == ""
    return folder


def test_pages_load_nothing_from_other_sites(site: Path) -> None:
    assert list(loaded_from_elsewhere(site)) == []


def test_picture_of_lateness_has_the_figures_of_the_page() -> None:
    page = (lateness_picture.DOCS / "benchmarks.md").read_text("utf-8")
    drawn = lateness_picture.picture(lateness_picture.figures(page))
    assert lateness_picture.TARGET.read_text("utf-8") == drawn, "python -m scripts.lateness_picture"


def test_linked_files_of_the_repository_are_pages(site: Path) -> None:
    shown = (site / "files" / "examples" / "broker_reminders.py.html").read_text("utf-8")
    assert "remind_me" in shown
    assert "files/examples/broker_reminders.py.html" in (site / "sdk.html").read_text("utf-8")


def test_search_finds_pages_and_not_sources(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text("utf-8"))
    places = {entry["location"] for entry in index["docs"]}
    assert any(place.startswith("sdk.html") for place in places)
    assert [place for place in places if place.startswith("files/")] == []


def test_site_is_built_with_versions_of_the_lock() -> None:
    of_site, of_all = (
        set(re.findall(r"^[a-z0-9-]+==\S+", (ROOT / name).read_text("utf-8"), re.M))
        for name in ("requirements-site.lock", "requirements.lock")
    )
    assert any(pin.startswith("mkdocs-material==") for pin in of_site)
    assert of_site <= of_all, "make lock"


def test_broken_link_broken_anchor_and_forgotten_page_fail_the_build(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# A\n[x](gone.md) [y](b.md#gone) [z](b.md#b-it)\n")
    (tmp_path / "docs" / "b.md").write_text("# B: it\n")
    rules = re.search(r"^validation:\n(?: .*\n)+", (ROOT / "mkdocs.yml").read_text(), re.M)
    assert rules
    toc = "markdown_extensions:\n  - toc:\n      slugify: !!python/name:scripts.handbook.slug\n"
    config = tmp_path / "mkdocs.yml"
    config.write_text(f"site_name: x\nplugins: []\n{toc}{rules[0]}nav: [index.md]\n")
    said = build(tmp_path / "site", config)
    assert "'gone.md'" in said
    assert "'#gone'" in said
    assert 'not included in the "nav"' in said
    assert "b-it" not in said


def test_check_finds_what_is_loaded_from_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<script src="https://cdn.test/x.js"></script><a href="https://x.test">fine</a>'
        '<link rel="stylesheet" href="//fonts.test/f.css"><img src="pictures/flow.svg">'
    )
    assert list(loaded_from_elsewhere(tmp_path)) == [
        "a.html: https://cdn.test/x.js",
        "a.html: //fonts.test/f.css",
    ]
