"""Tokens need TLS to reach other machines; URLs to call are http or https with a host and no user."""

from __future__ import annotations

import pytest

from chronoline.core.addresses import (
    check_address,
    check_token_in_clear,
    is_insecure_allowed,
    is_loopback,
    url_problem,
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


# URLs to call


@pytest.mark.parametrize(
    "url",
    [
        "http://x",
        "https://example.com./a?b=c%20d",
        "HTTP://EXAMPLE.com:8080/",
        "http://[::1]:9000/",
        "http://127.0.0.1:65535/x;y=@z",
        "http://a_b.example/",
        "http://x:/",
        "http://x/" + "y" * 4_087,
    ],
)
def test_urls_that_can_be_called(url: str) -> None:
    assert url_problem("it", url) is None


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        (None, "it must be text, not NoneType"),
        ("http://x/" + "y" * 4_088, "it must be of at most 4096 characters, not 4097"),
        ("http://x/\t", "it must be of printable ASCII characters, others escaped"),
        ("http://x/ ", "it must be of printable ASCII characters, others escaped"),
        ("http://ü/", "it must be of printable ASCII characters, others escaped"),
        ("http://u@x/", "it must hold no user and no password"),
        ("http://@x/", "it must hold no user and no password"),
        ("http://:p@x/", "it must hold no user and no password"),
    ],
)
def test_problem_of_a_url_is_said(url: object, problem: str) -> None:
    assert url_problem("it", url) == problem


@pytest.mark.parametrize(
    "url",
    [
        *("", "x", "//x/", "http:x", "http:///x", "file:///x", "ftp://x/", "http://:80/"),
        *("http://x:0/", "http://x:65536/", "http://x:y/", "http://x:-1/", "http://-x/"),
        *("http://a\\b/", "http://a%20b/", "http://a,b/", "http://" + "a" * 254),
        *("http://::1/", "http://[::1/", "http://[::1]x/", "http://x[::1]/", "http://[x]/"),
        *("http://[v1.x]/", "http://[fe80::1%25eth0]/", "http://[fe80::1%eth0]/"),
    ],
)
def test_url_without_a_host_is_refused(url: str) -> None:
    assert url_problem("it", url) == "it must be http://host/… or https://host/…"


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
