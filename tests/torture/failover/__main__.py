"""Failovers to standbys that lag: what they lack is undone, and the judge says what else is.

python -m tests.torture.failover [--seconds N] [--seed S]
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

from tests.torture.__main__ import table
from tests.torture.failover.judge import judge
from tests.torture.failover.scene import run
from tests.torture.history import read_history


def main() -> int:
    """Runs the scene with standbys that lag; returns 0 if all invariants held."""
    parser = argparse.ArgumentParser("python -m tests.torture.failover")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--seed", type=int, default=random.randrange(2**31))
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="chronoline-failover-") as folder:
        run(Path(folder), seconds=asked.seconds, seed=asked.seed, report=print, lagging=True)
        events = read_history(Path(folder))
    violations = judge(events)
    print(table(events, violations))
    for violation in violations[:20]:
        print(f"VIOLATION of {violation.rule}: {violation.detail}")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
