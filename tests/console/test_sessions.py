"""Sessions of browsers."""

from __future__ import annotations

from chronoline.console.sessions import COOKIE, BrowserSessions


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def _cookie(value: str) -> bytes:
    return f"other=1; {COOKIE}={value}".encode()


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


def test_flood_of_others_ends_no_session_that_signed_in() -> None:
    sessions = BrowserSessions(Clock())
    session = sessions.open(b"Bearer secret")
    for _ in range(2_000):
        sessions.open()
    assert sessions.find(_cookie(session.id)) is session


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
