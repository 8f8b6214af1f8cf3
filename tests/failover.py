"""Changes that are asked for while the standby of a PostgreSQL server is away."""

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Generic, NamedTuple, Self, TypeVar

from chronoline.core.errors import OutcomeUnknown
from chronoline.testing.postgres import PostgresServer
from chronoline_bench.servers.postgres_standby import (
    PostgresStandby,
    require_standby,
    waiting_for_standby,
)

PATIENCE_S = 60
_CONNECTIONS = 8
"""The connections of a store, or of an index."""

Client = TypeVar("Client")


class Repeated(NamedTuple, Generic[Client]):
    """A change that is asked for twice, the second time without knowing what became of the first."""

    ask: Callable[[Client, bool], object]
    """Asks for it; the second argument says whether it is asked for again."""
    answer: object
    """The answer to the repeated question."""


class Pair(NamedTuple):
    """A server and its synchronous standby."""

    primary: PostgresServer
    standby: PostgresStandby

    def wait_until_waiting(self, count: Callable[[], int]) -> None:
        """Looks until this number of commits waits for the standby: PostgreSQL announces no waits."""
        for _ in range(PATIENCE_S * 20):
            if waiting_for_standby(self.primary) >= count():
                return
            threading.Event().wait(0.05)
        raise AssertionError("the commits do not wait for the standby")

    def fail_over(self) -> None:
        """The primary is lost, and the standby takes over."""
        self.primary.kill()
        self.standby.promote()


@contextmanager
def running_pair(folder: Path) -> Iterator[Pair]:
    """A new primary, of which each commit waits for its standby."""
    with (
        PostgresServer(folder / "primary") as primary,
        PostgresStandby(folder / "standby", primary) as standby,
    ):
        require_standby(primary)
        yield Pair(primary, standby)


class _Asked(Generic[Client]):
    """All changes, asked for at the same time."""

    def __init__(
        self,
        url: str,
        open_client: Callable[[str], AbstractContextManager[Client]],
        changes: Mapping[str, Repeated[Client]],
        *,
        again: bool,
    ) -> None:
        self._stack = ExitStack()
        threads = self._stack.enter_context(ThreadPoolExecutor(len(changes)))
        clients = [
            self._stack.enter_context(open_client(url))
            for _ in range(0, len(changes), _CONNECTIONS)
        ]
        self.calls = {
            name: threads.submit(change.ask, clients[number // _CONNECTIONS], again)
            for number, (name, change) in enumerate(changes.items())
        }

    @property
    def open(self) -> int:
        """The number of those that are not answered."""
        return len(self.calls) - len(self.answered)

    @property
    def answered(self) -> list[str]:
        return [name for name, call in self.calls.items() if call.done()]

    def answers(self) -> dict[str, object]:
        return {name: call.result(PATIENCE_S) for name, call in self.calls.items()}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def check_answers_hold(
    pair: Pair,
    url_of: Callable[[PostgresServer], str],
    open_client: Callable[[str], AbstractContextManager[Client]],
    changes: Mapping[str, Repeated[Client]],
) -> None:
    """Asserts that a repeated change is not answered before the standby has it, and that the answer holds."""
    pair.standby.kill()
    with _Asked(url_of(pair.primary), open_client, changes, again=False) as asked:
        pair.wait_until_waiting(lambda: asked.open)
        assert asked.answered == []
        pair.primary.kill()  # its log has the commits, and the standby does not
        for call in asked.calls.values():
            assert isinstance(call.exception(PATIENCE_S), OutcomeUnknown)
    pair.primary.start()
    with _Asked(url_of(pair.primary), open_client, changes, again=True) as asked:
        pair.wait_until_waiting(lambda: asked.open)
        assert asked.answered == [], f"answered before the standby has it: {asked.answered}"
        pair.primary.kill()
        for call in asked.calls.values():
            assert isinstance(call.exception(PATIENCE_S), OutcomeUnknown)
    pair.primary.start()
    pair.standby.start()
    expected = {name: change.answer for name, change in changes.items()}
    with _Asked(url_of(pair.primary), open_client, changes, again=True) as asked:
        assert asked.answers() == expected
    pair.fail_over()
    with _Asked(url_of(pair.standby), open_client, changes, again=True) as asked:
        assert asked.answers() == expected
