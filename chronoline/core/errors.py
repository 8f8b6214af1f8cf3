"""Every error that Chronoline raises has one root, and its docstring is its default message."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from chronoline.core.outcome import BaseOutcome, Outcome


class ChronolineError(Exception):
    """Chronoline failed."""

    retry_after_ms: int | None = None
    """The same as `retry_after`, for stores and the wire."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (self.__doc__ or "").strip())

    @property
    def retry_after(self) -> timedelta | None:
        """When a repetition is worth trying, if known."""
        after_ms = self.retry_after_ms
        return None if after_ms is None else timedelta(milliseconds=after_ms)


class InvalidInput(ChronolineError, ValueError):
    """The input is not valid; nothing was changed."""


class MissingExtra(ChronolineError, ImportError):
    """An optional dependency is not installed."""


class TopicNotFound(ChronolineError, LookupError):
    """There is no such topic: it was never created, or it was deleted."""

    @classmethod
    def with_uid(cls, uid: int) -> Self:
        return cls(f"there is no topic with uid {uid}; it may have been deleted")


class TopicExists(ChronolineError):
    """A topic of that name exists already, or is still being deleted."""


class TopicNotReady(ChronolineError):
    """The topic is still being created; nothing was changed. Try again."""


class TopicChanged(ChronolineError):
    """The topic was changed by another meanwhile; nothing was changed. Look at it, and try again."""


class TopicPiped(InvalidInput):
    """A pipe fires the topic, which takes no consumers beside it."""


class ScheduleNotFound(ChronolineError, LookupError):
    """There is no such schedule: it was never created, or it was deleted with or without its topic."""


class ScheduleExists(ChronolineError):
    """A schedule of that name exists already."""


class TooManySchedules(ChronolineError):
    """The topic has as many schedules as the node allows (`limits.schedules`); nothing was changed."""


class Refused(ChronolineError):
    """Some of the batch were refused."""

    def __init__(self, outcomes: Sequence[BaseOutcome]) -> None:
        self.outcomes = tuple(outcomes)
        shown = "; ".join(f"{outcome.id!r}: {outcome.reason}" for outcome in self.outcomes[:3])
        waits = (outcome.passes_after_ms for outcome in self.outcomes)
        self.retry_after_ms = max((each for each in waits if each is not None), default=None)
        more = len(self.outcomes) - 3
        super().__init__(f"refused: {shown}" + (f"; and {more} more" if more > 0 else ""))

    def __reduce__(self) -> tuple[type[Refused], tuple[tuple[BaseOutcome, ...]]]:
        """Pickled by its outcomes, from which the message is made again."""
        return type(self), (self.outcomes,)


class StoreError(ChronolineError):
    """The store failed."""

    answered: Sequence[Outcome] | None = None
    """The outcome of each item, where only some of a batch could not be done: they are `busy`."""


class StoreUnavailable(StoreError):
    """The store cannot be reached; nothing was changed. Try again."""


class StoreBusy(StoreUnavailable):
    """The store is locked by another process; nothing was changed. Try again."""


class RowsLocked(StoreBusy):
    """Other transactions hold some of the messages; nothing was changed. Try again."""


class StoreFull(StoreUnavailable):
    """The store has no room left; nothing was changed. Free some disk and try again."""


class OutcomeUnknown(StoreError):
    """The store did not answer, so the change may have happened or not. Ask again with the same ids."""


class StoreClosed(StoreError):
    """The store is closed."""


class SchemaTooNew(StoreError):
    """The database was written by a newer Chronoline. Upgrade this one, or open another database."""


class CoordinationError(ChronolineError):
    """The coordination service failed."""


class CoordinationUnavailable(CoordinationError):
    """The coordination service cannot be reached; nothing was changed. Try again."""


class CoordinationRefused(CoordinationError):
    """The coordination service refused: the broker has no rights there, for example. Nothing was changed."""


class NameTaken(CoordinationError):
    """Another broker of the cluster has the name of this one."""

    def __init__(self, message: str | None = None, *, ttl_ms: int = 0) -> None:
        """`ttl_ms` is the time for which a broker that was killed keeps its name."""
        super().__init__(message)
        self.ttl_ms = ttl_ms


class CommitUnknown(CoordinationError):
    """The coordination service did not answer: the commit may have been made or not. Look, or ask again."""


class SessionLost(CoordinationError):
    """The broker's session with the coordination service has ended; nothing was changed."""


class BrokerUnavailable(ChronolineError):
    """The broker cannot be reached, or is stopping; nothing was changed. Try again."""

    was_reached = True
    """False if no connection was made, so that nothing was sent."""


class CertificateExpired(BrokerUnavailable):
    """The client's certificate has expired since the connection was made. Connect again with a new one."""


class WrongBroker(ChronolineError):
    """The broker does not have the role that the request needs; nothing was changed. Ask another one."""

    def __init__(self, message: str | None = None, *, brokers: Iterable[str] = ()) -> None:
        """`brokers` are the addresses of those that have the role."""
        super().__init__(message)
        self.brokers = tuple(brokers)


class TooMuch(ChronolineError):
    """More than the broker takes at once; nothing was changed. Try again with less, or later."""


class NodeBusy(TooMuch):
    """The broker has as many requests under way as it takes; nothing was changed. Try again."""


class Unauthenticated(ChronolineError):
    """The broker asks for a token: `chronoline token create` makes one, CHRONOLINE_TOKEN gives it."""


class Forbidden(ChronolineError):
    """The token does not have the right to do this; nothing was changed."""


class AlreadySubscribed(ChronolineError):
    """The consumer is subscribed to the topic already."""


class NotSubscribed(ChronolineError):
    """The consumer is not subscribed to the topic."""


class ConsumerReplaced(ChronolineError):
    """Another process has connected under this consumer's name, and has its leases now."""


class ClientClosed(ChronolineError):
    """The client is closed."""


class OutputUnavailable(ChronolineError):
    """The output as a whole fails; nothing is wrong with the message. Try again later."""


class Unpublishable(ChronolineError):
    """The message can never be published as it is."""
