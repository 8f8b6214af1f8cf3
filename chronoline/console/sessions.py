"""Sessions of browsers: a cookie that stands for a token, and a secret that each form has to repeat.

A session holds the token itself, in memory: every request is checked by it, so that a revoked or expired
token ends what it opened. The cookie is HttpOnly and SameSite=Strict. Forms carry the session's secret, which
another site cannot read (CSRF).
"""

from __future__ import annotations

import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie

COOKIE = "chronoline_session"
_MOST = 1_000
_IDLE_S = 12 * 3600
_SECRET_BYTES = 32


def _secret() -> str:
    return secrets.token_urlsafe(_SECRET_BYTES)


@dataclass(slots=True)
class BrowserSession:
    """One browser."""

    used_s: float
    authorization: bytes = b""
    """The header of a program with the same token; empty for a browser that has not signed in."""
    id: str = field(default_factory=_secret)
    form_secret: str = field(default_factory=_secret)
    notes: list[tuple[str, str]] = field(default_factory=list)
    """The outcome of the last action, for the next page: kind and words."""

    def knows(self, form_secret: str) -> bool:
        return hmac.compare_digest(self.form_secret.encode(), form_secret.encode())


class BrowserSessions:
    """The sessions of a node. The one that was unused longest goes when there are too many of its kind.

    Browsers that have not signed in are another kind: a flood of them ends nobody's session.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        """`now_s` is a monotonic clock."""
        self._now_s = now_s
        self._signed_in: OrderedDict[str, BrowserSession] = OrderedDict()
        self._others: OrderedDict[str, BrowserSession] = OrderedDict()

    def open(self, authorization: bytes = b"") -> BrowserSession:
        now_s = self._now_s()
        session = BrowserSession(now_s, authorization)
        kind = self._kind(session)
        while kind:
            oldest = next(iter(kind.values()))
            if len(kind) < _MOST and now_s - oldest.used_s < _IDLE_S:
                break
            self.close(oldest)
        kind[session.id] = session
        return session

    def find(self, cookies: bytes) -> BrowserSession | None:
        """The session that a `cookie` header names, unless it has ended."""
        cookie = _cookie(cookies)
        session = self._signed_in.get(cookie) or self._others.get(cookie)
        if session is None:
            return None
        now_s = self._now_s()
        if now_s - session.used_s >= _IDLE_S:
            self.close(session)
            return None
        session.used_s = now_s
        self._kind(session).move_to_end(session.id)
        return session

    def close(self, session: BrowserSession) -> None:
        """May be called twice."""
        self._kind(session).pop(session.id, None)

    def _kind(self, session: BrowserSession) -> OrderedDict[str, BrowserSession]:
        return self._signed_in if session.authorization else self._others


def _cookie(cookies: bytes) -> str:
    parsed: SimpleCookie = SimpleCookie()
    try:
        parsed.load(cookies.decode("latin-1"))
    except CookieError:
        return ""
    found = parsed.get(COOKIE)
    return "" if found is None else found.value
