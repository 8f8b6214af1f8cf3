"""Runs the scene with planted defects, and shows whether the judge finds each of them.

python -m tests.torture.cluster [DEFECT …] [--seconds N] [--seed S]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.torture.cluster.judge import judge
from tests.torture.cluster.planted import DEFECTS
from tests.torture.cluster.scene import run
from tests.torture.history import read_history


def main(arguments: Sequence[str]) -> int:
    """Returns 0 if every planted defect was found by its rule."""
    parser = argparse.ArgumentParser("python -m tests.torture.cluster")
    parser.add_argument("defects", nargs="*", metavar="DEFECT", help=f"of {', '.join(DEFECTS)}")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args(arguments)
    found = [_is_found(name, asked.seconds, asked.seed) for name in asked.defects or DEFECTS]
    return 0 if all(found) else 1


def _is_found(defect: str, seconds: float, seed: int) -> bool:
    _, rule = DEFECTS[defect]
    with tempfile.TemporaryDirectory(prefix="chronoline-torture-") as folder:
        place = Path(folder)
        run(place, seconds=seconds, seed=seed, report=lambda _: None, planted=defect)
        rules = Counter(each.rule for each in judge(read_history(place)))
    verdict = "found" if rule in rules else "NOT FOUND"
    print(f"{defect}: {verdict} by {rule!r}; violations: {dict(rules)}", flush=True)
    return rule in rules


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
