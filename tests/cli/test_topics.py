from __future__ import annotations

from chronoline.client import Client, TopicSettings
from tests.cli.command import Command


def test_create_stores_the_settings(command: Command, client: Client) -> None:
    said = command(
        *("topic", "create", "made", "--buckets=8", "--lease=5m", "--max-attempts=5"),
        *("--max-lateness=1h", "--dedupe=1d", "--no-dead-letters", "--largest-body=64KiB"),
        "--window=500ms",
    )
    assert said == "topic 'made' exists, with 8 buckets\n"
    assert client.topic("made").settings == TopicSettings(
        buckets=8,
        window=0.5,
        default_lease=300,
        max_attempts=5,
        max_lateness=3_600,
        dedupe=86_400,
        dead_letters=False,
        largest_body_bytes=65_536,
    )


def test_create_stores_the_limits(command: Command, client: Client) -> None:
    command(
        *("topic", "create", "limited", "--most-per-s=100", "--most-in-flight=50"),
        *("--spread=5m", "--group-waiting=1000", "--group-creates-per-s=10"),
    )
    assert client.topic("limited").settings == TopicSettings(
        most_per_s=100,
        most_in_flight=50,
        spread=300,
        group_waiting=1_000,
        group_creates_per_s=10,
    )
    refused = command.refusal("topic", "create", "x", "--most-per-s=0")
    assert "most_per_s must be from 1" in refused


def test_limits_change_and_end(command: Command, topic: str) -> None:
    said = command("topic", "set", topic, "--most-per-s=9", "--spread=1s", "--group-waiting=7")
    assert "most_per_s: none → 9" in said
    assert "spread_ms: none → 1000" in said
    assert "group_waiting: none → 7" in said
    said = command("topic", "set", topic, "--most-per-s=none", "--spread=none")
    assert "most_per_s: 9 → none" in said
    assert "spread_ms: 1000 → none" in said
    refused = command.refusal("topic", "set", topic, "--most-in-flight=many")
    assert "--most-in-flight 'many' must be a whole number, or none" in refused


def test_send_shows_the_spread_due_and_says_what_a_full_quota_means(command: Command) -> None:
    command("topic", "create", "narrow", "--spread=1h", "--group-waiting=1")
    sent = command.json("send", "narrow", "--due=2030-01-01T00:00:00Z", "--id=a")
    assert sent["due"].startswith("2030-01-01T00:")
    assert sent["due"] == command.json("show", "narrow", "a")["due"]
    refused = command.refusal("send", "narrow", "--id=b")
    assert "quota of producer group 'default' on topic 'narrow'" in refused
    assert "group_waiting" in refused


def test_topic_without_options_has_the_defaults(command: Command, client: Client) -> None:
    command("topic", "create", "plain")
    assert client.topic("plain").settings == TopicSettings()


def test_existing_topic_is_refused_or_left_unchanged(command: Command) -> None:
    command("topic", "create", "twice")
    assert "a topic named 'twice' exists" in command.refusal("topic", "create", "twice")
    again = ["topic", "create", "twice", "--if-missing"]
    assert command(*again) == "topic 'twice' exists, with 64 buckets\n"
    assert command("topic", "create", "once", "--if-missing").startswith("topic 'once' exists, ")
    other = command(*again, "--buckets=3", "--dedupe=1s")
    assert other == "topic 'twice' exists already, with other settings: buckets, dedupe_ms\n"


def test_topic_with_a_target_shows_it_and_refuses_consumers(
    command: Command, client: Client
) -> None:
    url = "https://example.com/remind?" + "x" * 200
    said = command("topic", "create", "calls", f"--target={url}")
    assert said == f"topic 'calls' exists, with 64 buckets; it calls {url}\n"
    assert client.topic("calls").settings == TopicSettings(target=url)
    assert command.json("topic", "show", "calls")["settings"]["target"] == url
    shown = command("topic", "show", "calls")
    assert url in "".join(shown.split())
    assert "topic 'calls' has a target" in command.refusal("receive", "calls")
    refused = command.refusal("topic", "create", "x", "--target=http://u:p@example.com/")
    assert "target must hold no user and no password" in refused


