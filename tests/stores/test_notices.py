"""Watches inside one process."""

from itertools import count
from types import SimpleNamespace

import pytest

from chronoline.stores import notices
from chronoline.stores.contract import Notice
from chronoline.stores.notices import LocalWatch

OWN = Notice(topic_uid=1, due=2)


def test_own_notices_do_not_prevent_looks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    moments = count(0, 0.004)
    clock = SimpleNamespace(monotonic=lambda: next(moments))
    monkeypatch.setattr(notices, "time", clock)
    looks = count()
    watch = LocalWatch(lambda: bool(next(looks)), look_every_s=0.01)
    heard = []
    for _ in range(20):
        watch.notify(OWN)  # there is always a notice
        heard += watch.wait(1)
    assert Notice() in heard
    assert heard.count(OWN) == 20


def test_watch_keeps_to_its_look_interval() -> None:
    looks = count()
    watch = LocalWatch(lambda: bool(next(looks)), look_every_s=3_600)
    for _ in range(100):
        watch.notify(OWN)
        assert watch.wait(1) == [OWN]
    assert next(looks) == 0


def test_wait_raises_the_error_of_its_check() -> None:
    def check() -> None:
        raise RuntimeError("deaf")

    with pytest.raises(RuntimeError, match="deaf"):
        LocalWatch(check=check).wait(0)
