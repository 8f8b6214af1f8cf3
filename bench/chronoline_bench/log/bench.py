"""The bench `log`: the log in a folder, beside a log with one object per event on the same disk."""

from __future__ import annotations

from dataclasses import dataclass

from chronoline_bench.log.appends import LINGER_MS, AppendSizes, measure_appends
from chronoline_bench.log.events import PARTITIONS, VALUE_BYTES
from chronoline_bench.log.reads import ReadSizes, measure_reads
from chronoline_bench.log.wakeups import WakeupSizes, measure_wakeups
from chronoline_bench.session import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The sizes of all cases."""

    appends: AppendSizes
    reads: ReadSizes
    wakeups: WakeupSizes


FULL = Sizes(
    appends=AppendSizes(rounds=7, later=64_000, many=256_000, single=12_800, reference=3_200),
    reads=ReadSizes(rounds=7, many=256_000, single=25_600, reference=3_200),
    wakeups=WakeupSizes(rounds=5, events=400),
)
QUICK = Sizes(
    appends=AppendSizes(rounds=3, later=25_600, many=64_000, single=3_200, reference=640),
    reads=ReadSizes(rounds=3, many=64_000, single=6_400, reference=640),
    wakeups=WakeupSizes(rounds=3, events=120),
)
NOTES = (
    f"values of {VALUE_BYTES} bytes with keys, {PARTITIONS} partitions",
    "one object per event: a sequence number by an index transaction, then an object; readers store"
    " their progress after each. Same disk, same classes for index and objects, as many threads",
    f"append_later has a log with linger_ms={LINGER_MS}, the others have none",
    "a time holds its bound also if it is less than 2 ms over",
    "every event was read back and compared with its acknowledged place",
)


def measure(session: Session) -> None:
    measure_sizes(session, QUICK if session.quick else FULL)
    session.notes += NOTES


def measure_sizes(session: Session, sizes: Sizes) -> None:
    measure_appends(session, sizes.appends)
    measure_reads(session, sizes.reads)
    measure_wakeups(session, sizes.wakeups)
