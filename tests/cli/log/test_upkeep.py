"""`chronoline log compact`, `retain`, `sweep` and `import`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from chronoline.cli.log import upkeep
from chronoline.cli.progress import Advance
from chronoline.log import Log
from chronoline.log.objects.local import LocalObjects
from tests.cli.log.command import Command

# Upkeep


def fill(log: Log, count: int) -> None:
    for number in range(count):
        log.append("t", value=b"%d" % number, partition=1)


def objects(command: Command) -> list[Path]:
    return list((command.folder / "objects").glob("0*/*.events"))


def test_compact_merges_chunks(command: Command, log: Log) -> None:
    fill(log, 5)
    assert command("compact", "t") == "5 chunks became 1\n"
    assert len(objects(command)) == 1
    assert [event.value for event in log.read("t", follow=False)] == [b"0", b"1", b"2", b"3", b"4"]


def test_compact_respects_the_target_size(command: Command, log: Log) -> None:
    fill(log, 5)
    assert command("compact", "t", "--target-size", "1B") == "5 chunks became 5\n"


def test_retain_drops_old_events(command: Command, log: Log) -> None:
    fill(log, 5)
    assert command("retain", "t", "--max-age", "7d", "--max-size", "1GiB") == "dropped 0 events\n"
    assert command("retain", "t", "--max-size", "1B") == "dropped 4 events\n"
    assert len(objects(command)) == 1


def test_sweep_deletes_orphaned_objects(command: Command, log: Log) -> None:
    fill(log, 1)
    stored = objects(command)
    LocalObjects(command.folder / "objects").put("0" * 26, b"what a failed append left")
    assert command("sweep") == "deleted 0 objects\n"
    assert command("sweep", "--grace", "0s") == "deleted 1 object\n"
    assert objects(command) == stored


class Shown:
    """The progress shown: its title, its total if known, and the part done."""

    def __init__(self) -> None:
        self.title = ""
        self.total: int | None = None
        self.done = 0

    @contextmanager
    def showing(self, title: str, total: int | None = None) -> Iterator[Advance]:
        self.title, self.total, self.done = title, total, 0
        yield self._advance

    def _advance(self, done: int) -> None:
        self.done += done

    def last(self) -> tuple[str, int | None, int]:
        return self.title, self.total, self.done


def test_progress_is_shown(command: Command, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Shown()
    monkeypatch.setattr(upkeep, "showing", shown.showing)
    fill(log, 5)
    assert command("compact", "t") == "5 chunks became 1\n"
    assert shown.last() == ("chunks", None, 5)
    assert command("retain", "t", "--max-size", "1GiB") == "dropped 0 events\n"
    assert shown.last() == ("partitions", 4, 4)
    LocalObjects(command.folder / "objects").put("0" * 26, b"what a failed append left")
    assert command("sweep", "--grace", "0s") == "deleted 1 object\n"
    assert shown.last() == ("objects", None, 2)


def test_progress_is_shown_only_on_a_terminal(command: Command, log: Log) -> None:
    fill(log, 3)
    assert command.warning("compact", "t") == ""
    assert command.warning("retain", "t", "--max-size", "1B") == ""
    assert command.warning("sweep") == ""


def test_bad_input_is_refused(command: Command, log: Log) -> None:
    fill(log, 2)
    assert "--max-age, --max-size" in command.refusal("retain", "t")
    assert "is not a duration" in command.refusal("retain", "t", "--max-age", "7")
    assert "is not a size" in command.refusal("retain", "t", "--max-size", "7M")
    assert "is not a size" in command.refusal("compact", "t", "--target-size", "big")
    assert "is not a duration" in command.refusal("sweep", "--grace", "soon")
    for name in ("compact", "retain"):
        options = ("--max-age", "0s") if name == "retain" else ()
        assert "no topic named 'x'" in command.refusal(name, "x", *options)
    assert len(objects(command)) == 2


# Import


def write(folder: Path) -> list[str]:
    """A log of the layout, with a number that has no event; answers how it is imported."""
    place = folder / "events" / "0"
    place.mkdir(parents=True)
    for number in (0, 2):
        (place / str(number)).write_bytes(b"%d" % number)
    table, consumers = folder / "partitions.json", folder / "consumers.json"
    table.write_text(json.dumps({"partitionId": "0", "sequenceNumber": 3}))
    consumers.write_text(json.dumps({"consumerId": "g", "partitionId": "0", "sequenceNumber": 2}))
    return [str(folder), "old", "--table", str(table), "--consumers", str(consumers)]


def test_import_copies_events_and_progress(command: Command, tmp_path: Path) -> None:
    arguments = write(tmp_path / "old")
    assert command("import", *arguments) == (
        "imported 3 events, 1 of them missing in 1 partition, and the progress of 1 group\n"
    )
    assert command("import", *arguments) == "imported 0 events in 1 partition\n"
    with Log(command.folder.as_uri()) as log:
        assert [each.value for each in log.read("old", follow=False)] == [b"0", None, b"2"]
        assert [each.sequence for each in log.read("old", group="g", follow=False)] == [2]


def test_import_into_a_topic_with_events_is_refused(
    command: Command, log: Log, tmp_path: Path
) -> None:
    log.create_topic("old", partitions=1)
    log.append("old", value=b"mine")
    assert "name another topic" in command.refusal("import", *write(tmp_path / "old"))
