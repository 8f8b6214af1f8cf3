from __future__ import annotations

import re

from chronoline.client import Client
from tests.cli.command import Command

FAR = "2999-01-01T00:00:00Z"


def test_a_schedule_is_created_shown_and_listed(command: Command, topic: str) -> None:
    said = command(
        *("schedule", "create", "report", topic, "--cron=0 9 * * MON-FRI", "--zone=Europe/Berlin"),
        *("--start=2999-01-01T00:00:00Z", "--catch-up=all", "--body=hello", "--header=kind=mail"),
        "--group=billing",
    )
    assert said.splitlines() == [
        f"schedule 'report' sends to topic '{topic}' at '0 9 * * MON-FRI' in Europe/Berlin; the next times:",
        "2999-01-01T08:00:00.000Z",
        "2999-01-02T08:00:00.000Z",
        "2999-01-03T08:00:00.000Z",
        "2999-01-04T08:00:00.000Z",
        "2999-01-07T08:00:00.000Z",
    ]
    shown = command.json("schedule", "show", "report")
    assert {**shown, "times": []} == {
        "schedule": "report",
        "topic": topic,
        "cron": "0 9 * * MON-FRI",
        "zone": "Europe/Berlin",
        "every_ms": None,
        "start": "2999-01-01T00:00:00.000Z",
        "catch_up": "all",
        "group": "billing",
        "paused": False,
        "next": "2999-01-01T08:00:00.000Z",
        "times": [],
        "key": None,
        "headers": [["kind", "mail"]],
        "body": "hello",
        "problem": "",
    }
    assert shown["times"][0] == {
        "id": "report@2999-01-01T08:00:00.000Z",
        "due": "2999-01-01T08:00:00.000Z",
    }
    table = command("schedule", "show", "report")
    assert "at '0 9 * * MON-FRI' in Europe/Berlin" in table
    assert "hello" in table
    assert table.count("2999-01-01T08:00") == 1  # as the next time, not as a further one
    assert topic in command("schedule", "list")
    (listed,) = command.json("schedule", "list", f"--topic={topic}")
    assert listed == {**shown, "times": shown["times"][:1], "body": None}
    assert command("schedule", "next", "report", "-n", "2").split() == [
        "2999-01-01T08:00:00.000Z",
        "2999-01-02T08:00:00.000Z",
    ]


def test_a_dry_run_creates_nothing(command: Command, topic: str) -> None:
    said = command("schedule", "create", "dry", topic, "--every=1h", f"--start={FAR}", "--dry-run")
    assert said.startswith(f"schedule 'dry' would send to topic '{topic}' every 3,600 s;")
    assert "there is no schedule 'dry'" in command.refusal("schedule", "show", "dry")


def test_a_schedule_is_changed_paused_resumed_and_deleted(command: Command, topic: str) -> None:
    create = ("schedule", "create", "poll", topic, f"--start={FAR}")
    command(*create, "--every=15m")
    assert command(*create, "--every=15m") == command(*create, "--every=15m")
    refused = command.refusal(*create, "--every=5m")
    assert refused == "another schedule named 'poll' exists; to change it, replace it"
    assert "every 300 s" in command(*create, "--every=5m", "--replace")
    assert command("schedule", "pause", "poll").startswith("paused 'poll'")
    assert command.json("schedule", "show", "poll")["paused"] is True
    shown = command("schedule", "show", "poll")
    assert re.findall(r"(?:next|then) +(\S+)", shown)[:2] == ["paused", "2999-01-01T00:00:00.000Z"]
    assert "paused" in command("schedule", "list")
    assert command("schedule", "resume", "poll") == (
        "resumed 'poll'; next 2999-01-01T00:00:00.000Z\n"
    )
    assert command.refusal("schedule", "delete", "poll").endswith("use --yes")
    assert command("schedule", "delete", "poll", "--yes") == "deleted schedule 'poll'\n"
    assert "there is no schedule 'poll'" in command.refusal("schedule", "delete", "poll", "--yes")


def test_an_occurrence_reaches_a_consumer_with_name_and_time(
    command: Command, client: Client, topic: str
) -> None:
    command("schedule", "create", "tick", topic, "--cron=* * * * * *", "--body=tick")
    lease = next(iter(client.consume(topic)))
    headers = dict(lease.headers)
    scheduled = headers["chronolineScheduledFor"] or b""
    assert (lease.body, headers["chronolineSchedule"]) == (b"tick", b"tick")
    assert lease.id == f"tick@{scheduled.decode()}"
    lease.ack()
    command("schedule", "delete", "tick", "--yes")


def test_bad_input_says_what_to_write(command: Command, topic: str) -> None:
    create = ("schedule", "create", "x", topic)
    assert "give either --cron or --every, such as" in command.refusal(*create)
    assert "the hour field '25'" in command.refusal(*create, "--cron=0 25 * * *")
    assert "such as '0 9 * * MON-FRI'" in command.refusal(*create, "--cron=0 9 * *")
    assert "never fires" in command.refusal(*create, "--cron=0 0 30 2 *")
    assert "did you mean Europe/Berlin" in command.refusal(
        *create, "--cron=@daily", "--zone=europe/berlin"
    )
    assert "at least 1 second" in command.refusal(*create, "--every=500ms")
    assert "there is no topic" in command.refusal(
        "schedule", "create", "x", "missing", "--every=1m"
    )
