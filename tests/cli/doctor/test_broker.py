"""`chronoline doctor --address`: a running broker."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from chronoline.broker.auth import Door, ServerTls
from chronoline.broker.tokens import Tokens
from chronoline.core.version import VERSION
from chronoline.stores.factory import open_store
from chronoline.testing.broker import LocalBroker
from tests.certificates import make_certificate
from tests.cli.doctor.conftest import Doctor


def test_broker_that_is_ready(doctor: Doctor, address: str) -> None:
    found = doctor("--address", address)
    assert found["broker"]["state"] == "ok"
    assert address in found["broker"]["words"]
    assert VERSION in found["broker"]["words"]
    assert "store" not in found  # the node's own settings were not asked for


def test_machine_with_the_client_alone_has_no_problem(
    doctor: Doctor, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "fastapi", None)
    monkeypatch.delenv("CHRONOLINE_ADDRESS", raising=False)
    found = doctor()
    assert found["node"]["state"] == "ok"
    assert "--address" in found["node"]["words"]
    assert doctor("--config", "node.toml")["settings"]["state"] == "problem"
    monkeypatch.setenv("CHRONOLINE_ADDRESS", address)
    found = doctor()
    assert "node" not in found
    assert address in found["broker"]["words"]


def test_broker_that_is_away(doctor: Doctor) -> None:
    found = doctor("--address", "127.0.0.1:1")["broker"]
    assert found["state"] == "problem"
    assert "127.0.0.1:1" in found["words"]


def test_certificate_that_a_broker_serves(
    doctor: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = make_certificate(tmp_path)  # for a day
    tokens = Tokens(tmp_path / "tokens.json")
    monkeypatch.setenv("CHRONOLINE_TOKEN", tokens.create("ops"))
    door = Door(tokens, ServerTls(certificate=certificate, key=key))
    with open_store("memory:") as store, LocalBroker(store, door=door) as broker:
        found = doctor("--address", broker.address, "--ca", str(certificate))
    assert found["broker"]["state"] == "ok"
    assert found[f"certificate of {broker.address}"]["state"] == "warning"
