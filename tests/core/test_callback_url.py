"""URLs to call are http or https with a host and no user."""

from __future__ import annotations

import pytest

from chronoline.core.callback_url import CallbackUrl, parse_callback_url, shown_url, url_problem


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
        "http://xn--a/",
        "http://x/" + "y" * 4_087,
    ],
)
def test_urls_that_can_be_called(url: str) -> None:
    assert url_problem("it", url) is None


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("http://x", ("http", "x", 80, "x", "/", "")),
        ("HTTPS://Xn--A.:/?q=/?#f", ("https", "xn--a.", 443, "xn--a.", "/", "q=/?")),
        ("http://[::FFFF]:080//a;b?", ("http", "::ffff", 80, "[::ffff]:80", "//a;b", "")),
    ],
)
def test_parts_of_a_url(url: str, parts: tuple[object, ...]) -> None:
    assert parse_callback_url(url) == CallbackUrl(*parts)  # type: ignore[arg-type]  # of a table


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
    ("url", "shown"),
    [
        ("https://x.example/a/b", "https://x.example/a/b"),
        ("https://x.example/a?token=s3cret&b=?", "https://x.example/a?..."),
        ("https://x.example/a#s3cret", "https://x.example/a"),
        ("https://u:s3cret@x.example/a", "https://x.example/a"),
        ("https://u:s3@cret@x.example?s3cret", "https://x.example?..."),
        ("https://x.example/@a", "https://x.example/@a"),
        ("no URL ?s3cret", "no URL ?..."),
    ],
)
def test_shown_url_has_no_secrets(url: str, shown: str) -> None:
    assert shown_url(url) == shown


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
