"""JSON Web Tokens of an issuer: signatures by its key set, and the rights that a claim carries.

Only asymmetric algorithms are accepted, each with keys of its own kind. So neither `none` nor a public key as
the secret of an HMAC opens anything. A token must have an end, and be made by the issuer for the audience.
The keys are read again when their file changes, or fetched again from their URL: an issuer can rotate them.
"""

from __future__ import annotations

import json
import logging
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any, Protocol

from chronoline.broker.principals import Principal
from chronoline.broker.tokens import hash_of
from chronoline.core.errors import BrokerUnavailable, InvalidInput
from chronoline.core.limits import name_problem
from chronoline.core.rights import RightKind, Rights
from chronoline.runtime.bounded_cache import BoundedCache
from chronoline.runtime.clock import SystemClock
from chronoline.runtime.extras import needs
from chronoline.runtime.tls import client_context, read_pem
from chronoline.runtime.watched_files import WatchedFiles

with needs("JSON Web Tokens", "jwt"):
    import jwt
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

logger = logging.getLogger(__name__)

_CURVES = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}
_RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
ALGORITHMS = (*_RSA, *_CURVES.values(), "EdDSA")
"""All are asymmetric: a node has nothing with which a token could be made."""
_LEAST_RSA_BITS = 2_048
_FETCH_EVERY_S = 300.0
_SEEK_EVERY_S = 10.0
"""The shortest time between two fetches for keys that are not known: strangers can name any."""
_TRUSTED_S = 24 * 3600.0
"""Keys that could not be fetched for this time are trusted no more."""
_TIMEOUT_S = 5.0
_MOST_BYTES = 1024 * 1024
_MOST_KEYS = 100
_MOST_REMEMBERED = 10_000
_DOTS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class JwtRules:
    """The claims that a token needs."""

    issuer: str
    audience: str
    rights_claim: str = "chronoline"
    """A list of rights, or a text of rights with spaces between them. Other entries are ignored."""
    leeway_ms: int = 30_000
    """How far the clocks of issuer and node may differ."""


# Keys


@dataclass(frozen=True, slots=True)
class _Key:
    key: jwt.PyJWK
    algorithms: frozenset[str]


class KeySet:
    """The public keys of an issuer, by their ids."""

    def __init__(self, text: bytes, where: str) -> None:
        """Raises `InvalidInput` for a text that is no JWKS, or has no key that can be used."""
        try:
            listed = json.loads(text)["keys"]
            given = [dict(each) for each in listed]
            self._keys = {
                str(each.get("kid", "")): found
                for each in given[:_MOST_KEYS]
                if (found := _usable(each))
            }
        except (ValueError, LookupError, TypeError, RecursionError):
            raise InvalidInput(
                f'{where} is no key set (JWKS): a JSON object such as {{"keys": […]}}'
            ) from None
        if not self._keys:
            raise InvalidInput(
                f"{where} has no key for signatures that can be used: RSA of {_LEAST_RSA_BITS} bits at "
                "least, EC, or Ed25519"
            )

    def find(self, key_id: str | None, algorithm: str) -> _Key | None:
        """The key with this id; a token without one may use the only key of the set."""
        found = self._keys.get(key_id or "")
        if found is None and key_id is None and len(self._keys) == 1:
            (found,) = self._keys.values()
        return found if found is not None and algorithm in found.algorithms else None

    def has(self, key_id: str | None) -> bool:
        return key_id is None or key_id in self._keys


