"""The bench `timers`: from a request to a callback, on nodes that run as users run them.

The nodes, the sender and the receiver run on this machine, each in its own process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from chronoline_bench.session import Session
from chronoline_bench.timers.full_node import WaitingSizes, measure_waiting
from chronoline_bench.timers.kill import KillSizes, measure_kill
from chronoline_bench.timers.pops import PopSizes, measure_pops
from chronoline_bench.timers.requests import OPAQUE
from chronoline_bench.timers.scale_up import ScalingSizes, measure_scaling
from chronoline_bench.timers.stage import TimerStage


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The sizes of all cases."""

    pops: PopSizes
    kill: KillSizes
    waiting: WaitingSizes
    scaling: ScalingSizes


FULL = Sizes(
    pops=PopSizes(rounds=3, rate=500, steady_s=10),
    kill=KillSizes(timers=3_000, rate=500, lead_s=15, span_s=10),
    waiting=WaitingSizes(waiting=1_000_000, rounds=3, each=20_000, connections=32),
    scaling=ScalingSizes(waiting=100_000, rate=100, quiet_s=20),
)
QUICK = Sizes(
    pops=PopSizes(rounds=1, rate=500, steady_s=2),
    kill=KillSizes(timers=400, rate=400, lead_s=2.5, span_s=1.5),
    waiting=WaitingSizes(waiting=10_000, rounds=1, each=2_000, connections=32),
    scaling=ScalingSizes(waiting=2_000, rate=100, quiet_s=2),
)


def measure(session: Session) -> None:
    measure_sizes(session, QUICK if session.quick else FULL)


def measure_sizes(session: Session, sizes: Sizes) -> None:
    """Measures the chosen cases in this order; all if none is chosen."""
    session.notes += _notes()
    with TimerStage(session) as stage:
        cases: dict[str, Callable[[], None]] = {
            "pops": lambda: measure_pops(stage, sizes.pops),
            "kill": lambda: measure_kill(stage, sizes.kill),
            "waiting": lambda: measure_waiting(stage, sizes.waiting),
            "scaling": lambda: measure_scaling(stage, sizes.scaling),
        }
        session.measure_cases(cases, after_failure=stage.end_agents)


def _notes() -> tuple[str, ...]:
    return (
        f"opaque texts of {len(OPAQUE % 0)} characters, two copies of a timer on several nodes;"
        " everything runs on the same cores, sender and receiver included",
        "late: from when the timer was sent, plus its interval, until the receiver has the callback; so"
        " it includes the request to the node",
        "a timer is in the journal of each of its nodes, flushed, before it is answered",
    )
