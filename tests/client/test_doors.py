"""Access: tokens, and TLS with a private authority."""

from __future__ import annotations

from pathlib import Path

import pytest

from chronoline.broker.auth import Door, ServerTls
from chronoline.broker.tokens import Tokens
from chronoline.client.sync import Client
from chronoline.core.errors import BrokerUnavailable, InvalidInput, Unauthenticated
from chronoline.stores.memory import MemoryStore
from chronoline.testing.broker import LocalBroker
from tests.certificates import make_certificate


@pytest.fixture
def tokens(tmp_path: Path) -> Tokens:
    return Tokens(tmp_path / "tokens.json")


def test_wrong_token_is_refused(
    tokens: Tokens, chronoline_store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = tokens.create("me")
    with LocalBroker(chronoline_store, door=Door(tokens)) as broker:
        for wrong in (None, "wrong"):
            with Client(broker.address, token=wrong) as client:
                for ask in (client.topics, lambda: client.send("t", b"x")):
                    with pytest.raises(Unauthenticated, match="chronoline token create"):
                        ask()
        with Client(broker.address, token=token) as client:
            client.create_topic("t")
            client.send("t", b"x", id="a")
        monkeypatch.setenv("CHRONOLINE_TOKEN", token)
        with Client(broker.address) as client:
            assert next(client.consume("t")).id == "a"


def test_revoked_token_ends_open_streams(tokens: Tokens, chronoline_store: MemoryStore) -> None:
    token = tokens.create("me")
    with (
        LocalBroker(chronoline_store, door=Door(tokens)) as broker,
        Client(broker.address, token=token) as client,
    ):
        client.create_topic("t")
        client.send("t", b"x")
        leases = client.consume("t")
        next(leases)
        tokens.revoke("me")  # while both streams are open
        with pytest.raises(Unauthenticated):
            next(leases)
        with pytest.raises(Unauthenticated):
            client.send("t", b"x")


def test_tls_with_a_private_authority(tmp_path: Path, chronoline_store: MemoryStore) -> None:
    certificate, key = make_certificate(tmp_path)
    door = Door(tls=ServerTls(certificate=certificate, key=key))
    with LocalBroker(chronoline_store, door=door) as broker:
        for trusted in (certificate, str(certificate)):
            with Client(broker.address, tls=trusted) as client:
                client.create_topic("t")
                client.send("t", b"x", delay=60)
        for other in (False, True):
            with Client(broker.address, tls=other) as client, pytest.raises(BrokerUnavailable):
                client.topics()
        with (
            Client(broker.address, tls=tmp_path / "missing.pem") as client,
            pytest.raises(InvalidInput, match="cannot be read"),
        ):
            client.topics()
