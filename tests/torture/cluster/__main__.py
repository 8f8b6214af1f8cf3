"""Runs the scene with planted defects, and shows whether the judge finds each of them.

python -m tests.torture.cluster [DEFECT …] [--seconds N] [--seed S]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.torture.cluster.judge import judge
from tests.torture.cluster.planted import DEFECTS
from tests.torture.cluster.scene import run
from tests.torture.history import read_history

_WIDTH = max(map(len, DEFECTS))


@dataclass(frozen=True, slots=True)
class Finding:
    """The rules by which the judge found a planted defect, each with its number of violations."""

    rules: Mapping[str, int]
    seconds: float
    """The duration of the run and of the judgement."""


def find(defect: str, folder: Path, *, seed: int = 1, seconds: float | None = None) -> Finding:
    """Runs the scene with brokers that have a defect, and judges its history."""
    began = time.monotonic()
    seconds = DEFECTS[defect].seconds if seconds is None else seconds
    run(folder, seconds=seconds, seed=seed, report=lambda _: None, planted=defect)
    rules = Counter(each.rule for each in judge(read_history(folder)))
    return Finding(rules, time.monotonic() - began)


def main(arguments: Sequence[str]) -> int:
    """Returns 0 if every planted defect was found by its rule."""
    parser = argparse.ArgumentParser("python -m tests.torture.cluster")
    parser.add_argument("defects", nargs="*", metavar="DEFECT", help=f"of {', '.join(DEFECTS)}")
    parser.add_argument("--seconds", type=float, help="of faults; else as each defect needs")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args(arguments)
    all_found = True
    for name in asked.defects or DEFECTS:
        with tempfile.TemporaryDirectory(prefix="chronoline-torture-") as folder:
            finding = find(name, Path(folder), seed=asked.seed, seconds=asked.seconds)
        rule = DEFECTS[name].rule
        all_found &= rule in finding.rules
        words = (
            f"{rule} ({finding.rules[rule]})" if rule in finding.rules else f"NOT FOUND by {rule}"
        )
        others = ", ".join(f"{each} ({n})" for each, n in finding.rules.items() if each != rule)
        print(f"{name:{_WIDTH}}  {finding.seconds:5.1f} s  {words}", flush=True)
        if others:
            print(f"{'':{_WIDTH}}           also {others}", flush=True)
    return 0 if all_found else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
