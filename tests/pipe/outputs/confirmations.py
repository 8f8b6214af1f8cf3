"""The confirmations of published records."""

import threading
from collections import Counter

from chronoline.pipe.outputs.contract import Confirm


class Confirmations:
    """Gives each record a confirmation by name, and keeps the results."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._told: list[tuple[object, BaseException | None]] = []
        self._expected = 0

    def of(self, name: object) -> Confirm:
        with self._changed:
            self._expected += 1

        def confirm(error: BaseException | None) -> None:
            with self._changed:
                self._told.append((name, error))
                self._changed.notify_all()

        return confirm

    def wait(self, timeout_s: float = 60) -> dict[object, BaseException | None]:
        """Waits for all confirmations and returns them; fails if one came twice."""
        with self._changed:
            done = self._changed.wait_for(lambda: len(self._told) >= self._expected, timeout_s)
            assert done, f"{len(self._told)} of {self._expected} were confirmed"
            twice = {name for name, times in Counter(n for n, _ in self._told).items() if times > 1}
            assert not twice
            return dict(self._told)

    def wait_for(self, name: object, timeout_s: float = 60) -> BaseException | None:
        with self._changed:
            assert self._changed.wait_for(lambda: name in dict(self._told), timeout_s)
            return dict(self._told)[name]

    def told(self) -> int:
        with self._changed:
            return len(self._told)
