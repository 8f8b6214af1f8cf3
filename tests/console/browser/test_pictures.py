"""The drawings of the handbook, in a browser."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Page

WIDE_PX = 748
"""A picture's width in the site, on a wide screen."""
PICTURES = Path(__file__).parents[3] / "docs" / "pictures"
CUT_TEXTS = """() => {
  const picture = document.documentElement.getBoundingClientRect();
  return [...document.querySelectorAll("text")].filter((text) => {
    const box = text.getBoundingClientRect();
    return box.left < picture.left || box.right > picture.right
      || box.top < picture.top || box.bottom > picture.bottom;
  }).map((text) => text.textContent);
}"""


def cut_texts(page: Page, picture: Path) -> list[str]:
    page.goto(picture.as_uri())
    page.evaluate(
        """(wide) => {
        const { width, height } = document.documentElement.viewBox.baseVal;
        document.documentElement.setAttribute("width", wide);
        document.documentElement.setAttribute("height", wide * height / width);
    }""",
        WIDE_PX,
    )
    found: list[str] = page.evaluate(CUT_TEXTS)
    return found


def test_no_text_leaves_its_picture(page: Page) -> None:
    drawings = sorted(PICTURES.glob("*.svg"))
    assert drawings
    cut = {each.name: texts for each in drawings if (texts := cut_texts(page, each))}
    assert cut == {}


def test_cut_text_is_found(page: Page, tmp_path: Path) -> None:
    picture = tmp_path / "cut.svg"
    picture.write_text(
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 200 40">'
        '<text x="20" y="20">whole</text><text x="180" y="20">too long</text></svg>'
    )
    assert cut_texts(page, picture) == ["too long"]
