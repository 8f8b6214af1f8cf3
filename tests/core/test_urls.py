"""What can be called: http and https, at a host, without a user."""

from __future__ import annotations

import pytest

from chronoline.core.urls import url_problem


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
def test_what_is_wrong_is_said(url: object, problem: str) -> None:
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
def test_what_has_no_place_is_refused(url: str) -> None:
    assert url_problem("it", url) == "it must be http://host/… or https://host/…"
