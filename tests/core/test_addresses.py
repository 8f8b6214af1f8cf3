"""Tokens need TLS to reach other machines."""

from __future__ import annotations

import pytest

from chronoline.core.addresses import (
    check_address,
    check_token_in_clear,
    is_insecure_allowed,
    is_loopback,
)
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


# Addresses of servers


@pytest.mark.parametrize("text", ["127.0.0.1:7400", "[::1]:7400", "host-1.example:65535"])
def test_host_and_port_are_an_address(text: str) -> None:
    assert check_address(text, example="x:1") == text


@pytest.mark.parametrize(
    "text", ["", "host", "host:", ":1", "host:0", "host:65536", "::1:80", "a b:1"]
)
def test_other_text_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="is no address; write host:port, such as x:1"):
        check_address(text, example="x:1")


def test_port_0_stands_for_any_free_port() -> None:
    assert check_address("host:0", example="x:1", least_port=0) == "host:0"
