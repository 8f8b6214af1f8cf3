"""The kit for tests of users: a broker in their process, which can go away and come back."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from chronoline.client.sync import Client
from chronoline.core.errors import BrokerUnavailable
from chronoline.stores.memory import MemoryStore
from chronoline.testing import assert_scheduled
from chronoline.testing.broker import LocalBroker


def test_fixture_sets_the_address_in_the_environment(
    chronoline_broker: str, chronoline_store: MemoryStore
) -> None:
    assert os.environ["CHRONOLINE_ADDRESS"] == chronoline_broker
    with Client() as client:
        client.create_topic("t")
        client.send("t", b"x", id="a", delay=60)
        assert_scheduled(chronoline_store, "t", id="a", body=b"x")


@pytest.mark.usefixtures("chronoline_broker")
def test_next_test_gets_an_empty_broker() -> None:
    with Client() as client:
        assert client.topics() == []


def test_broker_restarts_at_its_address(chronoline_store: MemoryStore) -> None:
    broker = LocalBroker(chronoline_store)
    broker.stop()
    with broker, Client(broker.address) as client, Client(broker.address, timeout=2) as hasty:
        address = broker.address
        client.create_topic("t")
        hasty.topics()
        broker.stop()
        broker.stop()
        with pytest.raises(BrokerUnavailable):
            hasty.topics()
        broker.start()
        assert broker.address == address
        assert client.send("t", b"x", id="a") == "a"


def test_import_loads_no_server() -> None:
    script = "import sys, chronoline.testing.broker; print(*sys.modules)"
    run = [sys.executable, "-c", script]
    loaded = subprocess.run(run, check=True, capture_output=True, text=True).stdout.split()
    assert not {"grpc", "asyncio", "fastapi", "pydantic", "sqlite3"} & set(loaded)
