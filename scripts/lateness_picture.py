"""Draws docs/pictures/lateness.svg by docs/benchmarks.md: `python -m scripts.lateness_picture`."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
TARGET = DOCS / "pictures" / "lateness.svg"
_LEFT, _WIDE, _ROW = 200, 440, 34
_STYLE = (
    ".ground { fill: #fafafa; } text { fill: #222222; } .ours { fill: #3949ab; } .peer { fill: #8d8d8d; }"
    " @media (prefers-color-scheme: dark) {"
    " .ground { fill: #1e2129; } text { fill: #e6e6e6; } .ours { fill: #8c9eff; } }"
)


def figures(page: str) -> list[tuple[str, float, str]]:
    """Returns name, p99 of the lateness in milliseconds at 1,000/s, and style."""
    names = (
        ("broker on SQLite", "broker on SQLite", "ours"),
        ("broker on PostgreSQL", "broker on PostgreSQL", "ours"),
        ("pipe on Spark", "1,000/s for", "ours"),
        ("beanstalkd", "beanstalkd", "peer"),
        ("polling queue, 5 ms", "queue on PostgreSQL", "peer"),
        ("polling queue, 100 ms", "a polling queue", "peer"),
    )
    return [(name, _p99(page, row), style) for name, row, style in names]


def _p99(page: str, row: str) -> float:
    """Returns the second figure of the first row with this beginning: `| row … | p50 | p99 |`."""
    found = re.search(rf"^\| {row}[^|]* \| [\d.]+ ms \| ([\d.]+) ms \|", page, re.M)
    assert found, row
    return float(found[1])


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
