"""The values that users of the SDK get: their moments are datetimes in UTC."""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from chronoline.client import DeadLetter, Forecast, Message, Outcome, Topic, TopicSettings, ToSend
from chronoline.client.sync import Client
from chronoline.core.errors import InvalidInput, Refused, StoreUnavailable
from chronoline.store import TopicSettings as StoreSettings

DUE = datetime(2035, 1, 1, 12, 0, 0, 1_000, tzinfo=UTC)
ELSEWHERE = timezone(timedelta(hours=-5))


def test_lookup_returns_the_due_that_was_sent(chronoline_broker: str) -> None:
    expires = DUE + timedelta(days=1)
    with Client(chronoline_broker) as client:
        client.create_topic("t")
        client.send("t", id="a", due=DUE.astimezone(ELSEWHERE), expires=expires)
        found = client.lookup("t", "a")
    assert found is not None
    assert (found.due, found.ts, found.expires) == (DUE, DUE, expires)
    assert found.due.tzinfo is UTC


def test_forecast_steps_begin_at_datetimes(chronoline_broker: str) -> None:
    with Client(chronoline_broker) as client:
        client.create_topic("t")
        client.send("t", due=DUE)
        steps = client.forecast("t", DUE, DUE + timedelta(hours=2), timedelta(hours=1))
        whole = client.count("t", DUE)
    assert [(each.start, each.waiting) for each in steps] == [
        (DUE, 1),
        (DUE + timedelta(hours=1), 0),
    ]
    assert whole.start == DUE


def test_pages_of_dead_letters_go_on_behind_the_last(chronoline_broker: str) -> None:
    with Client(chronoline_broker) as client:
        client.create_topic("t")
        before = datetime.now(UTC)
        for number in range(3):
            client.send("t", id=str(number), delay=0)
        leases = client.consume("t")
        for _ in range(3):
            next(leases).bury("broken")
        first = client.dead_letters("t", limit=2)
        rest = client.dead_letters("t", after=first[-1])
    assert sorted(each.message.id for each in (*first, *rest)) == ["0", "1", "2"]
    assert all(each.died >= before - timedelta(seconds=1) for each in first)


def test_lease_shows_due_and_end_as_datetimes(chronoline_broker: str) -> None:
    due = datetime.now(UTC).replace(microsecond=7_000) - timedelta(minutes=1)
    with Client(chronoline_broker) as client:
        client.create_topic("t")
        client.send("t", due=due)
        lease = next(client.consume("t", lease=600))
        assert lease.due == due
        assert datetime.now(UTC) < lease.until <= datetime.now(UTC) + timedelta(seconds=601)
        lease.ack()


def test_no_value_of_the_sdk_names_milliseconds() -> None:
    for value in (DeadLetter, Forecast, Message, Outcome, Topic, TopicSettings):
        assert [each.name for each in fields(value) if each.name.endswith("_ms")] == []


def test_settings_of_a_topic_are_timedeltas(chronoline_broker: str) -> None:
    settings = TopicSettings(
        window=0.5,
        default_lease=timedelta(minutes=1),
        max_lateness=timedelta(hours=1),
        dedupe=0,
        max_attempts=3,
    )
    with Client(chronoline_broker) as client:
        made = client.create_topic("t", settings)
        assert made == client.topic("t") == client.topics()[0]
        assert made.settings == settings
        assert client.create_topic("plain").settings == TopicSettings()
    assert (settings.window, settings.dedupe) == (timedelta(milliseconds=500), timedelta(0))
    assert TopicSettings().max_lateness is None


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"window": timedelta(hours=2)}, "window_ms must be from 1 to 3600000"),
        ({"default_lease": "1m"}, "default_lease must be seconds or a timedelta"),
        ({"buckets": 0, "max_attempts": 0}, "buckets must be .*; max_attempts must be"),
    ],
)
def test_invalid_settings_of_a_topic_are_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        TopicSettings(**given)


def test_settings_of_a_store_are_refused(chronoline_broker: str) -> None:
    with (
        Client(chronoline_broker) as client,
        pytest.raises(InvalidInput, match=r"TopicSettings of chronoline\.client"),
    ):
        client.create_topic("t", StoreSettings())  # type: ignore[arg-type]  # what is tested


def test_outcomes_of_the_sdk_have_no_milliseconds(chronoline_broker: str) -> None:
    with Client(chronoline_broker) as client:
        client.create_topic("t")
        (sent,) = client.send_many("t", [ToSend(id="a", delay=60)])
        assert (type(sent), sent.at) == (Outcome, None)
        with pytest.raises(Refused) as refused:
            client.cancel("t", "missing")
    assert isinstance(refused.value.outcomes[0], Outcome)


def test_error_says_when_to_try_again() -> None:
    error = StoreUnavailable()
    assert error.retry_after is None
    error.retry_after_ms = 1_500
    assert error.retry_after == timedelta(seconds=1.5)


def test_cancel_many_returns_an_outcome_for_each(chronoline_broker: str) -> None:
    ids = [f"m{number}" for number in range(3_000)]
    with Client(chronoline_broker) as client:
        client.create_topic("t")
        client.send_many("t", [ToSend(id=each, delay=3_600) for each in ids]).raise_for_refused()
        outcomes = client.cancel_many("t", [*ids, "missing"])
        assert [each.id for each in outcomes] == [*ids, "missing"]
        assert [each.refusal for each in outcomes.refused] == ["not_found"]
        assert client.count("t").total == 0
        assert client.cancel_many("t", []) == []


def test_reschedule_many_returns_an_outcome_for_each(chronoline_broker: str) -> None:
    ids = [f"m{number}" for number in range(3_000)]
    due = datetime(2040, 1, 1, tzinfo=UTC)
    with Client(chronoline_broker) as client:
        client.create_topic("t")
        client.send_many("t", [ToSend(id=each, delay=3_600) for each in ids]).raise_for_refused()
        outcomes = client.reschedule_many("t", [*ids, "missing"], due=due)
        assert [each.id for each in outcomes] == [*ids, "missing"]
        assert [each.refusal for each in outcomes.refused] == ["not_found"]
        assert {each.at for each in outcomes if each.done} == {due}
        assert client.count("t", due, due + timedelta(milliseconds=1)).total == len(ids)


def test_every_list_may_be_a_generator(chronoline_broker: str) -> None:
    ids = ["a", "b", "c"]
    with Client(chronoline_broker) as client:
        client.create_topic("t")
        sent = client.send_many("t", (ToSend(id=each, delay=3_600) for each in ids))
        assert [each.id for each in sent.raise_for_refused()] == ids
        moved = client.reschedule_many("t", (each for each in ids), delay=7_200)
        assert [each.id for each in moved.raise_for_refused()] == ids
        cancelled = client.cancel_many("t", (each for each in ids))
        assert [each.id for each in cancelled.raise_for_refused()] == ids
        for name in ("d", "e"):
            client.send("t", id=name)
        leases = client.consume("t")
        for lease in (next(leases), next(leases)):
            lease.bury("broken")
        assert [each.done for each in client.redrive("t", iter(["d"]), delay=3_600)] == [True]
        assert [each.done for each in client.discard("t", iter(["e"]))] == [True]
        assert client.count("t").total == 1
