"""Plots of lateness over time, as SVG files that follow the reader's light or dark colours.

Lateness has a logarithmic axis: 1 ms and 10 s are seen in one picture. Panels below it have other figures
over the same time, from 0 on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, pairwise
from xml.etree import ElementTree as ET

from chronoline_bench.harness.slices import Slice

WIDTH, HEIGHT = 880, 412
_PANEL_HEIGHT, _PANEL_TOP, _PANEL_BOTTOM = 206, 30, 34
_LEFT, _RIGHT, _TOP, _BOTTOM = 72, 24, 96, 56
_LEAST_MS, _LEAST_TOP_MS = 0.1, 100.0
_MOST_TICKS = 12
_STEPS_S = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600)
_MINUTES_FROM_S = 1_200
_MOST_LEVELS = 6
_STYLE = """
svg { color-scheme: light dark; font: 13px system-ui, -apple-system, "Segoe UI", sans-serif; }
.ground { fill: #ffffff; } text { fill: #24292f; } .small { fill: #57606a; font-size: 12px; }
.title { font-size: 16px; font-weight: 600; } .grid { stroke: #d0d7de; } .axis { stroke: #8c959f; }
.fault { fill: #8250df; fill-opacity: 0.12; stroke: #8250df; stroke-opacity: 0.4; }
.fault-name { fill: #8250df; }
.line { fill: none; stroke-width: 1.8; stroke-linejoin: round; stroke-linecap: round; }
.p50 { stroke: #0969da; } .p99 { stroke: #bc4c00; } .max { stroke: #cf222e; stroke-width: 1; }
.control { stroke: #6e7781; stroke-dasharray: 5 4; }
.ours { stroke: #0969da; } .ours-too { stroke: #8250df; }
.peer { stroke: #57606a; } .peer-too { stroke: #bc4c00; } .third { stroke: #1a7f37; }
@media (prefers-color-scheme: dark) {
.ground { fill: #0d1117; } text { fill: #e6edf3; } .small { fill: #9198a1; }
.grid { stroke: #30363d; } .axis { stroke: #6e7681; }
.fault { fill: #ab7df8; stroke: #ab7df8; } .fault-name { fill: #c9a9ff; }
.p50 { stroke: #58a6ff; } .p99 { stroke: #f0883e; } .max { stroke: #ff7b72; } .control { stroke: #9198a1; }
.ours { stroke: #58a6ff; } .ours-too { stroke: #c9a9ff; }
.peer { stroke: #9198a1; } .peer-too { stroke: #f0883e; } .third { stroke: #3fb950; }
}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A named series: points of seconds and milliseconds, or the unit of its panel."""

    name: str
    kind: str
    """Its style: `p50`, `p99`, `max`, `control`, `ours`, `ours-too`, `peer`, `peer-too` or `third`."""
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
class Panel:
    """Another figure over the same time."""

    name: str
    """Of its axis, with the unit."""
    lines: Sequence[Line]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """A picture of lateness over time, with panels below it."""

    title: str
    subtitle: str
    lines: Sequence[Line]
    marks: Sequence[Mark] = ()
    panels: Sequence[Panel] = ()

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


@dataclass(frozen=True, slots=True)
class _Area:
    """A part of the picture with lines in it, between two heights, and its axis."""

    name: str
    lines: Sequence[Line]
    top: int
    bottom: int
    least: float
    most: float
    levels: Sequence[tuple[float, str]]
    """The values of its grid, from the lowest, with their text."""
    is_logarithmic: bool = False

    def y(self, value: float) -> float:
        share = (value - self.least) / (self.most - self.least)
        if self.is_logarithmic:
            share = math.log(max(value, self.least) / self.least, self.most / self.least)
        return round(self.bottom - share * (self.bottom - self.top), 1)


def _lateness_area(lines: Sequence[Line]) -> _Area:
    decades = math.ceil(math.log10(max([_LEAST_TOP_MS, *_values(lines)]) / _LEAST_MS))
    levels = [_LEAST_MS * 10**power for power in range(decades + 1)]
    return _Area(
        "lateness",
        lines,
        _TOP,
        HEIGHT - _BOTTOM,
        levels[0],
        levels[-1],
        [(each, _shown_ms(each)) for each in levels],
        is_logarithmic=True,
    )


def _panel_area(panel: Panel, above: int) -> _Area:
    """`above` is the height at which it begins."""
    most = max([1.0, *_values(panel.lines)])
    step = next(each for each in _round_numbers() if most / each <= _MOST_LEVELS)
    levels = [step * number for number in range(math.ceil(most / step) + 1)]
    return _Area(
        panel.name,
        panel.lines,
        above + _PANEL_TOP,
        above + _PANEL_HEIGHT - _PANEL_BOTTOM,
        0,
        levels[-1],
        [(each, f"{each:,}") for each in levels],
    )


def _values(lines: Sequence[Line]) -> Iterator[float]:
    return (value for line in lines for _, value in line.points)


def _round_numbers() -> Iterator[int]:
    return (digit * 10**power for power in count() for digit in (1, 2, 5))


class _Canvas:
    """Draws one plot."""

    def __init__(self, plot: Plot) -> None:
        self._plot = plot
        below = HEIGHT - _BOTTOM + _PANEL_BOTTOM
        self._areas = [
            _lateness_area(plot.lines),
            *(
                _panel_area(panel, below + number * _PANEL_HEIGHT)
                for number, panel in enumerate(plot.panels)
            ),
        ]
        self._height = self._areas[-1].bottom + _BOTTOM
        points = [point for area in self._areas for line in area.lines for point in line.points]
        self._longest_s = max([1.0, *(x_s for x_s, _ in points)])
        self._svg = ET.Element(
            "svg",
            xmlns="http://www.w3.org/2000/svg",
            viewBox=f"0 0 {WIDTH} {self._height}",
            width=str(WIDTH),
            height=str(self._height),
            role="img",
        )

    def draw(self) -> str:
        ET.SubElement(self._svg, "title").text = self._plot.title
        ET.SubElement(self._svg, "style").text = _STYLE
        self._add("rect", "ground", width=WIDTH, height=self._height)
        self._text(self._plot.title, _LEFT, 26, "title")
        self._text(self._plot.subtitle, _LEFT, 46, "small")
        for number, area in enumerate(self._areas):
            self._draw_area(area, is_first=number == 0)
        ET.indent(self._svg)
        return ET.tostring(self._svg, "unicode") + "\n"

    # Places

    def _x(self, x_s: float) -> float:
        share = min(1.0, max(0.0, x_s / self._longest_s))
        return round(_LEFT + share * (WIDTH - _LEFT - _RIGHT), 1)

    def _path(self, area: _Area, line: Line) -> str:
        return " ".join(
            f"{'M' if is_first else 'L'}{self._x(x_s)} {area.y(value)}"
            for (x_s, value), is_first in zip(line.points, _beginnings(line), strict=True)
        )

    # Parts

    def _draw_area(self, area: _Area, *, is_first: bool) -> None:
        self._draw_legend(area, 66 if is_first else area.top - 14)
        self._draw_times(area)
        self._draw_levels(area)
        for mark in self._plot.marks:
            self._draw_mark(area, mark, is_named=is_first)
        for line in area.lines:
            self._add("path", f"line {line.kind}", d=self._path(area, line))

    def _draw_legend(self, area: _Area, y: int) -> None:
        x = _LEFT
        for line in area.lines:
            self._add("path", f"line {line.kind}", d=f"M{x} {y} L{x + 22} {y}")
            self._text(line.name, x + 28, y + 4, "small")
            x += 52 + 7 * len(line.name)

    def _draw_times(self, area: _Area) -> None:
        unit, unit_s = ("minutes", 60) if self._longest_s > _MINUTES_FROM_S else ("seconds", 1)
        for x_s in _ticks(self._longest_s):
            x = self._x(x_s)
            self._add("line", "grid", x1=x, x2=x, y1=area.top, y2=area.bottom)
            self._text(f"{x_s / unit_s:g}", x, area.bottom + 18, "small", anchor="middle")
        if area is self._areas[-1]:
            middle = (_LEFT + WIDTH - _RIGHT) / 2
            by_due = "" if self._plot.panels else ", by due time"
            words = f"{unit} since the start of the load{by_due}"
            self._text(words, middle, area.bottom + 42, "small", anchor="middle")

    def _draw_levels(self, area: _Area) -> None:
        for number, (value, words) in enumerate(area.levels):
            y = area.y(value)
            kind = "grid" if number else "axis"
            self._add("line", kind, x1=_LEFT, x2=WIDTH - _RIGHT, y1=y, y2=y)
            self._text(words, _LEFT - 8, y + 4, "small", anchor="end")
        y = (area.top + area.bottom) / 2
        turned = {"transform": f"rotate(-90 14 {y})"}
        self._text(area.name, 14, y, "small", anchor="middle", **turned)

    def _draw_mark(self, area: _Area, mark: Mark, *, is_named: bool) -> None:
        first, last = self._x(mark.first_s), self._x(mark.last_s)
        # A rectangle without a width is not drawn.
        width, height = max(0.1, round(last - first, 1)), area.bottom - area.top
        self._add("rect", "fault", x=first, y=area.top, width=width, height=height)
        if is_named:
            x, anchor = (last, "end") if first > WIDTH / 2 else (first, "start")
            if len(mark.name) == 1:
                anchor = "middle"
            self._text(mark.name, x, area.top - 6, "fault-name", anchor=anchor)

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
