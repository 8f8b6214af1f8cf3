"""Draws docs/pictures/lateness.svg by docs/benchmarks.md: `python -m scripts.lateness_picture`."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
TARGET = DOCS / "pictures" / "lateness.svg"
_LEFT, _WIDE, _ROW = 170, 470, 34
_STYLE = (
    ".ground { fill: #fafafa; } text { fill: #222222; } .ours { fill: #3949ab; } .peer { fill: #8d8d8d; }"
    " @media (prefers-color-scheme: dark) {"
    " .ground { fill: #1e2129; } text { fill: #e6e6e6; } .ours { fill: #8c9eff; } }"
)


def figures(page: str) -> list[tuple[str, float, str]]:
    """Returns name, p99 of the lateness in milliseconds at 1,000/s, and style."""
    broker = _row(
        page, r"\| 1,000/s, one \|.*? / ([\d.]+) \|.*? / ([\d.]+) \|.*?; ([\d.]+) \+ 1 \|"
    )
    pipe = _row(page, r"\| 1,000/s for [^|]* \| [\d.]+ ms \| ([\d.]+) ms \|")
    polling = _row(page, r"\| a polling queue [^|]* \| [\d.]+ ms \| ([\d.]+) ms \|")
    return [
        ("broker on SQLite", float(broker[1]), "ours"),
        ("broker on PostgreSQL", float(broker[2]), "ours"),
        ("pipe on Spark", float(pipe[1]), "ours"),
        ("beanstalkd", float(broker[3]), "peer"),
        ("polling queue", float(polling[1]), "peer"),
    ]


def _row(page: str, pattern: str) -> re.Match[str]:
    found = re.search(f"^{pattern}", page, re.M)
    assert found, pattern
    return found


def picture(rows: list[tuple[str, float, str]]) -> str:
    scale = _WIDE / max(late for _, late, _ in rows)
    title = "Late at 1,000 messages a second: p99, ms"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg"'
        f' viewBox="0 0 720 {len(rows) * _ROW + 50}" '
        'font-family="system-ui, sans-serif" font-size="14">',
        f"<style>{_STYLE}</style>",
        '<rect class="ground" width="100%" height="100%" rx="8"/>',
        f'<text x="16" y="26" font-weight="600">{title}</text>',
    ]
    for number, (name, late, kind) in enumerate(rows):
        y = 44 + number * _ROW
        width = max(late * scale, 2)
        lines += [
            f'<text x="{_LEFT - 10}" y="{y + 16}" text-anchor="end">{name}</text>',
            f'<rect class="{kind}" x="{_LEFT}" y="{y}" width="{width:.1f}" height="22" rx="3"/>',
            f'<text x="{_LEFT + width + 8:.1f}" y="{y + 16}">{late:g}</text>',
        ]
    return "\n".join([*lines, "</svg>", ""])


if __name__ == "__main__":
    TARGET.write_text(picture(figures((DOCS / "benchmarks.md").read_text("utf-8"))), "utf-8")
