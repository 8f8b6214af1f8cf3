"""Answers of the index by a look at what it has: they are on the synchronous standby."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from chronoline.core.errors import TopicExists
from chronoline.log.index.postgres import PostgresIndex
from chronoline.testing.postgres import PostgresServer
from tests.failover import Repeated, check_answers_hold, running_pair
from tests.log.index.steps import NOW, TOPIC, append

_NEW, _GONE = (replace(TOPIC, uid=TOPIC.uid + n, name=f"t{n}") for n in (1, 2))
_LATER_MS = NOW + 1_000


class _Client:
    """An index that ends with its block."""

    def __init__(self, url: str) -> None:
        self.index = PostgresIndex(url)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.index.close()


def _create(index: PostgresIndex) -> str:
    try:
        index.create_topic(_NEW)
    except TopicExists:
        return "exists"
    return "done"


def _look_or_commit(index: PostgresIndex, again: bool) -> object:
    return index.was_committed("looked") if again else append(index, "looked", {2: 1})


def _trim_or_collect(index: PostgresIndex, again: bool) -> object:
    if again:
        return index.unreferenced(10)
    return index.trim(TOPIC.uid, 3, before_sequence=1)


def _url_of(server: PostgresServer) -> str:
    """Without notifications: commits that notify wait for each other."""
    return f"{server.url()}?notify=off"


CHANGES: dict[str, Repeated[_Client]] = {
    "commit": Repeated(lambda client, _: append(client.index, "a", {0: 2}), [0]),
    "was committed": Repeated(lambda client, again: _look_or_commit(client.index, again), True),
    "create topic": Repeated(lambda client, _: _create(client.index), "exists"),
    "delete topic": Repeated(lambda client, _: client.index.delete_topic(_GONE.uid), False),
    "delete group": Repeated(lambda client, _: client.index.delete_group("g", TOPIC.uid), False),
    "sweep": Repeated(lambda client, _: client.index.sweep(["s"], now_ms=_LATER_MS), ["s"]),
    "collect": Repeated(lambda client, again: _trim_or_collect(client.index, again), ["old"]),
}


def test_no_repeated_change_is_answered_before_the_standby_has_it(tmp_path: Path) -> None:
    with running_pair(tmp_path) as pair:
        with closing(PostgresIndex(pair.primary.url())) as index:
            for topic in (TOPIC, _GONE):
                index.create_topic(topic)
            index.open_group("g", TOPIC.uid, uid=1)
            append(index, "old", {3: 1})
        check_answers_hold(pair, _url_of, _Client, CHANGES)
