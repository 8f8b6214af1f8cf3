"""Generations: shares change once a window, and each bucket has one owner in every window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronoline.core.dealer import Dealer
from chronoline.core.generation import (
    NO_MEMBERS,
    Generation,
    TopicMember,
    first_window,
    next_generation,
    window_at,
)

BUCKETS = 12


@dataclass
class History:
    """The consumers of a topic come and go; every change is observed at once."""

    dealer: Dealer = Dealer.SIMPLE
    window: int = 100
    near: bool = False
    """The next window begins within the notice of a change."""
    generation: Generation = NO_MEMBERS
    members: dict[str, TopicMember] = field(default_factory=dict)
    made: int = 0

    def observe(self) -> None:
        following = next_generation(
            self.generation,
            reversed(self.members.values()),
            window=self.window,
            from_window=self.window + (2 if self.near else 1),
        )
        if following is not None:
            assert following.number == self.generation.number + 1
            self.generation, self.made = following, self.made + 1
        assert self._settled

    @property
    def _settled(self) -> bool:
        """Observing the same members again changes nothing."""
        start = self.window + (2 if self.near else 1)
        again = next_generation(
            self.generation, self.members.values(), window=self.window, from_window=start
        )
        return again is None

    def join(self, name: str, broker: str = "b1", rack: str = "", *, busy: bool = False) -> None:
        self.members[name] = TopicMember(name, broker, rack, busy)
        self.observe()

    def leave(self, *names: str) -> None:
        for name in names:
            self.members.pop(name, None)
        self.observe()

    def busy(self, name: str, busy: bool = True) -> None:
        self.members[name] = self.members[name]._replace(busy=busy)
        self.observe()

    def next_window(self, windows: int = 1) -> None:
        self.window += windows
        self.near = False
        self.observe()

    def owned(self, window: int | None = None) -> dict[str, int]:
        """The number of buckets that each consumer owns; those without any are left out."""
        at = self.window if window is None else window
        shares = self.generation.shares_in(at, buckets=BUCKETS, dealer=self.dealer)
        sizes = {
            name: sum(stop - start for start, stop in each.own) for name, each in shares.items()
        }
        return {name: size for name, size in sizes.items() if size}

    def served_by(self, broker: str) -> set[str]:
        return set(
            self.generation.served_by(broker, self.window, buckets=BUCKETS, dealer=self.dealer)
        )


def test_first_consumer_is_served_at_once() -> None:
    history = History()
    history.join("a")
    assert history.owned() == {"a": 12}
    assert history.owned(history.window - 1) == {"a": 12}  # also where the clock is behind


def test_new_consumer_starts_in_the_next_window() -> None:
    history = History()
    history.join("a")
    history.join("b")
    assert history.owned() == {"a": 12}
    history.next_window()
    assert history.owned() == {"a": 6, "b": 6}


def test_consumers_of_one_window_start_together() -> None:
    history = History()
    history.join("a")
    history.join("b")
    history.join("c")
    history.next_window()
    assert history.owned() == {"a": 4, "b": 4, "c": 4}


def test_simple_share_of_a_lost_consumer_is_dealt_in_the_next_window() -> None:
    history = History()
    history.join("a")
    history.join("b")
    history.next_window()
    history.leave("b")
    assert history.owned() == {"a": 6, "b": 6}
    assert history.served_by("b1") == {"a"}
    history.next_window()
    assert history.owned() == {"a": 12}


def test_rack_aware_share_of_a_lost_consumer_goes_to_its_backup_at_once() -> None:
    history = History(Dealer.RACK_AWARE)
    for name in ("a1", "a2", "b1", "b2"):
        history.join(name, rack=name[0])
    history.next_window()
    history.leave("b1")
    assert history.owned() == {"a1": 6, "a2": 3, "b2": 3}
    history.next_window()
    assert history.owned() == {"a1": 4, "a2": 4, "b2": 4}


def test_whole_lost_rack_is_served_at_once() -> None:
    history = History(Dealer.RACK_AWARE)
    for name in ("a1", "a2", "b1", "b2"):
        history.join(name, rack=name[0])
    history.next_window()
    history.leave("b1", "b2")
    assert history.owned() == {"a1": 6, "a2": 6}


@pytest.mark.parametrize("dealer", list(Dealer))
def test_consumer_that_returns_in_time_keeps_its_share(dealer: Dealer) -> None:
    history = History(dealer)
    history.join("a", "b1", "r1")
    history.join("b", "b1", "r2")
    history.next_window()
    history.leave("b")
    history.join("b", "b2", "r2")
    assert history.owned() == {"a": 6, "b": 6}
    assert history.served_by("b2") == {"b"}
    history.next_window()
    assert history.owned() == {"a": 6, "b": 6}


def test_consumer_that_moves_to_another_broker_keeps_its_share() -> None:
    history = History()
    history.join("a", "b1")
    history.join("b", "b1")
    history.next_window()
    history.join("b", "b2")
    assert (history.served_by("b1"), history.served_by("b2")) == ({"a"}, {"b"})


def test_consumer_that_returns_too_late_starts_in_the_next_window() -> None:
    history = History()
    history.join("a")
    history.join("b")
    history.next_window()
    history.leave("b")
    history.next_window()
    history.join("b")
    assert history.owned() == {"a": 12}
    history.next_window()
    assert history.owned() == {"a": 6, "b": 6}


def test_busy_consumer_has_no_share_from_the_next_window_on() -> None:
    history = History()
    history.join("a")
    history.join("b")
    history.next_window()
    history.busy("b")
    assert history.owned() == {"a": 6, "b": 6}
    history.next_window()
    assert history.owned() == {"a": 12}
    assert [each.consumer for each in history.generation.members_in(history.window)] == ["a", "b"]
    history.busy("b", False)
    history.next_window()
    assert history.owned() == {"a": 6, "b": 6}


def test_another_rack_counts_from_the_next_window_on() -> None:
    history = History(Dealer.RACK_AWARE)
    history.join("a", rack="r1")
    history.join("b", rack="r1")
    history.next_window()
    history.join("b", "b2", rack="r0")
    assert history.generation.members_in(history.window)[1] == TopicMember("b", "b2", "r1")
    history.next_window()
    assert history.generation.members_in(history.window)[1] == TopicMember("b", "b2", "r0")


def test_successor_of_the_last_consumer_starts_at_once() -> None:
    history = History()
    history.join("a")
    history.leave("a")
    history.join("b")
    assert history.owned() == {"b": 12}


def test_topic_whose_consumers_are_all_busy_serves_the_first_free_one_at_once() -> None:
    history = History()
    history.join("a", busy=True)
    history.join("b", busy=True)
    history.next_window()
    assert history.owned() == {}
    history.busy("b", False)
    assert history.owned() == {"b": 12}


def test_generation_is_made_for_changes_alone() -> None:
    history = History()
    history.join("a")
    history.join("b")
    made = history.made
    history.next_window(50)
    assert history.made == made


def test_change_without_notice_takes_effect_one_window_later() -> None:
    history = History()
    history.join("a")
    history.near = True
    history.join("b")
    history.next_window()
    assert history.owned() == {"a": 12}
    history.next_window()
    assert history.owned() == {"a": 6, "b": 6}


def test_planned_change_is_not_amended_without_notice() -> None:
    history = History()
    history.join("a")
    history.join("b")
    history.near = True
    history.join("c")
    history.next_window()
    assert history.owned() == {"a": 6, "b": 6}
    history.next_window()
    assert history.owned() == {"a": 4, "b": 4, "c": 4}


def test_consumer_lost_without_notice_is_lost_in_the_planned_window_too() -> None:
    history = History(Dealer.RACK_AWARE)
    history.join("a", rack="r1")
    history.join("b", rack="r2")
    history.near = True
    history.leave("b")
    history.window += 1  # before anything is observed in it
    assert history.owned() == {"a": 12}


def test_clock_put_back_delays_a_change_by_one_window() -> None:
    history = History()
    history.join("a")
    history.join("b")
    history.next_window(-50)
    assert history.owned() == {"a": 12}
    history.next_window()
    assert history.owned() == {"a": 6, "b": 6}


def test_windows_are_numbered_by_the_clock() -> None:
    assert window_at(9_999, 2_000) == 4
    assert first_window(9_999, 2_000) == 5
    assert first_window(9_500, 2_000, notice_ms=500) == 6


# Any history

events = st.one_of(
    st.tuples(
        st.just("join"),
        st.sampled_from("abcdef"),
        st.sampled_from(["b1", "b2"]),
        st.sampled_from(["r1", "r2", "r3"]),
    ),
    st.tuples(st.just("leave"), st.sampled_from("abcdef")),
    st.tuples(st.just("busy"), st.sampled_from("abcdef"), st.booleans()),
    st.tuples(st.just("near")),
    st.tuples(st.just("window"), st.integers(1, 3)),
)


def play(history: History, event: tuple[object, ...]) -> None:
    match event:
        case ("join", str(name), str(broker), str(rack)):
            history.join(name, broker, rack)
        case ("leave", str(name)):
            history.leave(name)
        case ("busy", str(name), bool(busy)) if name in history.members:
            history.busy(name, busy)
        case ("near",):
            history.near = True
            history.observe()
        case ("window", int(windows)):
            history.next_window(windows)


@settings(max_examples=300)
@given(st.sampled_from(Dealer), st.lists(events, max_size=30))
def test_each_bucket_has_one_owner_in_every_window(
    dealer: Dealer, happened: list[tuple[object, ...]]
) -> None:
    history = History(dealer)
    for event in happened:
        play(history, event)
        for window in (history.window, history.window + 1, history.window + 2):
            members = history.generation.members_in(window)
            shares = history.generation.shares_in(window, buckets=BUCKETS, dealer=dealer)
            owned = sorted(
                bucket for share in shares.values() for each in share.own for bucket in range(*each)
            )
            is_served = any(not each.busy for each in members)
            assert owned == (list(range(BUCKETS)) if is_served else [])


def dealt(members: Sequence[TopicMember]) -> list[TopicMember]:
    """The members without their brokers, on which no share depends."""
    return [each._replace(broker="") for each in members]


@settings(max_examples=300)
@given(st.lists(events, max_size=30))
def test_members_in_force_change_with_the_window_unless_nobody_serves(
    happened: list[tuple[object, ...]],
) -> None:
    history = History()
    for event in happened:
        before, window = history.generation.members_in(history.window), history.window
        play(history, event)
        after = history.generation.members_in(history.window)
        served = any(not each.busy and each.consumer in history.members for each in before)
        if window == history.window and served:
            assert dealt(after) == dealt(before)


@settings(max_examples=300)
@given(st.lists(events, max_size=30))
def test_consumers_that_stay_have_their_shares_two_windows_later(
    happened: list[tuple[object, ...]],
) -> None:
    history = History()
    for event in happened:
        play(history, event)
    history.next_window()
    history.next_window()
    members = history.generation.members_in(history.window)
    assert members == tuple(sorted(history.members.values()))
    at_brokers = [history.served_by(broker) for broker in ("b1", "b2")]
    expected = [
        {each.consumer for each in members if not each.busy and each.broker == broker}
        for broker in ("b1", "b2")
    ]
    assert at_brokers == expected
