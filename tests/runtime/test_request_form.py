"""Requests that servers could read in different ways are refused."""

from __future__ import annotations

import pytest

from chronoline.runtime.request_form import form_problem

Headers = list[tuple[bytes, bytes]]
_HOST = (b"Host", b"a")


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [_HOST, (b"Content-Length", b"3")],
        [_HOST, (b"Transfer-Encoding", b"Chunked")],
        [_HOST, (b"Accept", b"a"), (b"Accept", b"b"), (b"Authorization", b"Bearer a")],
    ],
)
def test_plain_request_is_accepted(headers: Headers) -> None:
    assert form_problem(headers) is None


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        ([(b"Content-Length", b"3"), (b"Transfer-Encoding", b"chunked")], "both"),
        ([(b"transfer-encoding", b"chunked"), (b"content-length", b"3")], "both"),
        ([(b"Transfer-Encoding", b"gzip, chunked")], "chunked"),
        ([(b"Transfer-Encoding", b"xchunked")], "chunked"),
        ([(b"Authorization", b"Bearer a"), (b"authorization", b"Bearer b")], "twice"),
        ([_HOST, (b"host", b"b")], "twice"),
        ([(b"Content-Length", b"3"), (b"Content-Length", b"3")], "twice"),
        ([(b"Transfer-Encoding", b"chunked"), (b"Transfer-Encoding", b"chunked")], "twice"),
    ],
)
def test_request_with_two_readings_is_refused(headers: Headers, words: str) -> None:
    problem = form_problem(headers)
    assert problem is not None
    assert words in problem
