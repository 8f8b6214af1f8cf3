"""Sessions of browsers."""

from __future__ import annotations

import pytest

from chronoline.console.sessions import BrowserSessions


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


_NAME = BrowserSessions(Clock()).cookie


def _cookie(value: str, *, others: str = "other=1") -> bytes:
    return f"{others}; {_NAME}={value}".encode()


def test_session_is_found_by_its_cookie_alone() -> None:
    sessions = BrowserSessions(Clock())
    session = sessions.open(b"Bearer secret")
    assert sessions.find(_cookie(session.id)) is session
    for wrong in (
        b"",
        b"=;;\xff",
        _cookie(""),
        _cookie(session.id[:-1]),
        _cookie(session.form_secret),
    ):
        assert sessions.find(wrong) is None


def test_idle_session_ends() -> None:
    clock = Clock()
    sessions = BrowserSessions(clock)
    used, idle = sessions.open(), sessions.open()
    clock.now_s = 11 * 3600
    assert sessions.find(_cookie(used.id)) is used
    clock.now_s = 13 * 3600
    assert sessions.find(_cookie(used.id)) is used
    assert sessions.find(_cookie(idle.id)) is None


def test_number_of_sessions_is_bounded() -> None:
    sessions = BrowserSessions(Clock())
    first, second = sessions.open(), sessions.open()
    for _ in range(998):
        sessions.open()
    assert sessions.find(_cookie(first.id)) is first  # now the second is unused longest
    sessions.open()
    assert sessions.find(_cookie(second.id)) is None
    assert sessions.find(_cookie(first.id)) is first


def test_strangers_sign_nobody_out() -> None:
    sessions = BrowserSessions(Clock())
    operator = sessions.open(b"Bearer secret")
    for _ in range(2_000):
        sessions.open()
    assert sessions.find(_cookie(operator.id)) is operator


@pytest.mark.parametrize("others", ['a={"x": 1}', "x@y=1", "a=b c", "jwt", "path=/", 'a="x', "=;"])
def test_cookies_of_other_programs_may_have_any_form(others: str) -> None:
    sessions = BrowserSessions(Clock())
    session = sessions.open()
    assert sessions.find(_cookie(session.id, others=others)) is session


def test_nodes_of_one_machine_have_cookies_of_their_own() -> None:
    one, other = (BrowserSessions(Clock(), node) for node in ("one", "other"))
    first, second = one.open(), other.open()
    both = f"{one.cookie}={first.id}; {other.cookie}={second.id}".encode()
    assert one.find(both) is first
    assert other.find(both) is second


def test_open_stream_does_not_keep_an_idle_session() -> None:
    clock = Clock()
    sessions = BrowserSessions(clock)
    session = sessions.open()
    clock.now_s = 11 * 3600
    assert sessions.find(_cookie(session.id), uses=False) is session
    clock.now_s = 13 * 3600
    assert sessions.find(_cookie(session.id), uses=False) is None


def test_closed_session_is_gone() -> None:
    sessions = BrowserSessions(Clock())
    session = sessions.open()
    sessions.close(session)
    sessions.close(session)
    assert sessions.find(_cookie(session.id)) is None


def test_form_secret_is_another_than_the_cookie() -> None:
    session = BrowserSessions(Clock()).open()
    assert session.knows(session.form_secret)
    assert not session.knows(session.id)
    assert not session.knows("")
