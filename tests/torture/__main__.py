"""Scenes that break real processes while they work, and judge the recorded history by the invariants.

    python -m tests.torture [SCENE …] [--seconds N] [--seed S] [--keep FOLDER]
    python -m tests.torture [SCENE …] --judge FOLDER

A scene is a folder beside this file. Its `scene.py` has `run`, which starts processes, breaks them and
records a history into a folder; its `judge.py` has `judge`, a pure function from events to violations.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import NoReturn, Protocol, cast

from tests.torture.history import CALL, DELIVERY, FAULT, OUTCOME, Event, Violation, read_history

Report = Callable[[str], None]

_HERE = Path(__file__).parent
_SHOWN_VIOLATIONS = 20
"""The printed violations of each rule; the file beside the history has all."""
_ALL_VIOLATIONS = "violations.txt"
_HIGHEST_SEED = 2**31


class Run(Protocol):
    """`run` of a `scene.py`: records a history of about `seconds` into `folder`."""

    def __call__(self, folder: Path, *, seconds: float, seed: int, report: Report) -> None: ...


class Judge(Protocol):
    """`judge` of a `judge.py`: a pure function. Events are in order."""

    def __call__(self, events: Sequence[Event]) -> list[Violation]: ...


def scenes() -> list[str]:
    """The names of all scenes."""
    return sorted(path.parent.name for path in _HERE.glob("*/scene.py"))


def run_scene(name: str, folder: Path, *, seconds: float, seed: int, report: Report) -> list[Event]:
    """Runs a scene; returns its history, which stays in `folder`."""
    run = cast(Run, import_module(f"tests.torture.{name}.scene").run)
    folder.mkdir(parents=True, exist_ok=True)
    run(folder, seconds=seconds, seed=seed, report=report)
    return read_history(folder)


def judge_scene(name: str, events: Sequence[Event]) -> list[Violation]:
    """Returns the violations in the history of a scene."""
    judge = cast(Judge, import_module(f"tests.torture.{name}.judge").judge)
    return judge(events)


def table(events: Sequence[Event], violations: Sequence[Violation]) -> str:
    """Returns the counts of events, as lines of text."""
    ops = {event["call"]: event["op"] for event in events if event.kind == CALL}
    outcomes = Counter(
        (ops.get(event["call"], "?"), " ".join(filter(None, (event["outcome"], event["reason"]))))
        for event in events
        if event.kind == OUTCOME
    )
    answered = {event["call"] for event in events if event.kind == OUTCOME}
    outcomes.update((op, "no answer recorded") for call, op in ops.items() if call not in answered)
    faults = Counter(event["fault"] for event in events if event.kind == FAULT)
    rows: list[tuple[str, str, int]] = [("calls", "", len(ops))]
    rows += [(f"  {op}", outcome, count) for (op, outcome), count in sorted(outcomes.items())]
    rows += [("deliveries", "", sum(event.kind == DELIVERY for event in events))]
    rows += [("faults", "", faults.total())]
    rows += [(f"  {fault}", "", count) for fault, count in sorted(faults.items())]
    rows += [("violations", "", len(violations))]
    rules = Counter(violation.rule for violation in violations)
    rows += [(f"  {rule}", "", count) for rule, count in sorted(rules.items())]
    widths = max(len(row[0]) for row in rows), max(len(row[1]) for row in rows)
    return "\n".join(
        f"{what:{widths[0]}}  {how:{widths[1]}}  {count:>9,}" for what, how, count in rows
    )


def _details(violations: Sequence[Violation], limit: int) -> list[str]:
    """Returns violations by rule, at most `limit` of each."""
    lines = []
    for rule in sorted({violation.rule for violation in violations}):
        found = [violation.detail for violation in violations if violation.rule == rule]
        lines += [f"VIOLATION of {rule}: {len(found)}", *(f"    {each}" for each in found[:limit])]
    return lines


def _judged(name: str, folder: Path, events: Sequence[Event]) -> bool:
    """Judges a history and prints the result; true if every invariant held."""
    violations = judge_scene(name, events)
    print(f"== {name}\n{table(events, violations)}")
    if violations:
        everything = folder / _ALL_VIOLATIONS
        everything.write_text("\n".join(_details(violations, len(violations))) + "\n")
        print("\n".join(_details(violations, _SHOWN_VIOLATIONS)))
        print(f"== the history lies in {folder}, all violations in {everything}")
        print(f"== to judge it again: python -m tests.torture {name} --judge {folder.parent}")
    return not violations


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m tests.torture", description=__doc__.split("\n")[0])
    parser.add_argument(
        "scenes", nargs="*", metavar="SCENE", help=f"of {', '.join(scenes())}; else all"
    )
    parser.add_argument("--seconds", type=float, default=60, help="for each scene (60)")
    parser.add_argument(
        "--seed", type=int, help="of the plan of faults and calls; else a random one"
    )
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the histories here")
    parser.add_argument("--judge", type=Path, metavar="FOLDER", help="judge kept histories only")
    parsed = parser.parse_args(arguments)
    unknown = set(parsed.scenes) - set(scenes())
    if unknown:
        parser.error(f"no such scene: {', '.join(sorted(unknown))}")
    return parsed


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt  # scenes end their processes when this exits


def main(arguments: Sequence[str]) -> int:
    """Runs and judges scenes; returns 0 if all invariants held."""
    asked = _parse(arguments)
    names = asked.scenes or scenes()
    if asked.judge is not None:
        folders = [(name, asked.judge / name) for name in names if (asked.judge / name).is_dir()]
        held = [_judged(name, folder, read_history(folder)) for name, folder in folders]
        return 0 if held and all(held) else 1
    seed = random.randrange(_HIGHEST_SEED) if asked.seed is None else asked.seed
    base = asked.keep or Path(tempfile.mkdtemp(prefix="chronoline-torture-"))
    began = time.monotonic()

    def report(text: str) -> None:
        print(f"{time.monotonic() - began:7.1f} s  {text}", flush=True)

    held = []
    for name in names:
        report(f"{name}: {asked.seconds:g} s with seed {seed}")
        folder = base.absolute() / name
        shutil.rmtree(folder, ignore_errors=True)
        events = run_scene(name, folder, seconds=asked.seconds, seed=seed, report=report)
        held.append(_judged(name, folder, events))
    if not all(held):
        again = f"{' '.join(names)} --seconds {asked.seconds:g} --seed {seed}"
        print(f"== to run it again with the same plan: python -m tests.torture {again}")
        return 1
    if asked.keep is None:
        shutil.rmtree(base)
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _interrupt)
    sys.exit(main(sys.argv[1:]))
