"""Tokens need TLS to reach other machines."""

from __future__ import annotations

import pytest

from chronoline.core.addresses import (
    AllowedHosts,
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


# Host names by which a listener is asked


@pytest.mark.parametrize(
    "host",
    [
        "",
        "localhost",
        "LOCALHOST:7480",
        "127.0.0.1:7480",
        "[::1]:7480",
        "10.0.0.5",
        "10.0.0.5:7480",
        "node-1:7480",
        "Node-1.",
        "[FD00::1]:7480",
    ],
)
def test_request_may_name_this_machine_the_address_and_names_that_are_set(host: str) -> None:
    assert AllowedHosts(["node-1", "[fd00::1]"]).problem(host, "10.0.0.5") is None


@pytest.mark.parametrize(
    "host",
    [
        "evil.test",
        "evil.test:7480",
        "localhost.evil.test",
        "127.0.0.1.evil.test",
        "node-1.evil.test",
        "10.0.0.6:7480",
        "[fd00::2]",
        "::ffff:10.0.0.6",
        "node-1:7480.evil.test",
    ],
)
def test_request_for_another_name_is_refused(host: str) -> None:
    problem = AllowedHosts(["node-1"]).problem(host, "10.0.0.5")
    assert problem is not None
    assert "add the name to allowed_hosts" in problem


def test_address_of_a_connection_has_one_form() -> None:
    hosts = AllowedHosts()
    assert hosts.problem("10.0.0.5:7480", "::ffff:10.0.0.5") is None
    assert hosts.problem("[fe80::1]:7480", "fe80::1%eth0") is None


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
