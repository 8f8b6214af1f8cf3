"""Files of a node and of its commands can be read by their user alone, whatever the umask."""

from __future__ import annotations

import os
import signal
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from chronoline.runtime.child_process import free_addresses
from tests.node.processes import call, up


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def _open(folder: Path) -> list[str]:
    return [
        f"{path.relative_to(folder)}: {stat.S_IMODE(path.stat().st_mode):o}"
        for path in sorted(folder.rglob("*"))
        if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    ]


def test_files_of_a_node_and_its_commands_are_private(tmp_path: Path) -> None:
    (timers,) = free_addresses(1)
    roles = "--roles=overseer,carrier,timers"
    audit = "--set=audit_file=audit.log"
    with up(tmp_path, roles, f"--timers={timers}", "--data=new/data", audit) as node:
        for arguments in (
            ("topic", "create", "t"),
            ("send", "t", "--in", "1h", "--body", "secret"),
            ("export", "t", "out.jsonl"),
            ("export", "t", "out.parquet"),
            ("backup", "monday.db", "--data", "new/data"),
            ("restore", "monday.db", "--data", "restored/data"),
            ("log", "create", "t", "--log", "a-log"),
            ("log", "append", "t", "secret", "--log", "a-log"),
            ("token", "create", "ops", "--data", "new/data"),
        ):
            done = call(tmp_path, *arguments, CHRONOLINE_ADDRESS=node.grpc)
            assert done.returncode == 0, (arguments, done)
        names = {path.name for path in tmp_path.rglob("*")}
        assert {
            *("timeline.db", "timeline.db-wal", "timeline.db-shm", "timeline.db.lock"),
            *("tokens.json", "audit.log", "out.jsonl", "out.parquet", "monday.db"),
        } <= names
        assert _open(tmp_path) == []
        node.end(signal.SIGTERM)
    assert _open(tmp_path) == []
