"""Which addresses may be called."""

from __future__ import annotations

import pytest

from chronoline.callbacks.address_guard import LOOPBACK, AddressGuard

_REFUSED = [
    "127.0.0.1",
    "127.8.8.8",
    "0.0.0.0",
    "10.0.0.1",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "192.0.2.1",
    "198.18.0.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "fe80::1",
    "fe80::1%eth0",
    "fc00::1",
    "fd12::1",
    "ff02::1",
    "2001:db8::1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b:1::a00:1",
    "2002:7f00:1::",
    "not an address",
    "",
]


@pytest.mark.parametrize("address", _REFUSED)
def test_special_addresses_are_refused(address: str) -> None:
    assert not AddressGuard().allows(address)


@pytest.mark.parametrize(
    "address", ["1.1.1.1", "93.184.216.34", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101"]
)
def test_public_addresses_are_allowed(address: str) -> None:
    assert AddressGuard().allows(address)


def test_allowed_networks_are_exempt() -> None:
    guard = AddressGuard([*LOOPBACK, "10.1.0.0/16"])
    assert guard.allows("127.0.0.1")
    assert guard.allows("::1")
    assert guard.allows("::ffff:127.0.0.1")
    assert guard.allows("10.1.2.3")
    assert not guard.allows("10.2.0.1")
    assert not guard.allows("169.254.169.254")


def test_invalid_network_is_refused() -> None:
    with pytest.raises(ValueError, match=r"10\.0\.0\.0/99"):
        AddressGuard(["10.0.0.0/99"])


@pytest.mark.parametrize(
    "host",
    [
        "10.0.0.1",
        "10.1",
        "2130706433",
        "0x7f000001",
        "[::1]",
        "[fd12::1]",
        "localhost",
        "LocalHost",
    ],
)
def test_url_of_a_forbidden_address_is_refused(host: str) -> None:
    words = AddressGuard().refusal(f"http://{host}:9000/x") or ""
    assert words.startswith(host.strip("[]").lower())
    assert "callbacks.allow" in words
    assert AddressGuard(["0.0.0.0/0", "::/0"]).refusal(f"http://{host}:9000/x") is None


def test_localhost_may_be_called_at_either_address() -> None:
    assert AddressGuard(["::1/128"]).refusal("http://localhost/") is None


@pytest.mark.parametrize("host", ["example.com", "1.1.1.1", "[2606:4700::1111]", "10.example.com"])
def test_url_of_a_name_or_a_public_address_is_not_refused(host: str) -> None:
    assert AddressGuard().refusal(f"https://{host}/") is None
