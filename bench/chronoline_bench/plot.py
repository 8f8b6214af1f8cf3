"""Plots of lateness over time, as SVG files that follow the reader's light or dark colours.

The lateness has a logarithmic axis: 1 ms and 10 s are seen in one picture.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from xml.etree import ElementTree as ET

from chronoline_bench.harness.slices import Slice

WIDTH, HEIGHT = 880, 412
_LEFT, _RIGHT, _TOP, _BOTTOM = 72, 24, 96, 56
_LEAST_MS, _LEAST_TOP_MS = 0.1, 100.0
_MOST_TICKS = 12
_STEPS_S = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600)
_STYLE = """
svg { color-scheme: light dark; font: 13px system-ui, -apple-system, "Segoe UI", sans-serif; }
.ground { fill: #ffffff; } text { fill: #24292f; } .small { fill: #57606a; font-size: 12px; }
.title { font-size: 16px; font-weight: 600; } .grid { stroke: #d0d7de; } .axis { stroke: #8c959f; }
.fault { fill: #8250df; fill-opacity: 0.12; stroke: #8250df; } .fault-name { fill: #8250df; }
.line { fill: none; stroke-width: 1.8; stroke-linejoin: round; stroke-linecap: round; }
.p50 { stroke: #0969da; } .p99 { stroke: #bc4c00; } .max { stroke: #cf222e; stroke-width: 1; }
.control { stroke: #6e7781; stroke-dasharray: 5 4; }
.ours { stroke: #0969da; } .ours-too { stroke: #8250df; }
.peer { stroke: #57606a; } .peer-too { stroke: #bc4c00; }
@media (prefers-color-scheme: dark) {
.ground { fill: #0d1117; } text { fill: #e6edf3; } .small { fill: #9198a1; }
.grid { stroke: #30363d; } .axis { stroke: #6e7681; }
.fault { fill: #ab7df8; stroke: #ab7df8; } .fault-name { fill: #c9a9ff; }
.p50 { stroke: #58a6ff; } .p99 { stroke: #f0883e; } .max { stroke: #ff7b72; } .control { stroke: #9198a1; }
.ours { stroke: #58a6ff; } .ours-too { stroke: #c9a9ff; }
.peer { stroke: #9198a1; } .peer-too { stroke: #f0883e; }
}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A named series: points of seconds and milliseconds."""

    name: str
    kind: str
    """Its style: `p50`, `p99`, `max`, `control`; `ours`, `ours-too`, `peer` or `peer-too` beside others."""
    points: Sequence[tuple[float, float]]
    width_s: float = 1.0
    """The distance of neighbours; a larger one is a gap in the line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A span of time that is marked, such as an outage; a moment if both ends are the same."""

    name: str
    first_s: float
    last_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """A picture of lateness over time."""

    title: str
    subtitle: str
    lines: Sequence[Line]
    marks: Sequence[Mark] = ()

    def svg(self) -> str:
        """Returns the picture as an SVG document."""
        return _Canvas(self).draw()


def lateness_lines(messages: Sequence[Slice], control: Sequence[Slice]) -> list[Line]:
    """Returns the lines of a run: the largest, the p99 and the p50 of its messages, and the control's p99."""
    return [
        _line("max", "max", messages, lambda each: each.late.max_ms),
        _line("p99", "p99", messages, lambda each: each.late.p99_ms),
        _line("p50", "p50", messages, lambda each: each.late.p50_ms),
        _line("the sleeping control, p99", "control", control, lambda each: each.late.p99_ms),
    ]


def _line(name: str, kind: str, slices: Sequence[Slice], value: Callable[[Slice], float]) -> Line:
    width_s = slices[0].width_s if slices else 1.0
    points = [(each.middle_s, value(each)) for each in slices]
    return Line(name=name, kind=kind, points=points, width_s=width_s)


class _Canvas:
    """Draws one plot."""

    def __init__(self, plot: Plot) -> None:
        self._plot = plot
        points = [point for line in plot.lines for point in line.points]
        self._longest_s = max([1.0, *(x_s for x_s, _ in points)])
        top_ms = max([_LEAST_TOP_MS, *(late_ms for _, late_ms in points)])
        self._decades = math.ceil(math.log10(top_ms / _LEAST_MS))
        self._svg = ET.Element(
            "svg",
            xmlns="http://www.w3.org/2000/svg",
            viewBox=f"0 0 {WIDTH} {HEIGHT}",
            width=str(WIDTH),
            height=str(HEIGHT),
            role="img",
        )

    def draw(self) -> str:
        ET.SubElement(self._svg, "title").text = self._plot.title
        ET.SubElement(self._svg, "style").text = _STYLE
        self._add("rect", "ground", width=WIDTH, height=HEIGHT)
        self._text(self._plot.title, _LEFT, 26, "title")
        self._text(self._plot.subtitle, _LEFT, 46, "small")
        self._draw_legend()
        self._draw_times()
        self._draw_decades()
        for mark in self._plot.marks:
            self._draw_mark(mark)
        for line in self._plot.lines:
            self._add("path", f"line {line.kind}", d=self._path(line))
        ET.indent(self._svg)
        return ET.tostring(self._svg, "unicode") + "\n"

    # Places

    def _x(self, x_s: float) -> float:
        share = min(1.0, max(0.0, x_s / self._longest_s))
        return round(_LEFT + share * (WIDTH - _LEFT - _RIGHT), 1)

    def _y(self, late_ms: float) -> float:
        share = math.log10(max(late_ms, _LEAST_MS) / _LEAST_MS) / self._decades
        return round(HEIGHT - _BOTTOM - share * (HEIGHT - _TOP - _BOTTOM), 1)

    def _path(self, line: Line) -> str:
        return " ".join(
            f"{'M' if is_first else 'L'}{self._x(x_s)} {self._y(late_ms)}"
            for (x_s, late_ms), is_first in zip(line.points, _beginnings(line), strict=True)
        )

    # Parts

    def _draw_legend(self) -> None:
        x = _LEFT
        for line in self._plot.lines:
            self._add("path", f"line {line.kind}", d=f"M{x} 66 L{x + 22} 66")
            self._text(line.name, x + 28, 70, "small")
            x += 52 + 7 * len(line.name)

    def _draw_times(self) -> None:
        bottom = HEIGHT - _BOTTOM
        for x_s in _ticks(self._longest_s):
            x = self._x(x_s)
            self._add("line", "grid", x1=x, x2=x, y1=_TOP, y2=bottom)
            self._text(f"{x_s:g}", x, bottom + 18, "small", anchor="middle")
        middle = (_LEFT + WIDTH - _RIGHT) / 2
        words = "seconds since the start of the load, by due time"
        self._text(words, middle, HEIGHT - 14, "small", anchor="middle")

    def _draw_decades(self) -> None:
        for power in range(self._decades + 1):
            late_ms = _LEAST_MS * 10**power
            y = self._y(late_ms)
            kind = "grid" if power else "axis"
            self._add("line", kind, x1=_LEFT, x2=WIDTH - _RIGHT, y1=y, y2=y)
            self._text(_shown_ms(late_ms), _LEFT - 8, y + 4, "small", anchor="end")
        y = (_TOP + HEIGHT - _BOTTOM) / 2
        turned = {"transform": f"rotate(-90 14 {y})"}
        self._text("lateness", 14, y, "small", anchor="middle", **turned)

    def _draw_mark(self, mark: Mark) -> None:
        first, last = self._x(mark.first_s), self._x(mark.last_s)
        height = HEIGHT - _TOP - _BOTTOM
        self._add("rect", "fault", x=first, y=_TOP, width=round(last - first, 1), height=height)
        x, anchor = (last, "end") if first > WIDTH / 2 else (first, "start")
        self._text(mark.name, x, _TOP - 6, "fault-name", anchor=anchor)

    def _add(self, tag: str, kind: str, **attributes: object) -> ET.Element:
        values = {name: str(value) for name, value in attributes.items()}
        return ET.SubElement(self._svg, tag, {"class": kind, **values})

    def _text(
        self, words: str, x: float, y: float, kind: str, *, anchor: str = "start", **more: str
    ) -> None:
        added = self._add("text", kind, x=x, y=y, **more)
        added.set("text-anchor", anchor)
        added.text = words


def _beginnings(line: Line) -> Iterator[bool]:
    """Yields for each point whether a piece of the line begins there: at the first, and after a gap."""
    for number in range(min(1, len(line.points))):
        yield number == 0
    for (before_s, _), (x_s, _) in pairwise(line.points):
        yield x_s - before_s > 1.5 * line.width_s


def _ticks(longest_s: float) -> Iterable[float]:
    step_s = next((each for each in _STEPS_S if longest_s / each <= _MOST_TICKS), _STEPS_S[-1])
    return range(0, math.floor(longest_s) + 1, step_s)


def _shown_ms(late_ms: float) -> str:
    return f"{late_ms / 1000:g} s" if late_ms >= 1000 else f"{late_ms:g} ms"  # noqa: PLR2004  # digits, no rule
