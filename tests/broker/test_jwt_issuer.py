"""JSON Web Tokens: those that are accepted, and every forgery that is known."""

from __future__ import annotations

import base64
import json
import logging
import ssl
from collections.abc import Callable
from contextlib import suppress
from http.client import BadStatusLine
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import hashes, hmac, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

import chronoline.broker.jwt_issuer as module
from chronoline.broker.auth import Door, Shown
from chronoline.broker.jwt_issuer import JwtIssuer, JwtRules, KeyFile, KeySet, KeyUrl
from chronoline.broker.principals import Principal
from chronoline.broker.tokens import Tokens
from chronoline.core.errors import BrokerUnavailable, Forbidden, InvalidInput
from chronoline.core.rights import RightKind, Rights
from tests.certificates import Authority

_NOW_MS = 1_800_000_000_000
_NOW_S = _NOW_MS // 1000
_RULES = JwtRules(issuer="https://login.example", audience="chronoline", leeway_ms=30_000)
_KEY = ec.generate_private_key(ec.SECP256R1())
_OTHER = ec.generate_private_key(ec.SECP256R1())


def _public(key: ec.EllipticCurvePrivateKey, kid: str = "1", **more: str) -> dict[str, Any]:
    return {**jwt.algorithms.ECAlgorithm.to_jwk(key.public_key(), as_dict=True), "kid": kid, **more}


def _claims(**changed: Any) -> dict[str, Any]:
    given = {
        "iss": _RULES.issuer,
        "aud": _RULES.audience,
        "sub": "mailer",
        "exp": _NOW_S + 60,
        "chronoline": ["consume:orders:mailer-*"],
    }
    return {name: each for name, each in {**given, **changed}.items() if each is not None}


def _token(
    claims: dict[str, Any] | None = None,
    key: ec.EllipticCurvePrivateKey = _KEY,
    kid: str | None = "1",
    algorithm: str = "ES256",
) -> str:
    headers = None if kid is None else {"kid": kid}
    return jwt.encode(claims or _claims(), key, algorithm, headers)


