from functools import partial
from pathlib import Path

from chronoline_bench.log.object_per_event import ObjectPerEvent
from chronoline_bench.log.operations import Operations, count_operations
from chronoline_bench.rounds import at_once


def test_operations_within_the_block_are_counted(tmp_path: Path) -> None:
    operations = Operations()
    with ObjectPerEvent(tmp_path / "reference", partitions=1) as reference:
        reference.append(b"before", b"")
        with count_operations(operations):
            at_once([partial(reference.append, b"key", b"value")] * 8)
        assert operations == Operations(puts=8, transactions=8)
        with count_operations(operations):
            assert len(list(reference.read("c"))) == 9
        reference.append(b"after", b"")
    # To lock and to let go; after each event; one more object is looked for, then the end.
    assert operations == Operations(puts=8, gets=10, transactions=8 + 9 + 2, looks=1)
