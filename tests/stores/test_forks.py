"""A store that was opened before a fork is refused in the child, and goes on in the parent."""

import os
import warnings
from collections.abc import Callable
from typing import NoReturn

import pytest

from tests.stores.conftest import Engine
from tests.stores.line import NOW, Line, new, words
from tests.stores.test_conformance_deleted import CALLS

# A store in memory is copied by a fork, like everything else.
pytestmark = pytest.mark.parametrize("engine", ["sqlite", "postgres"], indirect=True)

PATIENCE_S = 60
FORKED = "StoreError: the store was opened before a fork; open it again in this process"


def in_a_fork(act: Callable[[], object]) -> str:
    """Returns the result in a forked child: "done", or the error."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # there are threads: that is the point
        child = os.fork()
    if child == 0:
        _answer(act, writer)
    os.close(writer)
    with os.fdopen(reader) as answers:
        answer = answers.read()
    os.waitpid(child, 0)
    return answer


def _answer(act: Callable[[], object], writer: int) -> NoReturn:
    """Runs in the child, which exits without the clean-up of the parent."""
    try:
        act()
        answer = "done"
    except BaseException as error:
        answer = f"{type(error).__name__}: {error}"
    os.write(writer, answer.encode())
    os._exit(0)


@pytest.mark.parametrize("call", CALLS)
def test_every_call_in_a_forked_child_is_refused(line: Line, call: str) -> None:
    assert in_a_fork(lambda: CALLS[call](line)) == FORKED


def test_a_watch_in_a_forked_child_is_refused(line: Line) -> None:
    with line.store.watch():
        assert in_a_fork(line.store.watch) == FORKED


def test_an_inherited_watch_in_a_forked_child_is_refused(line: Line) -> None:
    with line.store.watch() as watch:
        assert in_a_fork(lambda: watch.wait(0)) == FORKED


def test_closing_in_a_forked_child_leaves_the_parent_alone(engine: Engine) -> None:
    with engine.open() as store, store.watch() as watch:
        topic = store.ensure_topic("t", now_ms=NOW)
        assert in_a_fork(store.close) == "done"
        watch.wait(0)
        store.create(topic.uid, [new("a")], if_exists="replace", now_ms=NOW)
        assert watch.wait(PATIENCE_S)


def test_the_parent_goes_on_after_a_child_was_refused(line: Line) -> None:
    line.put("before")
    assert in_a_fork(lambda: line.create(new("in the child"))) == FORKED
    assert line.create(new("after")) == ["done"]
    names = ["before", "in the child", "after"]
    assert line.store.lookup(line.uid, names).keys() == {"before", "after"}


def test_a_child_may_open_the_store_again(line: Line, engine: Engine) -> None:
    def create() -> None:
        assert words(engine.open().create(line.uid, [new("a")], now_ms=NOW)) == ["done"]

    assert in_a_fork(create) == "done"
    assert "a" in line