def test_bad_settings_are_refused(command: Command) -> None:
    assert "--lease '5' is not a duration" in command.refusal("topic", "create", "x", "--lease=5")
    assert "buckets must be from 1" in command.refusal("topic", "create", "x", "--buckets=0")


def test_topics_are_listed_with_their_counts(command: Command, client: Client, topic: str) -> None:
    for _ in range(2):
        client.send(topic, delay=3_600)
    client.send(topic)
    (found,) = [each for each in command.json("topic", "list") if each["topic"] == topic]
    assert (found["available"], found["processing"], found["waiting"]) == (1, 0, 2)
    shown = command.json("topic", "show", topic)
    (broker,) = shown.pop("brokers")
    assert {**found, "subscribers": []} == shown
    assert (broker["address"], broker["health"]) == (command.address, "healthy")
    assert broker["name"] in command("topic", "show", topic, "--rack=r1")
    assert found["settings"]["max_attempts"] == 1
    assert topic in command("topic", "list")
    *lines, last = command("topic", "show", topic).splitlines()
    assert last == "Nobody consumes."
    shown = dict(line.split() for line in lines)
    assert (shown["available"], shown["waiting"], shown["dead_letters"]) == ("1", "2", "true")
    assert (shown["dedupe_ms"], shown["max_lateness_ms"]) == ("300,000", "–")
    missing = command.refusal("topic", "show", "nothing")
    assert (
        missing == "there is no topic 'nothing'; create it with `chronoline topic create nothing`"
    )


def test_delete_asks_for_confirmation(command: Command, client: Client, topic: str) -> None:
    client.send(topic, delay=3_600)
    for answer in ("n\n", ""):
        refused = command.refusal("topic", "delete", topic, input=answer)
        assert refused == "nothing was done: answer y, or use --yes"
    asked = command.result("topic", "delete", topic, input="y\n")
    assert f"Delete topic '{topic}' with 1 message for good?" in asked.stderr
    assert asked.stdout.endswith(f"\ndeleted topic '{topic}' with 1 message\n")
    client.create_topic("other")
    assert command("topic", "delete", "other", "-y") == "deleted topic 'other' with 0 messages\n"
    assert "there is no topic 'other'" in command.refusal("topic", "delete", "other", "-y")


def test_paused_topic_is_shown_everywhere(command: Command, client: Client, topic: str) -> None:
    said = command("topic", "pause", topic, "--reason", "mails bounce")
    assert said.startswith(f"topic '{topic}' is paused since 2")
    assert said.endswith(": mails bounce\n")
    assert "mails bounce" in command("topic", "show", topic)
    assert f"{topic} (paused)" in command("topic", "list")
    assert "mails bounce" in command("status")
    shown = command.json("topic", "show", topic)
    assert (shown["revision"], shown["paused"]["reason"]) == (2, "mails bounce")
    listed = {each["topic"]: each["paused"] for each in command.json("topic", "list")}
    assert listed[topic]["reason"] == "mails bounce"
    told = {each["topic"]: each["paused"] for each in command.json("status")["topics"]}
    assert told[topic] == listed[topic]
    assert command("topic", "resume", topic) == f"topic '{topic}' is resumed\n"
    assert command("topic", "resume", topic) == f"topic '{topic}' is not paused\n"
    assert "mails bounce" not in command("topic", "show", topic)


def test_set_changes_what_is_named(command: Command, client: Client, topic: str) -> None:
    said = command("topic", "set", topic, "--dedupe=1h", "--max-lateness=1m", "--revision=1")
    assert said == (
        "max_lateness_ms: none → 60000\ndedupe_ms: 300000 → 3600000\n"
        f"topic '{topic}' has revision 2 now\n"
    )
    assert client.topic(topic).settings == TopicSettings(
        max_attempts=1, dedupe=3_600, max_lateness=60
    )
    assert "max_lateness_ms: 60000 → none" in command("topic", "set", topic, "--max-lateness=none")
    assert "has revision 3, not 2" in command.refusal(
        "topic", "set", topic, "--max-attempts=3", "--revision=2"
    )
    assert "buckets never changes: the bucket of each" in command.refusal(
        "topic", "set", topic, "--buckets=3"
    )
    assert "has these settings already" in command("topic", "set", topic, "--max-attempts=1")
    assert "name a setting" in command.refusal("topic", "set", topic)