def _segment(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


class Clock:
    def __init__(self) -> None:
        self.ms = _NOW_MS

    def now_ms(self) -> int:
        return self.ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    file = tmp_path / "keys.json"
    _write(file, _public(_KEY))
    return file


def _write(file: Path, *keys: dict[str, Any]) -> None:
    written = file.with_suffix(".new")
    written.write_text(json.dumps({"keys": keys}))
    written.replace(file)


@pytest.fixture
def issuer(keys: Path, clock: Clock) -> JwtIssuer:
    return JwtIssuer(KeyFile(keys), _RULES, clock.now_ms)


def test_signed_token_has_the_rights_of_its_claim(issuer: JwtIssuer) -> None:
    for token in (_token(), _token(kid=None)):
        principal = issuer.principal(token)
        assert principal is not None
        assert (principal.who, principal.rights.texts()) == (
            "jwt mailer",
            ["consume:orders:mailer-*"],
        )


@pytest.mark.parametrize(
    ("claim", "rights"),
    [
        (None, []),
        ("openid observe produce:orders:billing", ["observe", "produce:orders:billing"]),
        (["admin", "administer:*"], ["administer"]),
    ],
)
def test_other_entries_of_the_claim_are_ignored(
    issuer: JwtIssuer, claim: object, rights: list[str]
) -> None:
    principal = issuer.principal(_token(_claims(chronoline=claim)))
    assert principal is not None
    assert principal.rights.texts() == rights


@pytest.mark.parametrize(
    "changed",
    [
        {"iss": "https://evil.example"},
        {"aud": "another"},
        {"iss": None},
        {"aud": None},
        {"sub": None},
        {"exp": None},
        {"exp": _NOW_S - 31},
        {"exp": "soon"},
        {"exp": 1e400},
        {"nbf": _NOW_S + 31},
        {"sub": "a\nb"},
        {"chronoline": {"observe": 1}},
        {"chronoline": ["observe", 1]},
        {"chronoline": ["observe:a:b"]},
        {"chronoline": ["observe"] * 101},
    ],
    ids=str,
)
def test_wrong_claims_are_refused(issuer: JwtIssuer, changed: dict[str, Any]) -> None:
    assert issuer.principal(_token(_claims(**changed))) is None


def test_clocks_may_differ_by_the_leeway(issuer: JwtIssuer, clock: Clock) -> None:
    token = _token(_claims(nbf=_NOW_S + 29))
    assert issuer.principal(token) is not None
    clock.ms += 89_999
    assert issuer.principal(token) is not None
    clock.ms += 1  # it was remembered, and ends nevertheless
    assert issuer.principal(token) is None


def _unsigned(algorithm: str) -> str:
    return f"{_segment({'alg': algorithm, 'kid': '1'})}.{_segment(_claims())}."


def _signed_with_the_public_key() -> str:
    """As if the public key, which everybody can read, were the secret of an HMAC."""
    text = f"{_segment({'alg': 'HS256', 'kid': '1'})}.{_segment(_claims())}"
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    secret = _KEY.public_key().public_bytes(serialization.Encoding.PEM, form)
    signer = hmac.HMAC(secret, hashes.SHA256())
    signer.update(text.encode())
    return f"{text}.{base64.urlsafe_b64encode(signer.finalize()).rstrip(b'=').decode()}"


@pytest.mark.parametrize(
    "token",
    [
        _unsigned("none"),
        _unsigned("None"),
        _unsigned("ES256"),
        _signed_with_the_public_key(),
        _token(key=_OTHER),
        _token(key=_OTHER, kid="2"),
        _token()[:-4] + "AAAA",
        ".".join([_token().split(".")[0], _segment(_claims(sub="root")), _token().split(".")[2]]),
        "a.b.c",
        "..",
        "é.é.é",
        base64.urlsafe_b64encode(b"[" * 9_999).decode() + ".e30.AAAA",
    ],
)
def test_forgeries_are_refused(issuer: JwtIssuer, token: str) -> None:
    assert issuer.principal(token) is None


def test_algorithms_are_asymmetric_alone() -> None:
    assert {each[:2] for each in module.ALGORITHMS} == {"RS", "PS", "ES", "Ed"}


def test_keys_are_used_as_they_say(keys: Path, clock: Clock) -> None:
    weak = rsa.generate_private_key(65_537, 1_024)
    of_rsa = jwt.algorithms.RSAAlgorithm.to_jwk(weak.public_key(), as_dict=True)
    secret = {"kty": "oct", "k": "c2VjcmV0", "kid": "1"}
    private = jwt.algorithms.ECAlgorithm.to_jwk(_KEY, as_dict=True)
    for key in (of_rsa, secret, {**private, "kid": "1"}, _public(_KEY, use="enc"), {"kty": 1}):
        with pytest.raises(InvalidInput, match="no key for signatures that can be used"):
            KeySet(json.dumps({"keys": [key]}).encode(), "it")
    for text in (b"", b"[]", b'{"keys": 1}', b'{"keys": [1]}'):
        with pytest.raises(InvalidInput, match="no key set"):
            KeySet(text, "it")
    _write(keys, _public(_KEY, alg="ES384"))  # of another curve than the key's
    with pytest.raises(InvalidInput):
        JwtIssuer(KeyFile(keys), _RULES, clock.now_ms)


def test_rotated_keys_are_read_without_a_restart(
    keys: Path, issuer: JwtIssuer, caplog: pytest.LogCaptureFixture
) -> None:
    old, new = _token(), _token(key=_OTHER, kid="2")
    assert (issuer.principal(old) is None, issuer.principal(new) is None) == (False, True)
    _write(keys, _public(_KEY), _public(_OTHER, "2"))
    assert (issuer.principal(old) is None, issuer.principal(new) is None) == (False, False)
    _write(keys, _public(_OTHER, "2"))
    assert (issuer.principal(old) is None, issuer.principal(new) is None) == (True, False)
    keys.write_text("{")
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            assert issuer.principal(new) is not None
    assert [each.action for each in caplog.records] == ["reload_failed"]  # type: ignore[attr-defined]  # its own


class Site:
    """A URL with a key set, which can be away."""

    def __init__(self, *keys: dict[str, Any]) -> None:
        self.keys = keys
        self.problem: Exception | None = None
        self.text: bytes | None = None
        """An answer that is no key set."""
        self.now_s = 0.0
        self.fetches = 0

    def fetch(self, _: str, __: ssl.SSLContext) -> bytes:
        self.fetches += 1
        if self.problem is not None:
            raise self.problem
        if self.text is not None:
            return self.text
        return json.dumps({"keys": self.keys}).encode()

    def source(self) -> KeyUrl:
        return KeyUrl(
            "https://login.example/keys", monotonic_s=lambda: self.now_s, fetch=self.fetch
        )


def test_unknown_key_is_fetched_once(clock: Clock) -> None:
    site = Site(_public(_KEY))
    source = site.source()
    issuer = JwtIssuer(source, _RULES, clock.now_ms)
    new = _token(key=_OTHER, kid="2")
    assert issuer.principal(new) is None  # the keys have just been fetched
    site.keys = (_public(_OTHER, "2"),)
    site.now_s = 11
    with pytest.raises(BrokerUnavailable, match="is being fetched; try again"):
        issuer.principal(new)
    source.wait()
    assert issuer.principal(new) is not None
    assert issuer.principal(_token()) is None
    for kid in "345":  # strangers cannot make the node ask for each of theirs
        assert issuer.principal(_token(key=_OTHER, kid=kid)) is None
    assert site.fetches == 2


def test_keys_that_cannot_be_fetched_count_for_a_day(clock: Clock) -> None:
    site = Site(_public(_KEY))
    source = site.source()
    issuer = JwtIssuer(source, _RULES, clock.now_ms)
    site.problem = OSError("it is away")
    site.now_s = 24 * 3600
    assert issuer.principal(_token()) is not None
    site.now_s += 1
    with pytest.raises(BrokerUnavailable, match="could not be fetched"):
        issuer.principal(_token())


def test_token_ends_also_while_the_keys_are_away(clock: Clock) -> None:
    site = Site(_public(_KEY))
    issuer = JwtIssuer(site.source(), _RULES, clock.now_ms)
    token = _token()
    assert issuer.principal(token) is not None
    site.problem, site.now_s = OSError("it is away"), 24 * 3600 + 1
    with pytest.raises(BrokerUnavailable):
        issuer.principal(token)
    clock.ms += 24 * 3_600_000
    assert issuer.principal(token) is None


_NESTED = b"[" * 100_000 + b"]" * 100_000


@pytest.mark.parametrize(
    "text",
    [_NESTED, b'{"keys": %s}' % _NESTED, b'{"keys": [{"kty": "RSA", "kid": %s}]}' % _NESTED],
    ids=["set", "keys", "key"],
)
def test_deeply_nested_keys_leave_the_old_ones_in_force(clock: Clock, text: bytes) -> None:
    site = Site(_public(_KEY))
    source = site.source()
    issuer = JwtIssuer(source, _RULES, clock.now_ms)
    site.text = text
    site.now_s = 301
    assert issuer.principal(_token()) is not None
    source.wait()
    assert site.fetches == 2
    assert issuer.principal(_token()) is not None
    site.text = None
    site.now_s = 602
    issuer.principal(_token())
    source.wait()
    assert site.fetches == 3


@pytest.mark.parametrize("problem", [OSError("it is away"), BadStatusLine("SSH-2.0")])
def test_node_starts_without_the_url(clock: Clock, problem: Exception) -> None:
    site = Site(_public(_KEY))
    site.problem = problem
    source = site.source()
    issuer = JwtIssuer(source, _RULES, clock.now_ms)
    with pytest.raises(BrokerUnavailable):
        issuer.principal(_token())
    site.problem = None
    site.now_s = 11
    with suppress(BrokerUnavailable):  # it is being fetched
        issuer.principal(_token())
    source.wait()
    assert issuer.principal(_token()) is not None


def test_node_starts_beside_a_url_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TIMEOUT_S", 0.1)  # the test would wait that long
    goes_on = Event()

    def hang(_: str, __: ssl.SSLContext) -> bytes:
        assert goes_on.wait(60)
        return json.dumps({"keys": [_public(_KEY)]}).encode()

    source = KeyUrl("https://login.example/keys", fetch=hang)
    with pytest.raises(BrokerUnavailable):
        source.current()
    goes_on.set()
    source.wait()
    assert source.current().has("1")


def test_door_takes_tokens_of_both_kinds(issuer: JwtIssuer, tmp_path: Path) -> None:
    tokens = Tokens(tmp_path / "tokens.json")
    door = Door(tokens, issuer=issuer)

    def shown(token: str) -> str | None:
        principal = door.principal(Shown(f"Bearer {token}"))
        return None if principal is None else principal.who

    assert door.asks  # without any token of its own
    assert door.principal(Shown()) is None
    assert shown(_token()) == "jwt mailer"
    assert shown(tokens.create("ops", Rights.parse(["observe"]))) == "token ops"
    assert shown("wrong") is None


def test_real_url_is_fetched_over_tls(
    tmp_path: Path, clock: Clock, serve_https: Callable[[dict[str, tuple[int, bytes]]], str]
) -> None:
    text = json.dumps({"keys": [_public(_KEY)]}).encode()
    url = serve_https({"/keys": (200, text), "/moved": (302, b"/keys"), "/gone": (404, text)})
    ca = tmp_path / "authority.pem"
    assert JwtIssuer(KeyUrl(f"{url}/keys", ca=ca), _RULES, clock.now_ms).principal(_token())
    for wrong in (
        KeyUrl(f"{url}/keys"),
        *(KeyUrl(f"{url}{each}", ca=ca) for each in ("/moved", "/gone")),
    ):
        with pytest.raises(BrokerUnavailable):
            wrong.current()


@pytest.fixture
def serve_https(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[..., str]:
    certificate, key = Authority(tmp_path).issue("login")

    def serve(answers: dict[str, tuple[int, bytes]]) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, text = answers[self.path]
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", text.decode())
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: object) -> None:
                pass

        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate, key)
        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = Thread(target=server.serve_forever)
        thread.start()

        def stop() -> None:
            server.shutdown()
            thread.join()
            server.server_close()

        request.addfinalizer(stop)
        return f"https://127.0.0.1:{server.server_port}"

    return serve


def test_missing_right_of_a_jwt_is_given_by_its_issuer() -> None:
    ada = Principal("ada", Rights.parse(["observe"]), "jwt")
    with pytest.raises(Forbidden, match=r"the jwt 'ada' .* Its issuer gives it"):
        ada.check(RightKind.ADMINISTER, "orders")
