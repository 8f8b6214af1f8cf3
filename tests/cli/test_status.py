from __future__ import annotations

import json

import pytest

from chronoline import __version__
from chronoline.cli.broker import Broker
from chronoline.client import Client
from chronoline.wire.v1 import chronoline_pb2 as pb
from tests.cli.command import Command


def test_broker_consumers_and_topics_are_shown(
    address: str, command: Command, client: Client, topic: str
) -> None:
    client.send(topic, b"now")
    client.send(topic, b"later", delay=3_600)
    leases = client.consume(topic, consumer="me")
    next(iter(leases))
    found = command.json("status")
    (broker,) = found["brokers"]
    assert broker["version"] == __version__
    assert broker["roles"] == ["overseer", "carrier"]
    assert broker["address"] == address  # which was asked for as port 0
    assert (found["store_problem"], found["degradations"]) == (None, [])
    (subscriber,) = (each for each in found["subscribers"] if each["topic"] == topic)
    assert subscriber == {
        "consumer": "me",
        "topic": topic,
        "start_bucket": 0,
        "stop_bucket": 64,
        "busy": False,
    }
    (counts,) = (each for each in found["topics"] if each["topic"] == topic)
    assert counts == {"topic": topic, "paused": None, "available": 0, "processing": 1, "waiting": 1}
    shown = command("status")
    assert f"broker {broker['id']}, version {__version__}, overseer, carrier, at {address}" in shown
    assert "The store answers." in shown
    assert "0 to 63" in shown


def test_store_away_is_reported(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    away = pb.Cluster(
        store_problem="it is\x1b away",
        subscribers=[pb.Subscriber(consumer="c", topic="t", busy=True)],
    )
    monkeypatch.setattr(Broker, "info", lambda _: away)
    result = command.unhappy("status")
    assert result.stdout == "The store does not answer: it is� away\n"
    assert '"store_problem": "it is\\u001b away"' in command.unhappy("status", "--json").stdout


def test_broker_not_ready_says_why(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    reasons = {"storage": "the store takes no changes: it is\x1b locked", "clock": "it is behind"}
    info = pb.Cluster(
        degradations=[pb.Degradation(type=each, reason=reasons[each]) for each in reasons]
    )
    monkeypatch.setattr(Broker, "info", lambda _: info)
    shown = command.unhappy("status").stdout
    assert "Not ready (storage): the store takes no changes: it is� locked\n" in shown
    assert "Not ready (clock): it is behind\n" in shown
    assert "The store answers.\n" in shown  # and what is in it is shown
    found = json.loads(command.unhappy("status", "--json").stdout)
    assert found["degradations"] == [{"type": each, "reason": reasons[each]} for each in reasons]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"busy": True, "stop_bucket": 4}, "none: it is busy"),
        ({}, "none yet, or there are more consumers than buckets"),
        ({"start_bucket": 3, "stop_bucket": 7}, "3 to 6"),
    ],
)
def test_consumer_share_in_words(
    command: Command, monkeypatch: pytest.MonkeyPatch, given: dict[str, int], words: str
) -> None:
    subscriber = pb.Subscriber(consumer="c", topic="t", **given)  # type: ignore[arg-type]  # of each kind
    info = pb.Cluster(subscribers=[subscriber])
    monkeypatch.setattr(Broker, "info", lambda _: info)
    assert words in command("status")
