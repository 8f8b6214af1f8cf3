"""The picture and the table of a recorded soak.

python -m tests.torture soak --seconds 3600 --keep FOLDER
python -m tests.torture.soak FOLDER/soak [--svg FILE]
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from chronoline_bench.plot import Line, Mark, Plot
from tests.torture.history import FAULT, Event, read_history
from tests.torture.soak.judge import END, FLOW, growths
from tests.torture.soak.scene import PER_S


def picture(events: Sequence[Event]) -> str:
    """The lateness over time, with a mark for each fault, as SVG."""
    flow = [event for event in events if event.kind == FLOW and event["who"] == "messages"]
    begun_ns = flow[0].mono_ns
    times = [(event.mono_ns - begun_ns) / 1e9 for event in flow]
    width_s = max(after - before for before, after in pairwise(times))
    lines = [
        Line(
            name=name,
            kind=name,
            points=[
                (at_s, float(event[f"{name}_ms"])) for at_s, event in zip(times, flow, strict=True)
            ],
            width_s=width_s,
        )
        for name in ("max", "p99", "p50")
    ]
    marks = []
    for event in events:
        if event.kind == FAULT:
            at_s = (event.mono_ns - begun_ns) / 1e9
            marks.append(Mark(name=_short(event["fault"]), first_s=at_s, last_s=at_s))
    faults = Counter(_short(event["fault"]) for event in events if event.kind == FAULT)
    legend = {"B": "kill -9 a broker", "b": "freeze the other", "P": "kill -9 PostgreSQL"}
    legend |= {"p": "pause PostgreSQL", "e": "stop etcd"}
    shown = ", ".join(f"{sign} {words}" for sign, words in legend.items() if sign in faults)
    return Plot(
        title=f"Soak: {PER_S} messages a second for {times[-1] / 60:.0f} minutes",
        subtitle=f"lateness of all messages in each interval of some seconds. Faults: {shown}",
        lines=lines,
        marks=marks,
    ).svg()


def _short(fault: str) -> str:
    return {
        "kill -9 a broker": "B",
        "freeze a broker": "b",
        "kill -9 PostgreSQL": "P",
        "pause PostgreSQL": "p",
        "stop etcd": "e",
    }[fault]


def table(events: Sequence[Event]) -> str:
    """The first and the last third of each figure, as Markdown."""
    rows = [
        "| | first third | last third | at most | samples |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for each in sorted(growths(events), key=lambda one: (one.who, one.figure)):
        rows.append(
            f"| {each.who} {each.figure} | {each.first:,.1f} | {each.last:,.1f} | {each.most:,.1f} | "
            f"{each.samples} |"
        )
    ends = [dict(event.fields) for event in events if event.kind == END]
    return "\n".join([*rows, "", str(ends)])


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
