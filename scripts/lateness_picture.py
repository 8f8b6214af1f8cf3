"""Draws docs/pictures/lateness.svg by docs/benchmarks.md: `python -m scripts.lateness_picture`."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
TARGET = DOCS / "pictures" / "lateness.svg"
_LEFT, _WIDE, _ROW = 170, 470, 34


def figures() -> list[tuple[str, float, str]]:
    """Returns name, median lateness in milliseconds at 1,000/s, and color."""
    page = (DOCS / "benchmarks.md").read_text("utf-8")
    one = re.search(
        r"^\| 1,000/s, one \| ([\d.]+) / .*? \| ([\d.]+) / .*?; ([\d.]+) \+ 1 \|$", page, re.M
    )
    pipe = re.search(
        r"^\| 1,000/s, late p50, ms \| ([\d.]+) \| polling queue ([\d.]+) \|", page, re.M
    )
    assert one
    assert pipe
    return [
        ("broker on SQLite", float(one[1]), "#3949ab"),
        ("broker on PostgreSQL", float(one[2]), "#3949ab"),
        ("pipe on Spark", float(pipe[1]), "#3949ab"),
        ("beanstalkd", float(one[3]), "#8d8d8d"),
        ("polling queue", float(pipe[2]), "#8d8d8d"),
    ]


def picture() -> str:
    rows = figures()
    scale = _WIDE / max(late for _, late, _ in rows)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg"'
        f' viewBox="0 0 720 {len(rows) * _ROW + 50}" '
        'font-family="system-ui, sans-serif" font-size="14">',
        '<rect width="100%" height="100%" rx="8" fill="#fafafa"/>',
        '<text x="16" y="26" font-weight="600">Late at 1,000 messages a second, median, ms</text>',
    ]
    for number, (name, late, color) in enumerate(rows):
        y = 44 + number * _ROW
        width = max(late * scale, 2)
        lines += [
            f'<text x="{_LEFT - 10}" y="{y + 16}" text-anchor="end" fill="#222">{name}</text>',
            f'<rect x="{_LEFT}" y="{y}" width="{width:.1f}" height="22" rx="3" fill="{color}"/>',
            f'<text x="{_LEFT + width + 8:.1f}" y="{y + 16}" fill="#222">{late:g}</text>',
        ]
    return "\n".join([*lines, "</svg>", ""])


if __name__ == "__main__":
    TARGET.write_text(picture(), "utf-8")