def _usable(given: Mapping[str, Any]) -> _Key | None:
    """A key that can check signatures; None for another one, such as for encryption or an HMAC."""
    match given.get("kty"):
        case "RSA":
            possible: Iterable[str] = _RSA
        case "EC":
            possible = {_CURVES.get(str(given.get("crv")), "")}
        case "OKP" if given.get("crv") == "Ed25519":
            possible = {"EdDSA"}
        case _:
            return None
    algorithms = frozenset(possible) & frozenset(ALGORITHMS)
    if (own := given.get("alg")) is not None:
        algorithms &= {str(own)}
    if not algorithms or given.get("use", "sig") != "sig":
        return None
    try:
        key = jwt.PyJWK(dict(given), algorithm=min(algorithms))
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
    if isinstance(key.key, RSAPublicKey) and key.key.key_size < _LEAST_RSA_BITS:
        return None
    # A private key in the set would be a mistake of the issuer; it is not needed to check anything.
    return None if "d" in given else _Key(key, algorithms)


class KeySource(Protocol):
    """Where the keys come from."""

    def current(self) -> KeySet:
        """Raises `BrokerUnavailable` while there are none."""

    def seek(self) -> None:
        """A token names a key that is not known. Raises `BrokerUnavailable` while it is looked for."""


class KeyFile:
    """Keys in a file, which is read again when it has changed."""

    def __init__(self, path: Path) -> None:
        """Raises `InvalidInput`."""
        self._file = WatchedFiles(
            "key set", [path], lambda: KeySet(read_pem(path), repr(str(path)))
        )

    def current(self) -> KeySet:
        return self._file.current()

    def seek(self) -> None:
        """There is nothing to look for: the file was looked at."""


class KeyUrl:
    """Keys at a URL, which are fetched every five minutes, and when a token names another one."""

    def __init__(
        self,
        url: str,
        *,
        ca: Path | None = None,
        monotonic_s: Callable[[], float] = time.monotonic,
        fetch: Callable[[str, ssl.SSLContext], bytes] | None = None,
    ) -> None:
        """A URL that does not answer is tried again; until it does, no JWT is accepted."""
        self._url = url
        self._tls = client_context(ca)
        self._now_s = monotonic_s
        self._fetch = fetch or _fetch
        self._lock = threading.Lock()
        self._running: threading.Thread | None = None
        self._keys: KeySet | None = None
        self._fetched_s = self._tried_s = monotonic_s()
        self._refresh(0)
        self.wait(_TIMEOUT_S)

    def current(self) -> KeySet:
        self._refresh(_FETCH_EVERY_S if self._keys is not None else _SEEK_EVERY_S)
        keys = self._keys
        if keys is None or self._now_s() - self._fetched_s > _TRUSTED_S:
            raise BrokerUnavailable(
                "the keys of JWTs could not be fetched, the node's log has the reason; try again"
            )
        return keys

    def seek(self) -> None:
        if self._refresh(_SEEK_EVERY_S):
            raise BrokerUnavailable("the key of this JWT is being fetched; try again")

    def wait(self, patience_s: float | None = None) -> None:
        """Returns when no fetch is under way, or after this time."""
        if (running := self._running) is not None:
            running.join(patience_s)

    def _refresh(self, after_s: float) -> bool:
        """Fetches the keys in a thread if the last attempt is so old; whether a fetch is under way."""
        with self._lock:
            if self._running is not None and self._running.is_alive():
                return True
            if self._now_s() - self._tried_s < after_s:
                return False
            self._tried_s = self._now_s()
            self._running = threading.Thread(target=self._load, name="jwt-keys", daemon=True)
            self._running.start()
            return True

    def _load(self) -> None:
        try:
            self._keys = KeySet(self._fetch(self._url, self._tls), self._url)
            self._fetched_s = self._now_s()
        except (OSError, HTTPException, ValueError, InvalidInput) as error:
            fields = {"action": "jwt_keys_away"}
            logger.error("no keys of JWTs from %s: %s", self._url, error, extra=fields)


def _fetch(url: str, tls: ssl.SSLContext) -> bytes:
    opener = urllib.request.build_opener(_NoRedirection(), urllib.request.HTTPSHandler(context=tls))
    with opener.open(url, timeout=_TIMEOUT_S) as response:
        text: bytes = response.read(_MOST_BYTES + 1)
    if len(text) > _MOST_BYTES:
        raise InvalidInput(f"the answer has more than {_MOST_BYTES} bytes")
    return text


