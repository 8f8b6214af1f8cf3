"""Bodies: bytes, text, JSON and pydantic models, from send to handler."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pydantic import BaseModel, ValidationError

from chronoline.client.sync import Client, Lease
from chronoline.core.errors import InvalidInput


class Reminder(BaseModel):
    user: str
    at: datetime
    tags: list[str] = []


def _there_and_back(**sent: object) -> Lease:
    with Client() as client:
        client.create_topic("t")
        client.send("t", **sent)  # type: ignore[arg-type]  # whatever a test gives
        return next(iter(client.consume("t")))


pytestmark = pytest.mark.usefixtures("chronoline_broker")


def test_bytes_round_trip() -> None:
    every = bytes(range(256))
    lease = _there_and_back(
        body=every, key=b"\0\xff", headers=[("a", b"1"), ("a", None), ("", "ä")]
    )
    assert (lease.body, lease.key) == (every, b"\0\xff")
    assert lease.headers == (("a", b"1"), ("a", None), ("", "ä".encode()))
    assert lease.header("a") is None
    assert lease.header("missing") is None


def test_missing_body_reads_as_empty() -> None:
    assert _there_and_back(body=None).body == b""


def test_text_is_utf8() -> None:
    assert _there_and_back(body="größer ✓").body.decode() == "größer ✓"


@pytest.mark.parametrize(
    "value", [{"user": "ada", "n": [1, 2.5, None, True]}, [], "", 0, False, "ünï\n"]
)
def test_json_round_trips(value: object) -> None:
    assert _there_and_back(json=value).json() == value


def test_pydantic_model_round_trips() -> None:
    sent = Reminder(user="ada", at=datetime(2030, 1, 1, tzinfo=UTC), tags=["x"])
    lease = _there_and_back(body=sent)
    assert lease.model(Reminder) == sent
    assert lease.json()["user"] == "ada"


def test_mismatched_body_raises() -> None:
    lease = _there_and_back(body=b"\xff no JSON")
    with pytest.raises(InvalidInput, match="is not JSON"):
        lease.json()
    with pytest.raises(ValidationError):
        lease.model(Reminder)


def test_producer_group_reads_a_body_before_its_due() -> None:
    with Client(producer_group="mine") as client, Client(producer_group="others") as other:
        client.create_topic("t")
        client.send("t", json={"a": 1}, id="x", delay=3_600)
        assert client.body("t", "x") == b'{"a":1}'
        with pytest.raises(Exception, match="another producer group"):
            other.body("t", "x")
