"""Sessions of browsers."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from chronoline.broker.tokens import hash_of
from chronoline.console.sessions import BrowserSessions, cookie_in, cookie_name

_TOKEN = "chronoline_secret"
_BEARER = f"Bearer {_TOKEN}".encode()


class Nodes(NamedTuple):
    """Two nodes with the same tokens, and their clock."""

    one: BrowserSessions
    other: BrowserSessions
    tokens: dict[str, str]
    clock: list[float]


@pytest.fixture
def nodes() -> Nodes:
    tokens, clock = {"ops": hash_of(_TOKEN)}, [1_000_000.0]
    one, other = (
        BrowserSessions(lambda: clock[0], lambda name: tokens.get(name, "")) for _ in "12"
    )
    return Nodes(one, other, tokens, clock)


def _signed_in(nodes: Nodes, name: str = "ops") -> str:
    session = nodes.one.open(_BEARER, name)
    assert session is not None
    return session.cookie


@pytest.mark.parametrize("name", ["ops", ""])  # a JWT has none
def test_any_node_opens_the_cookie(nodes: Nodes, name: str) -> None:
    cookie = _signed_in(nodes, name)
    there, here = nodes.other.find(cookie), nodes.one.find(cookie)
    assert there is not None
    assert there.authorization == _BEARER
    assert there == here
    assert there.knows(there.form_secret)
    assert not there.knows("")


def test_cookie_does_not_show_the_token(nodes: Nodes) -> None:
    assert _TOKEN not in _signed_in(nodes)
    assert _signed_in(nodes) != _signed_in(nodes)


@pytest.mark.parametrize("hash_now", ["", hash_of("another of the same name")])
def test_cookie_of_a_revoked_token_opens_nothing(nodes: Nodes, hash_now: str) -> None:
    cookie = _signed_in(nodes)
    nodes.tokens["ops"] = hash_now
    assert nodes.one.find(cookie) is None
    assert nodes.other.find(cookie) is None


def test_changed_cookie_opens_nothing(nodes: Nodes) -> None:
    cookie = _signed_in(nodes)
    name, _, sealed = cookie.partition(".")
    wrong = [
        "",
        ".",
        name,
        sealed,
        f"{name}.",
        f"{name}.A",
        f"{name}.\xe4",
        f".{sealed}",
        f"\xff.{sealed}",
    ]
    wrong += [f"{name}.{sealed[:-2]}", f"{name}.{'B' if sealed[0] == 'A' else 'A'}{sealed[1:]}"]
    assert [each for each in wrong if nodes.one.find(each) is not None] == []


def test_cookie_without_a_token_opens_nothing(nodes: Nodes) -> None:
    """Everyone could make it, and would know the secret of its forms."""
    empty = nodes.one.open(b"", "")
    assert empty is not None
    assert nodes.one.find(empty.cookie) is None


def test_session_ends_after_twelve_hours(nodes: Nodes) -> None:
    cookie = _signed_in(nodes)
    nodes.clock[0] += 12 * 3600 - 1
    assert nodes.other.find(cookie) is not None
    nodes.clock[0] += 1
    assert nodes.other.find(cookie) is None


def test_clock_of_another_node_may_be_behind(nodes: Nodes) -> None:
    cookie = _signed_in(nodes)
    nodes.clock[0] -= 5
    assert nodes.other.find(cookie) is not None


def test_signed_out_session_is_over(nodes: Nodes) -> None:
    cookie, other = _signed_in(nodes), _signed_in(nodes)
    session = nodes.one.find(cookie)
    assert session is not None
    nodes.one.end(session)
    nodes.one.end(session)
    nodes.one.end(nodes.one.stranger(is_let_in=False))
    assert nodes.one.find(cookie) is None
    assert nodes.one.find(other) is not None


def test_token_that_fits_no_cookie_is_refused(nodes: Nodes) -> None:
    assert nodes.one.open(b"Bearer " + b"x" * 4_000, "") is None


def test_form_for_a_token_may_be_sent_to_any_node(nodes: Nodes) -> None:
    asked = nodes.one.stranger(is_let_in=False)
    assert nodes.other.stranger(asked.cookie, is_let_in=False) == asked
    assert nodes.one.find(asked.cookie) is None


def test_forms_without_a_token_are_of_one_node(nodes: Nodes) -> None:
    shown = nodes.one.stranger(is_let_in=True)
    assert nodes.one.stranger(shown.cookie, is_let_in=True) == shown
    assert not nodes.other.stranger(shown.cookie, is_let_in=True).knows(shown.form_secret)
    assert not nodes.one.stranger(shown.cookie, is_let_in=False).knows(shown.form_secret)


def test_stranger_has_no_cookie_of_another_form(nodes: Nodes) -> None:
    for wrong in ("x", "a.b", "x" * 42 + ";", _signed_in(nodes)):
        assert nodes.one.stranger(wrong, is_let_in=False).cookie != wrong


def test_notes_go_with_the_browser_to_another_node(nodes: Nodes) -> None:
    cookie = _signed_in(nodes)
    here, there = nodes.one.find(cookie), nodes.other.find(cookie)
    assert here is not None
    assert there is not None
    assert here.notes_cookie() == ""
    here.notes.append(("done", "The message 'ä' was sent." + "x" * 5_000))
    there.read_notes(here.notes_cookie())
    assert there.notes[0][0] == "done"
    assert there.notes[0][1].startswith("The message 'ä' was sent.")
    assert len(here.notes_cookie()) < 2_000


def test_notes_of_another_session_are_not_shown(nodes: Nodes) -> None:
    other = nodes.one.stranger(is_let_in=False)
    other.notes.append(("done", "x"))
    session = nodes.one.stranger(is_let_in=False)
    for wrong in ("", ".", "x.y", "x.\xe4", other.notes_cookie()):
        session.read_notes(wrong)
        assert session.notes == []


@pytest.mark.parametrize("others", ['a={"x": 1}', "x@y=1", "a=b c", "jwt", "path=/", 'a="x', "=;"])
def test_cookies_of_other_programs_may_have_any_form(others: str) -> None:
    assert cookie_in(f"{others}; mine=1.2".encode(), "mine") == "1.2"
    assert cookie_in(others.encode(), "mine") == ""


def test_nodes_of_one_machine_have_cookies_of_their_own() -> None:
    hosts = (b"127.0.0.1:7480", b"127.0.0.1:7481", b"[::1]", b"console.example", b"x:y;z")
    names = [cookie_name("session", each) for each in hosts]
    assert names[:2] == ["chronoline_session_7480", "chronoline_session_7481"]
    assert names[2:] == ["chronoline_session"] * 3
