"""Sessions of browsers: a cookie with the sealed token, which any node of a cluster opens.

Nodes keep nothing of a session. Its cookie is the token, encrypted under the hash of that token, which every
node has in its tokens. So each request is checked by the token itself: one that was revoked or has expired
ends what it opened, at all nodes. A thief of the cookie does not learn the token; a thief of the tokens,
which are hashes, can make no cookie. A JWT is not among the tokens, so its cookie is worth as much as the
JWT.

The cookie is HttpOnly and SameSite=Strict, and opens nothing but the console. Forms carry a secret that
follows from the cookie, which another site cannot read (CSRF). Browsers that have not signed in have a
cookie, too, since the form for the token carries a secret as well.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from chronoline.runtime.bounded_cache import BoundedCache

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_MOST_ENDED = 1_000
_LASTS_S = 12 * 3600
_SECRET_BYTES = 32
_STRANGER = re.compile(r"[A-Za-z0-9_-]{43}")
"""The form of a cookie of a browser that has not signed in."""
_NONCE_BYTES = 12
_OPENED_BYTES = 8
_PURPOSE = b"chronoline console session\0"
_MOST_COOKIE_BYTES = 3_800
"""Browsers keep no cookie of more than 4096 bytes, its name and attributes included."""
_MOST_NOTE_CHARACTERS = 500

Note = tuple[str, str]


@dataclass(slots=True)
class BrowserSession:
    """One browser, as its cookie describes it."""

    cookie: str
    """The value of its cookie."""
    form_secret: str
    authorization: bytes = b""
    """The header of a program with the same token; empty for a browser that has not signed in."""
    notes: list[Note] = field(default_factory=list)
    """The outcome of the last action, for the next page: kind and words."""

    def knows(self, form_secret: str) -> bool:
        return hmac.compare_digest(self.form_secret.encode(), form_secret.encode())

    # Notes travel in a cookie, since the next page may come from another node.

    def notes_cookie(self) -> str:
        """The notes as the value of a cookie; empty if there are none."""
        if not self.notes:
            return ""
        short = [(kind, words[:_MOST_NOTE_CHARACTERS]) for kind, words in self.notes]
        text = _to_text(json.dumps(short).encode())
        return f"{text}.{_mac(self.form_secret.encode(), text)}"

    def read_notes(self, cookie: str) -> None:
        """Takes the notes of a cookie, if it was made with the secret of this session."""
        text, _, mac = cookie.partition(".")
        if text and hmac.compare_digest(
            _mac(self.form_secret.encode(), text).encode(), mac.encode()
        ):
            self.notes = [(kind, words) for kind, words in json.loads(_to_bytes(text))]


class BrowserSessions:
    """Makes and opens the cookies of browsers."""

    def __init__(self, now_s: Callable[[], float], hash_of: Callable[[str], str]) -> None:
        """`now_s` is the time since 1970. `hash_of` is the hash of a token by its name, or empty."""
        self._now_s = now_s
        self._hash_of = hash_of
        self._node_secret = secrets.token_bytes(_SECRET_BYTES)
        self._ended: BoundedCache[bytes, bool] = BoundedCache(_MOST_ENDED)
        """The sessions that signed out here. Elsewhere a copy of the cookie works until its time is over."""

    def stranger(self, cookie: str = "", *, is_let_in: bool) -> BrowserSession:
        """A browser without a token: a new one, or that of a cookie.

        `is_let_in` says that it may act without one, as on a node that asks for none. Then no other node
        knows the secret of its forms; the form for a token may be sent to any node.
        """
        if not _STRANGER.fullmatch(cookie):
            cookie = secrets.token_urlsafe(_SECRET_BYTES)
        return BrowserSession(cookie, _mac(self._node_secret if is_let_in else b"", cookie))

    def open(self, authorization: bytes, name: str) -> BrowserSession | None:
        """A session of a token of this name, or of a JWT, for which the name is empty.

        None if it does not fit into a cookie.
        """
        nonce = secrets.token_bytes(_NONCE_BYTES)
        content = int(self._now_s()).to_bytes(_OPENED_BYTES) + authorization
        sealed = nonce + self._cipher(name).encrypt(nonce, content, name.encode())
        cookie = f"{_to_text(name.encode())}.{_to_text(sealed)}"
        return None if len(cookie) > _MOST_COOKIE_BYTES else self._session(cookie, authorization)

    def find(self, cookie: str) -> BrowserSession | None:
        """The signed-in session of a cookie, unless it has ended."""
        opened = self._opened(cookie)
        if opened is None:
            return None
        nonce, opened_s, authorization = opened
        # Everyone can seal a cookie without a name; one without a token would make known secrets of forms.
        if not authorization or nonce in self._ended or self._now_s() - opened_s >= _LASTS_S:
            return None
        return self._session(cookie, authorization)

    def end(self, session: BrowserSession) -> None:
        """Signs out. May be called twice."""
        if opened := self._opened(session.cookie):
            self._ended.put(opened[0], True)

    def _opened(self, cookie: str) -> tuple[bytes, int, bytes] | None:
        """Nonce, beginning and authorization in a cookie; None for one that was not made with this token."""
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - a node without tokens seals nothing

        named, dot, sealed_text = cookie.partition(".")
        if not dot:
            return None
        try:
            name, sealed = _to_bytes(named), _to_bytes(sealed_text)
            nonce = sealed[:_NONCE_BYTES]
            cipher = self._cipher(name.decode())
            content = cipher.decrypt(nonce, sealed[_NONCE_BYTES:], name)
        except (ValueError, InvalidTag):
            return None
        return nonce, int.from_bytes(content[:_OPENED_BYTES]), content[_OPENED_BYTES:]

    def _cipher(self, name: str) -> AESGCM:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - as above

        token_hash = self._hash_of(name) if name else ""
        return AESGCM(hashlib.sha256(_PURPOSE + token_hash.encode()).digest())

    @staticmethod
    def _session(cookie: str, authorization: bytes) -> BrowserSession:
        return BrowserSession(cookie, _mac(authorization, cookie), authorization)


def cookie_in(cookies: bytes, name: str) -> str:
    """The value of a cookie in a header; empty without it. Cookies of other programs may have any form."""
    for each in cookies.decode("latin-1").split(";"):
        found, _, value = each.strip().partition("=")
        if found == name:
            return value
    return ""


def cookie_name(kind: str, host: bytes) -> str:
    """The name of a cookie for a header `host`.

    It has the port, since a cookie knows none: nodes of one machine have cookies of their own, and nodes
    behind one address the same.
    """
    _, _, port = host.decode("latin-1").rpartition(":")
    return (
        f"chronoline_{kind}_{port}" if port.isdecimal() and port.isascii() else f"chronoline_{kind}"
    )


def _mac(key: bytes, text: str) -> str:
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def _to_text(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")


def _to_bytes(text: str) -> bytes:
    """Raises `ValueError`."""
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))
