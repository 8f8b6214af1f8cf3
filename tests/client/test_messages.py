"""The values that users of the SDK get: their moments are datetimes in UTC."""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC, datetime, timedelta, timezone

from chronoline.client import DeadLetter, Forecast, Message, ToSend
from chronoline.client.sync import Client

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
    for value in (Message, DeadLetter, Forecast):
        assert [each.name for each in fields(value) if each.name.endswith("_ms")] == []


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


def test_every_list_may_be_a_generator(chronoline_broker: str) -> None:
    ids = ["a", "b", "c"]
    with Client(chronoline_broker) as client:
        client.create_topic("t")
        sent = client.send_many("t", (ToSend(id=each, delay=3_600) for each in ids))
        assert [each.id for each in sent.raise_for_refused()] == ids
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
