"""A store for lanes that counts its commits, waits at a gate, or fails on demand."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

from chronoline.core.outcome import Outcome
from chronoline.stores.contract import Capabilities, Store

PATIENCE_S = 60
WRITES = frozenset({"create", "reserve", "reserve_for", "apply"})


def call_name(method: str, given: Sequence[Any]) -> str:
    """The name of a call of a store with these arguments. Changes have the name of their operation."""
    return str(given[1][0].operation) if method == "apply" else method


class Tap:
    """Wraps a store: changes pass through here, and all other methods are those of the store.

    `commits` are the changes that were asked for, as (create, reserve, reserve_for or the operation, number
    of items). While `gate` is closed changes wait at it. `fail` may raise before a change is made, or return;
    `lose` may raise after it.
    """

    def __init__(self, store: Store, capabilities: Capabilities | None = None) -> None:
        self.store = store
        self.capabilities = capabilities or store.capabilities
        self.commits: list[tuple[str, int]] = []
        self.ids: list[str | None] = []
        """Of the messages in the last change that was asked for."""
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Semaphore(0)
        """Released by each change that has reached the gate."""
        self.fail: Callable[[str], None] = lambda _: None
        self.lose: Callable[[str], None] = lambda _: None

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.store, name)
        if name not in WRITES:
            return method

        def change(topic_uid: int, items: Any, **named: Any) -> list[Outcome]:
            asked = call_name(name, (topic_uid, items))
            self.commits.append((asked, len(items)))
            self.ids = [getattr(item, "id", None) for item in items]
            self.entered.release()
            assert self.gate.wait(PATIENCE_S)
            self.fail(asked)
            result: list[Outcome] = method(topic_uid, items, **named)
            self.lose(asked)
            return result

        return change

    def wait_until_entered(self) -> None:
        """Waits until one more change has reached the gate."""
        assert self.entered.acquire(timeout=PATIENCE_S)
