"""A broker in this process, and the commands that speak with it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from chronoline.client import Client, TopicSettings
from chronoline.stores.factory import open_store
from chronoline.testing.broker import LocalBroker
from tests.cli.command import Command

_numbers = count()


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with open_store("memory:") as store, LocalBroker(store) as broker:
        yield broker.address


@pytest.fixture
def command(address: str) -> Command:
    return Command(address)


@pytest.fixture
def client(address: str) -> Iterator[Client]:
    with Client(address) as client:
        yield client


@pytest.fixture
def topic(client: Client) -> str:
    """A topic of its own for each test, on which a message dies of its first failure."""
    name = f"t{next(_numbers)}"
    client.create_topic(name, TopicSettings(max_attempts=1))
    return name
