"""The end of a worker that Spark leaves before its last batch."""

import signal
import subprocess
import sys
from collections.abc import Iterator

import pyarrow as pa

from chronoline.spark.python_worker import ended_quietly

BATCH = pa.record_batch({"id": ["x" * 100_000]})
_READER = """
import os, sys
from tests.spark.formats.test_python_worker import BATCH
from chronoline.spark.python_worker import ended_quietly
for batch in ended_quietly(BATCH for _ in range(100)):
    os.write(1, batch.column(0)[0].as_py().encode())
"""


def test_left_worker_ends_without_a_stack() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _READER], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as worker:
        assert worker.stdout is not None
        assert worker.stderr is not None
        worker.stdout.read(5)
        worker.stdout.close()
        said = worker.stderr.read()
    assert (worker.returncode, said) == (-signal.SIGPIPE, b"")


def test_signal_is_off_while_the_source_is_read() -> None:
    seen = []

    def source() -> Iterator[pa.RecordBatch]:
        for _ in range(3):
            seen.append(signal.getsignal(signal.SIGPIPE))
            yield BATCH

    before = signal.getsignal(signal.SIGPIPE)
    while_sent = [signal.getsignal(signal.SIGPIPE) for _ in ended_quietly(source())]
    assert seen == [before] * 3
    assert while_sent == [signal.SIG_DFL] * 3
    assert signal.getsignal(signal.SIGPIPE) == before
