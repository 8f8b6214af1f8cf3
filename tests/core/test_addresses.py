"""Tokens travel to other machines by TLS alone, unless that is allowed."""

from __future__ import annotations

import pytest

from chronoline.core.addresses import check_token_in_clear, is_insecure_allowed, is_loopback
from chronoline.core.errors import InvalidInput


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost"])
def test_loopback_is_this_machine_alone(host: str) -> None:
    assert is_loopback(host)
    check_token_in_clear(f"{host}:7400", allow="…")


@pytest.mark.parametrize("address", ["10.0.0.1:7400", "broker.example:7400", "[fd00::1]:7400"])
def test_a_token_is_not_sent_to_others_in_clear(address: str) -> None:
    with pytest.raises(InvalidInput, match="can read the token; it was not sent"):
        check_token_in_clear(address, allow="say so")


def test_sockets_of_the_machine_are_not_a_network() -> None:
    check_token_in_clear("unix:/run/broker.sock", allow="…")


def test_the_environment_can_allow_it() -> None:
    assert is_insecure_allowed({"CHRONOLINE_INSECURE": "1"})
    assert is_insecure_allowed({"CHRONOLINE_INSECURE": "true"})
    assert not is_insecure_allowed({"CHRONOLINE_INSECURE": "0"})
    assert not is_insecure_allowed({})
