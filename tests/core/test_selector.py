"""The selector: few brokers for a topic, none with too many of its clients, and moves that come to rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronoline.core.selector import (
    FILL,
    MOST,
    BrokerHealth,
    BrokerState,
    ClientKind,
    MoveReason,
    SuggestedMove,
    Suggestion,
    preferred_brokers,
    wanted_move,
)

kinds = pytest.mark.parametrize("kind", list(ClientKind))


def at(name: str, clients: int = 0, *, others: int = 0, load: float = 0.0) -> BrokerState:
    """A broker with consumers of the topic t, and with other topics."""
    topics = {f"other-{number}": 1 for number in range(others)}
    return BrokerState(broker=name, consumers={"t": clients, **topics}, load=load)


def placed(brokers: list[BrokerState], clients: int, kind: ClientKind) -> list[int]:
    """The clients of the topic at each broker after some more followed their first preference."""
    states = {each.broker: each for each in brokers}
    for _ in range(clients):
        first = preferred_brokers("t", states.values(), kind=kind)[0]
        states[first] = states[first].with_clients(kind, "t", 1)
    return [each.clients(kind).get("t", 0) for each in states.values()]


@kinds
@pytest.mark.parametrize(
    ("clients", "expected"),
    [
        (3, [3]),
        (5, [4, 1]),
        (8, [4, 4]),
        (16, [4, 4, 4, 4]),
        (18, [5, 5, 4, 4]),
        (30, [8, 8, 7, 7]),
    ],
)
def test_clients_fill_few_brokers(kind: ClientKind, clients: int, expected: list[int]) -> None:
    """Eight consumers and four brokers: 4 + 4, so that two brokers read the topic and not four."""
    brokers = [BrokerState(broker=name) for name in "abcd"]
    assert [each for each in placed(brokers, clients, kind) if each] == expected


def test_steps_come_in_order() -> None:
    brokers = [
        at("full", MOST, load=0.5),
        at("fuller", MOST + 2, load=0.1),
        at("filled", FILL, load=0.0),
        at("new-busy", others=3),
        at("new", others=1),
        at("begun", 1),
        at("nearly", FILL - 1, load=0.9),
    ]
    order = ["nearly", "begun", "new", "new-busy", "filled", "fuller", "full"]
    assert preferred_brokers("t", brokers) == order


def test_degraded_brokers_are_last_and_inactive_ones_left_out() -> None:
    degraded = BrokerState(broker="a", consumers={"t": 1}, health=BrokerHealth.DEGRADED)
    inactive = BrokerState(broker="b", consumers={"t": 1}, health=BrokerHealth.INACTIVE)
    assert preferred_brokers("t", [degraded, inactive, at("z", MOST)]) == ["z", "a"]
    assert preferred_brokers("t", [degraded, inactive]) == ["a"]


def test_producer_prefers_a_broker_that_serves_the_topic() -> None:
    brokers = [at("a"), at("b", 2), at("c")]
    assert preferred_brokers("t", brokers, kind=ClientKind.PRODUCER)[0] == "b"


def test_brokers_of_the_own_rack_come_first_up_to_the_most() -> None:
    def of(rack: str, name: str, clients: int = 0, **given: Any) -> BrokerState:
        return replace(at(name, clients, **given), rack=rack)

    brokers = [
        of("1", "serves", 1),
        of("1", "idle"),
        of("2", "new-busy", others=2),
        of("2", "new", others=1),
        of("2", "filled", FILL),
        of("2", "begun", 1),
        of("2", "full", MOST, load=0.2),
        of("1", "fuller", MOST + 1, load=0.1),
        replace(of("2", "ill", 1), health=BrokerHealth.DEGRADED),
    ]
    own, others = ["begun", "new", "new-busy", "filled"], ["serves", "idle"]
    assert preferred_brokers("t", brokers, rack="2") == [*own, *others, "fuller", "full", "ill"]


def test_client_without_a_rack_does_not_look_at_racks() -> None:
    brokers = [BrokerState(broker="a", rack="1"), BrokerState(broker="b", load=0.1)]
    assert preferred_brokers("t", brokers) == ["a", "b"]


def test_clients_of_each_rack_fill_the_brokers_of_their_rack() -> None:
    states = {name: BrokerState(broker=name, rack=name[0]) for name in ("a1", "a2", "b1", "b2")}
    for rack in "ab" * 6:
        first = preferred_brokers("t", states.values(), rack=rack)[0]
        states[first] = states[first].with_clients(ClientKind.CONSUMER, "t", 1)
    assert {name: each.consumers["t"] for name, each in states.items()} == {
        "a1": 4,
        "a2": 2,
        "b1": 4,
        "b2": 2,
    }


states = st.builds(
    BrokerState,
    broker=st.text("abcd", min_size=1, max_size=3),
    consumers=st.dictionaries(st.sampled_from("tuv"), st.integers(0, 12)),
    producers=st.dictionaries(st.sampled_from("tuv"), st.integers(0, 12)),
    load=st.floats(0, 2),
    health=st.sampled_from(BrokerHealth),
    rack=st.sampled_from(["", "1"]),
)
clusters = st.lists(states, unique_by=lambda each: each.broker, max_size=6)


@given(clusters, st.sampled_from(ClientKind))
def test_every_living_broker_is_an_answer(brokers: list[BrokerState], kind: ClientKind) -> None:
    order = preferred_brokers("t", brokers, kind=kind)
    living = [each for each in brokers if each.health is not BrokerHealth.INACTIVE]
    assert Counter(order) == Counter(each.broker for each in living)
    assert order == preferred_brokers("t", brokers[::-1], kind=kind)
    health = {each.broker: each.health for each in brokers}
    healths = [health[each] is BrokerHealth.DEGRADED for each in order]
    assert healths == sorted(healths)


# Moves


def test_few_clients_join_those_of_another_broker() -> None:
    brokers = [at("a", 1), at("b", 2)]
    move = wanted_move("a", "t", brokers)
    assert move is not None
    assert (move.to, move.clients, move.reason) == ("b", 1, MoveReason.SPREAD)
    assert wanted_move("b", "t", brokers) is None


def test_topic_is_not_joined_across_racks() -> None:
    brokers = [replace(at("a", 1), rack="1"), replace(at("b", 2), rack="2")]
    assert wanted_move("a", "t", brokers) is None
    assert wanted_move("a", "t", [replace(broker, rack="1") for broker in brokers]) is not None


def test_move_goes_to_a_broker_of_the_rack_first() -> None:
    brokers = [replace(at("a", MOST + 2), rack="1"), at("b"), replace(at("c"), rack="1")]
    move = wanted_move("a", "t", brokers)
    assert move is not None
    assert move.to == "c"
    move = wanted_move("a", "t", brokers[:2])
    assert move is not None
    assert (move.to, move.reason) == ("b", MoveReason.FULL)


def test_topic_is_not_joined_so_that_the_next_client_would_part_it() -> None:
    assert wanted_move("a", "t", [at("a", 1), at("b", FILL - 1)]) is None


def test_full_broker_sheds_what_is_above_the_most() -> None:
    move = wanted_move("a", "t", [at("a", MOST + 2), at("b", 0)])
    assert move is not None
    assert (move.to, move.clients, move.reason) == ("b", 2, MoveReason.FULL)
    assert wanted_move("a", "t", [at("a", MOST + 2), at("b", MOST)]) is None


def test_loaded_broker_sheds_one_client_to_a_calm_one() -> None:
    move = wanted_move("a", "t", [at("a", 4, load=0.9), at("b", 0, load=0.1)])
    assert move is not None
    assert (move.to, move.clients, move.reason) == ("b", 1, MoveReason.LOAD)
    assert wanted_move("a", "t", [at("a", 4, load=0.9), at("b", 0, load=0.5)]) is None


def test_degraded_broker_sends_all_its_clients_to_a_healthy_one() -> None:
    ill = BrokerState(broker="a", consumers={"t": 5}, health=BrokerHealth.DEGRADED)
    move = wanted_move("a", "t", [ill, at("b", MOST + 3)])
    assert move is not None
    assert (move.to, move.clients, move.reason) == ("b", 5, MoveReason.DEGRADED)
    as_ill = BrokerState(broker="b", health=BrokerHealth.DEGRADED)
    assert wanted_move("a", "t", [ill, as_ill]) is None


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=5),
    st.floats(0, 0.4),
    st.lists(st.sampled_from(["", "1"]), min_size=5, max_size=5),
)
def test_followed_moves_come_to_rest(
    counts: list[tuple[int, int]], weight: float, racks: list[str]
) -> None:
    """Two topics, and every client has the same load: moves end, and no topic is at more brokers."""
    clients = {f"b{place}": {"t": t, "u": u} for place, (t, u) in enumerate(counts)}
    for _ in range(500):
        brokers = [
            BrokerState(broker=name, consumers=those, load=weight * sum(those.values()), rack=rack)
            for (name, those), rack in zip(clients.items(), racks, strict=False)
        ]
        moves = [(me, wanted_move(me, topic, brokers)) for me in clients for topic in "tu"]
        wanted = [(me, move) for me, move in moves if move is not None]
        if not wanted:
            return
        me, move = wanted[0]
        clients[me][move.topic] -= move.clients
        clients[move.to][move.topic] += move.clients
    raise AssertionError(clients)


# When a move is suggested

_SHED = SuggestedMove(
    topic="t", kind=ClientKind.CONSUMER, to="b", clients=1, reason=MoveReason.LOAD
)
_FLEE = SuggestedMove(
    topic="t", kind=ClientKind.CONSUMER, to="b", clients=1, reason=MoveReason.DEGRADED
)


def suggested(wanted: Sequence[tuple[int, SuggestedMove | None]]) -> list[int]:
    """The moments at which a move is suggested."""
    state, moments = Suggestion(), []
    for now_ms, move in wanted:
        state, made = state.next(move, now_ms)
        if made is not None:
            assert made == move
            moments.append(now_ms)
    return moments


def test_reason_must_last() -> None:
    assert suggested([(0, _SHED), (29_999, _SHED), (30_000, _SHED)]) == [30_000]
    assert suggested([(0, _FLEE), (499, _FLEE), (500, _FLEE)]) == [500]


def test_interrupted_reason_begins_anew() -> None:
    assert suggested([(0, _SHED), (20_000, None), (20_001, _SHED), (40_000, _SHED)]) == []
    assert suggested([(0, _SHED), (29_000, _FLEE), (30_000, _SHED), (59_999, _SHED)]) == []


def test_clients_have_time_to_move_before_the_next_suggestion() -> None:
    every_second = [(1_000 * second, _SHED) for second in range(100)]
    assert suggested(every_second) == [30_000, 61_000, 92_000]


def test_clock_put_back_delays_a_suggestion_by_one_time_at_most() -> None:
    assert suggested([(10**9, _SHED), (0, _SHED), (30_000, _SHED)]) == [30_000]
    state, _ = Suggestion(rests_until_ms=10**9).next(_SHED, 0)
    assert state.next(_SHED, 30_000)[1] == _SHED
