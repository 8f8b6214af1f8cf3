"""The picture and the table of a recorded soak.

python -m tests.torture soak --seconds 3600 --keep FOLDER
python -m tests.torture.soak FOLDER/soak [--svg FILE]
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from chronoline_bench.plot import Line, Mark, Panel, Plot
from tests.torture.history import FAULT, Event, read_history
from tests.torture.soak.judge import END, FLOW, LIMITS, SAMPLE, STORE, growths
from tests.torture.soak.scene import PER_S

_SIGNS = {
    "kill -9 a broker": "B",
    "freeze a broker": "b",
    "kill -9 PostgreSQL": "P",
    "pause PostgreSQL": "p",
    "stop etcd": "e",
    "freeze the pipe": "f",
}
_PROCESSES = {
    "broker-1": ("broker 1", "ours"),
    "broker-2": ("broker 2", "ours-too"),
    "load": ("the load", "peer"),
    "etcd": ("etcd", "third"),
    "pipe": ("pipe: driver", "control"),
    "pipe's Java": ("its Java", "max"),
    "pipe's workers": ("its workers", "peer-too"),
}
"""By process: its name in the picture, and its style."""
_THINNED = 3
"""Of figures that change slowly one sample of this number is drawn."""
_GAP_S = 15.0
"""Samples that are further apart have a gap between them."""


def picture(events: Sequence[Event]) -> str:
    """Lateness, memory, descriptors and disk over time, with a mark for each fault, as SVG."""
    begun_ns = next(event.mono_ns for event in events if event.kind == FLOW)

    def lines(
        kind: str, figure: str, styles: Mapping[str, tuple[str, str]], part: float = 1
    ) -> list[Line]:
        """By the beginning of a name: the name that is shown, and its style."""
        return [
            Line(
                name=name,
                kind=style,
                points=[
                    ((event.mono_ns - begun_ns) / 1e9, float(event[figure]) * part)
                    for event in events
                    if event.kind == kind and _is_of(event, who)
                ][:: 1 if kind == FLOW else _THINNED],
                width_s=_GAP_S,
            )
            for who, (name, style) in styles.items()
        ]

    late = [
        *lines(FLOW, "max_ms", {"messages": ("max", "max")}),
        *lines(FLOW, "p99_ms", {"messages": ("p99", "p99")}),
        *lines(FLOW, "p50_ms", {"messages": ("p50", "p50")}),
        *lines(FLOW, "p50_ms", {"pipe": ("pipe, p50, seen by a reader of its output", "control")}),
    ]
    end_ns = max(event.mono_ns for event in events if event.kind == FLOW)
    faults = [event for event in events if event.kind == FAULT and event.mono_ns < end_ns]
    at_s = [(event.mono_ns - begun_ns) / 1e9 for event in faults]
    shown = {_SIGNS[event["fault"]]: event["fault"] for event in faults}
    minutes = max(x_s for x_s, _ in late[0].points) / 60
    return Plot(
        title=f"Soak: {PER_S} messages a second for {minutes:.0f} minutes, with a fault every minute",
        subtitle=", ".join(f"{sign}: {shown[sign]}" for sign in sorted(shown)),
        lines=late,
        marks=[
            Mark(name=_SIGNS[event["fault"]], first_s=x_s, last_s=x_s)
            for event, x_s in zip(faults, at_s, strict=True)
        ],
        panels=[
            Panel(name="memory, MB", lines=lines(SAMPLE, "rss_mb", _PROCESSES)),
            Panel(name="descriptors", lines=lines(SAMPLE, "descriptors", _PROCESSES)),
            Panel(
                name="database and files, MB",
                lines=lines(STORE, "disk_mb", {STORE: ("on disk", "ours")})
                + lines(STORE, "rows", {STORE: ("messages, in hundreds", "peer-too")}, part=0.01),
            ),
        ],
    ).svg()


def _is_of(event: Event, who: str) -> bool:
    """Whether it is of this process, in any of its lives."""
    name, _, life = str(event.get("who", event.kind)).rpartition(".")
    return (name if life.isdigit() else event.get("who", event.kind)) == who


def table(events: Sequence[Event]) -> str:
    """The medians of the first and the last third after the warm-up, as Markdown, and the last event."""
    found = {(each.who, each.figure): each for each in growths(events)}
    lines = []
    for kind, figures in LIMITS.items():
        lines += [f"| {kind} | {' | '.join(figures)} |", f"| --- |{' ---: |' * len(figures)}"]
        for who in dict.fromkeys(who for who, figure in found if figure in figures):
            cells = [
                f"{each.first:,.1f} → {each.last:,.1f}"
                for figure in figures
                if (each := found.get((who, figure))) is not None
            ]
            lines.append(f"| {who} | {' | '.join(cells)} |")
        lines.append("")
    return "\n".join([*lines, *(str(dict(event.fields)) for event in events if event.kind == END)])


def main() -> None:
    parser = argparse.ArgumentParser("python -m tests.torture.soak")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--svg", type=Path, metavar="FILE")
    asked = parser.parse_args()
    events = read_history(asked.folder)
    print(table(events))
    if asked.svg is not None:
        asked.svg.write_text(picture(events))


if __name__ == "__main__":
    main()