class _NoRedirection(urllib.request.HTTPRedirectHandler):
    """Keys come from the place that the settings name, and from no other."""

    def redirect_request(self, *_: Any) -> None:
        return None


# Tokens


@dataclass(frozen=True, slots=True)
class _Verified:
    principal: Principal
    from_ms: int
    until_ms: int


class JwtIssuer:
    """The issuer of tokens. A token is verified once, and remembered until it ends or the keys change."""

    def __init__(
        self, keys: KeySource, rules: JwtRules, now_ms: Callable[[], int] | None = None
    ) -> None:
        self._keys = keys
        self._rules = rules
        self._now_ms = now_ms or SystemClock().now_ms
        self._verified_by: KeySet | None = None
        self._verified = BoundedCache[str, _Verified](_MOST_REMEMBERED)

    def principal(self, token: str) -> Principal | None:
        """None for a token that is refused. Raises `BrokerUnavailable` while the keys are not there."""
        if token.count(".") != _DOTS:
            return None
        hashed = hash_of(token)
        found = self._verified.get(hashed)
        if found is not None and found.until_ms <= self._now_ms():
            return None  # no key gives it more time, so the streams that it opened need not wait for the keys
        keys = self._keys.current()
        if keys is not self._verified_by:
            self._verified_by = keys
            self._verified = BoundedCache(_MOST_REMEMBERED)
            found = None
        if found is None:
            found = self._verify(token, keys)
            if found is None:
                return None
            self._verified.put(hashed, found)
        return found.principal if found.from_ms <= self._now_ms() < found.until_ms else None

    def _verify(self, token: str, keys: KeySet) -> _Verified | None:
        try:
            header = jwt.get_unverified_header(token)
            key_id, algorithm = header.get("kid"), str(header.get("alg"))
            if algorithm not in ALGORITHMS:
                return None
            if not keys.has(key_id):
                self._keys.seek()
                return None
            key = keys.find(key_id, algorithm)
            if key is None:
                return None
            claims = jwt.decode(
                token,
                key.key.key,
                algorithms=[algorithm],
                audience=self._rules.audience,
                issuer=self._rules.issuer,
                # The times are compared with the node's clock below.
                options={
                    "require": ["exp", "iss", "aud", "sub"],
                    "verify_exp": False,
                    "verify_nbf": False,
                    "verify_iat": False,
                },
            )
            return self._read(claims)
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError) as error:
            logger.debug("a JWT was refused: %s", error, extra={"action": "jwt_refused"})
            return None

    def _read(self, claims: Mapping[str, Any]) -> _Verified:
        """Raises `ValueError` or `TypeError` for claims that are no such values, as `InvalidInput` is."""
        subject, leeway_ms = str(claims["sub"]), self._rules.leeway_ms
        if name_problem("the subject", subject) or not subject.isprintable():
            raise ValueError("the subject is no name")
        try:
            rights = Rights.parse(_rights_in(claims.get(self._rules.rights_claim)))
        except InvalidInput as error:
            raise ValueError(str(error)) from None
        return _Verified(
            Principal(subject, rights, "jwt"),
            from_ms=int(float(claims.get("nbf", 0)) * 1000) - leeway_ms,
            until_ms=int(float(claims["exp"]) * 1000) + leeway_ms,
        )


def _rights_in(claim: object) -> list[str]:
    """The rights among the entries of a claim, which can be a text of scopes that also has others."""
    entries = claim.split() if isinstance(claim, str) else claim
    if entries is None:
        return []
    if not isinstance(entries, list) or not all(isinstance(each, str) for each in entries):
        raise ValueError("the claim of rights is neither a text nor a list of texts")
    kinds = set(RightKind)
    return [each for each in entries if each.partition(":")[0] in kinds]
