"""The shares of a topic's consumers at this broker, and when they change.

A loader observes its consumers, and asks a `ShareSource` for their shares. `LocalShares` is the source of a
broker that is alone: its own consumers are all members of the topic. With several brokers the source is where
they agree on a generation (`cluster.agreement`).

The dealer follows from the racks that consumers name: with one rack, or none, rack-aware shares are the same
as simple ranges.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from chronoline.core.dealer import Dealer, Share
from chronoline.core.generation import NO_MEMBERS, TopicMember, next_generation, window_at
from chronoline.core.topic import Topic
from chronoline.stores.contract import Returned


class ConnectedConsumer(NamedTuple):
    """A consumer that is subscribed at this broker."""

    member: TopicMember
    returned: Returned
    """Its subscription: of two with one name the later one keeps it."""


class ShareUser(Protocol):
    """The loader of a topic, as a source of shares sees it."""

    def changed(self) -> None:
        """The shares may have changed."""

    def returned(self, other: Returned) -> None:
        """A consumer has subscribed at another broker; one with the same name here may be replaced by it."""


class ShareSource(Protocol):
    """The shares of one topic. Owned by the event loop."""

    def observe(self, connected: Sequence[ConnectedConsumer]) -> None:
        """The consumers that are connected to this broker, after each change.

        It is called also while the broker may not serve them; they are busy then.
        """

    def shares(self, observed: frozenset[TopicMember], now_ms: int) -> Mapping[str, Share]:
        """The shares in force, by consumer, given the members that are connected to this broker.

        It is called often, and returns the same object until a share changes.
        """

    def changes_at(self, now_ms: int) -> int | None:
        """When the shares change next, as far as is known; None if no change is planned."""

    def close(self) -> None:
        """The loader ends, and with it its consumers. May be called twice."""


ShareFactory = Callable[[Topic, ShareUser], ShareSource]
"""Makes the source of a topic's shares, for its loader."""


class LocalShares:
    """The shares of a topic that one broker serves alone."""

    def __init__(self, topic: Topic, _: ShareUser | None = None) -> None:
        self._buckets = topic.settings.buckets
        self._window_ms = topic.settings.window_ms
        self._generation = NO_MEMBERS
        self._observed: frozenset[TopicMember] = frozenset()
        self._in_force: dict[str, Share] = {}
        self._is_planned = False
        """Whether a change has been planned and is not in force."""

    def observe(self, connected: Sequence[ConnectedConsumer]) -> None:
        """Does nothing: nobody else needs to know them."""

    def close(self) -> None:
        """Does nothing."""

    def shares(self, observed: frozenset[TopicMember], now_ms: int) -> Mapping[str, Share]:
        if observed == self._observed and not self._is_planned:
            return self._in_force
        self._observed = observed
        window = window_at(now_ms, self._window_ms)
        following = next_generation(self._generation, observed, window=window)
        self._generation = following or self._generation
        self._is_planned = window < self._generation.window
        shares = self._generation.shares_in(window, buckets=self._buckets, dealer=Dealer.RACK_AWARE)
        if shares != self._in_force:
            self._in_force = shares
        return self._in_force

    def changes_at(self, now_ms: int) -> int | None:
        if not self._is_planned:
            return None
        return (window_at(now_ms, self._window_ms) + 1) * self._window_ms
