"""The command `chronoline` with a planted defect: shows that the judge finds it in the history of a real run.

    python -m tests.torture.cluster.planted DEFECT up …
    python -m tests.torture.cluster [DEFECT …]

Each defect is a patch of one place, which every broker of the scene has.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from chronoline.broker.cluster.member import ClusterMember
from chronoline.cli import main
from chronoline.core.dealer import Share
from chronoline.core.generation import Generation
from tests.torture.brokers.judge import STARVED
from tests.torture.cluster.judge import GRANTED_WITHOUT_ETCD

_FORGOTTEN = ("ada", "eve")
"""Consumers whose ranges are forgotten."""


def _ignore_the_gate() -> None:
    """A broker without its session goes on to grant leases."""
    ClusterMember.problem = property(lambda _: "")  # type: ignore[method-assign,assignment]  # the defect


def _forget_a_range() -> None:
    """The own buckets of some consumers have no consumer."""
    served_by = Generation.served_by

    def forgetful(self: Generation, *given: Any, **more: Any) -> Mapping[str, Share]:
        shares = served_by(self, *given, **more)
        return {name: share for name, share in shares.items() if not name.startswith(_FORGOTTEN)}

    Generation.served_by = forgetful  # type: ignore[method-assign,assignment]  # the defect


DEFECTS: dict[str, tuple[Callable[[], None], str]] = {
    "ignore-the-gate": (_ignore_the_gate, GRANTED_WITHOUT_ETCD),
    "forget-a-range": (_forget_a_range, STARVED),
}
"""By name: the patch, and the rule by which the judge finds it."""


if __name__ == "__main__":
    defect = sys.argv.pop(1)
    DEFECTS[defect][0]()
    main.run()
