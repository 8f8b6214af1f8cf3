"""`chronoline log import`: goes on where it was, and says what it did."""

import json
from pathlib import Path

from chronoline.log import Log
from tests.cli.log.command import Command


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


def test_importing(command: Command, tmp_path: Path) -> None:
    arguments = write(tmp_path / "old")
    assert command("import", *arguments) == (
        "imported 3 events, 1 of them missing in 1 partition, and the progress of 1 group\n"
    )
    assert command("import", *arguments) == "imported 0 events in 1 partition\n"
    with Log(command.folder.as_uri()) as log:
        assert [each.value for each in log.read("old", follow=False)] == [b"0", None, b"2"]
        assert [each.sequence for each in log.read("old", group="g", follow=False)] == [2]


def test_a_topic_with_other_events_is_refused(command: Command, log: Log, tmp_path: Path) -> None:
    log.create_topic("old", partitions=1)
    log.append("old", value=b"mine")
    assert "name another topic" in command.refusal("import", *write(tmp_path / "old"))
