"""A journal with one record that cannot be read."""

from __future__ import annotations

import logging
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from chronoline.core.errors import StoreUnavailable
from chronoline.timers.journal import Journal, has_waiting
from chronoline.timers.timer import Timer, Version
from tests.deadline import run_scene
from tests.timers.scene import HOUR_MS, NOWHERE, cluster, timer

_BAD = [
    ("record = '{'", "JSON"),
    ("record = json_set(record, '$.version', 4611686018427387905)", "version"),
    ("record = json_set(record, '$.popped', 'x')", "popped"),
    ("record = json_remove(record, '$.plan')", "plan"),
    ("record = CAST(X'7B22FF227D' AS TEXT)", "UTF-8"),
    ("record = json_set(record, '$.plan.uri', 'http://[::1')", "uri"),
    ("confirmed = '5'", "confirmed"),
    ("confirmed = CAST(X'FF' AS TEXT)", "confirmed-UTF-8"),
    ('confirmed = \'[["a", ["b"]]]\'', "confirmed-life"),
]


@pytest.mark.parametrize("change", [each for each, _ in _BAD], ids=[name for _, name in _BAD])
def test_node_starts_with_one_bad_record_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, change: str
) -> None:
    async def scene() -> None:
        async with cluster(tmp_path) as nodes:
            name = nodes.names[0]
            made = [
                (await nodes.ask("POST", "/timers", timer(NOWHERE, interval_ms=HOUR_MS))).location
                for _ in range(3)
            ]
            await nodes.services[name].stop()
            path = tmp_path / name.rpartition(":")[2] / "timers.db"
            bad = int(made[1].rpartition("/")[2][:16], 16)
            signed = bad - (1 << 64) if bad >= 1 << 63 else bad
            with sqlite3.connect(path) as connection:
                assert connection.execute(
                    f"UPDATE timers SET {change} WHERE id = ?", (signed,)
                ).rowcount
            connection.close()
            assert has_waiting(path)
            with caplog.at_level(logging.ERROR):
                await nodes.start(name)
            assert nodes.node(0).replica.tally.waiting == 2
            logged = [each for each in caplog.records if vars(each).get("action")]
            assert [(vars(each)["action"], vars(each)["timer"]) for each in logged] == [
                ("record_unreadable", f"{bad:016x}")
            ]
            assert (await nodes.ask("GET", "/v1/nodes")).json["unreadable_records"] == 1
            metrics = (await nodes.ask("GET", "/metrics")).body.decode()
            assert "chronoline_timers_unreadable_records 1.0" in metrics
            # A deleted timer is gone for its client.
            assert (await nodes.ask("DELETE", made[1])).status == 200
            assert not nodes.node(0).journal.unreadable
            await nodes.services[name].stop()
            await nodes.start(name)
            assert not nodes.node(0).journal.unreadable

    run_scene(scene)


def test_wrong_wall_clock_makes_no_record_unreadable(tmp_path: Path) -> None:
    path = tmp_path / "timers.db"
    saved = Timer(
        id=1, version=Version(5, "a"), plan=None, start_ms=0, replicas=("a",), view="v", kept_ms=9
    )
    journal = Journal(path, boot="one")
    journal.save(
        [(1, saved, ())], has_kept=lambda _: True, now_ms=0, wall_ms=1_800_000_000_000
    ).result()
    journal.close()
    for wall_ms in (0, 1 << 50):
        journal = Journal(path, boot="another")
        (loaded,) = journal.load(now_ms=5, wall_ms=wall_ms)
        assert (loaded.timer.version, loaded.is_certain) == (saved.version, False)
        journal.close()


def test_record_that_cannot_be_written_keeps_no_other_from_the_disk(tmp_path: Path) -> None:
    path = tmp_path / "timers.db"
    journal = Journal(path, boot="one")
    good = Timer(
        id=1, version=Version(5, "a"), plan=None, start_ms=0, replicas=("a",), view="v", kept_ms=9
    )
    bad = replace(good, id=2, view=object())  # type: ignore[arg-type]  # not to be written
    changes = [(2, bad, ()), (1, good, ())]
    with pytest.raises(StoreUnavailable, match="cannot be written"):
        journal.save(changes, has_kept=lambda _: True, now_ms=0, wall_ms=1).result()
    assert list(journal.unreadable) == [2]
    journal.close()
    journal = Journal(path, boot="one")
    assert [each.timer.id for each in journal.load(now_ms=0, wall_ms=1)] == [1]
    journal.close()
