"""The form of HTTP requests that all servers on their way read alike.

A proxy and a node that read another end of the same body, or another token of the same header, can be played
off against each other: one checks a request that the other does not see (request smuggling). So a request
that leaves a choice is refused.
"""

from __future__ import annotations

from collections.abc import Iterable

_SINGLE = frozenset({b"authorization", b"content-length", b"host", b"transfer-encoding"})


def form_problem(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """The reason why a request with these headers can be read in two ways; None if it cannot."""
    found: dict[bytes, bytes] = {}
    for given, value in headers:
        name = given.lower()
        if name in _SINGLE and name in found:
            return f"the header {name.decode()} is there twice"
        found[name] = value
    coding = found.get(b"transfer-encoding")
    if coding is None:
        return None
    if b"content-length" in found:
        return "the body has both Content-Length and Transfer-Encoding"
    return None if coding.strip().lower() == b"chunked" else "the only Transfer-Encoding is chunked"
