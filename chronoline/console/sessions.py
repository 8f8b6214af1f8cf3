"""Sessions of browsers: a cookie that stands for a token, and a secret that each form has to repeat.

A session holds the token itself, in memory: every request is checked by it, so that a revoked or expired
token ends what it opened. The cookie is HttpOnly and SameSite=Strict. Forms carry the session's secret, which
another site cannot read (CSRF).

Browsers that have not signed in have sessions, too, since the form for the token carries a secret as well.
They are bounded apart from the others: strangers sign nobody out, however many they are.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

_COOKIE = "chronoline_session"
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
    """The sessions of a node. The one that was unused longest goes when there are too many."""

    def __init__(self, now_s: Callable[[], float], node: str = "") -> None:
        """`now_s` is a monotonic clock. `node` is the name of the node.

        The nodes of one machine get the cookies of each other, since a cookie knows no ports.
        """
        self._now_s = now_s
        self.cookie = f"{_COOKIE}_{hashlib.sha256(node.encode()).hexdigest()[:8]}"
        """The name of the cookie."""
        self._strangers: OrderedDict[str, BrowserSession] = OrderedDict()
        self._signed_in: OrderedDict[str, BrowserSession] = OrderedDict()

    def open(self, authorization: bytes = b"") -> BrowserSession:
        now_s = self._now_s()
        session = BrowserSession(now_s, authorization)
        sessions = self._like(session)
        while sessions:
            oldest = next(iter(sessions.values()))
            if len(sessions) < _MOST and now_s - oldest.used_s < _IDLE_S:
                break
            self.close(oldest)
        sessions[session.id] = session
        return session

    def find(self, cookies: bytes, *, uses: bool = True) -> BrowserSession | None:
        """The session that a `cookie` header names, unless it has ended.

        Its idle time begins anew if this uses it.
        """
        session_id = self._session_id(cookies)
        session = self._signed_in.get(session_id) or self._strangers.get(session_id)
        if session is None:
            return None
        now_s = self._now_s()
        if now_s - session.used_s >= _IDLE_S:
            self.close(session)
            return None
        if uses:
            session.used_s = now_s
            self._like(session).move_to_end(session.id)
        return session

    def close(self, session: BrowserSession) -> None:
        """May be called twice."""
        self._like(session).pop(session.id, None)

    def _like(self, session: BrowserSession) -> OrderedDict[str, BrowserSession]:
        return self._signed_in if session.authorization else self._strangers

    def _session_id(self, cookies: bytes) -> str:
        """The value of the console's cookie. Cookies of other programs on this host may have any form."""
        for each in cookies.decode("latin-1").split(";"):
            name, _, value = each.strip().partition("=")
            if name == self.cookie:
                return value
        return ""
