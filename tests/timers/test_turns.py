"""Replicas that ask those before them: a healthy cluster pops once and in order, also at short intervals."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronoline.timers.membership import Membership, replicas_of
from chronoline.timers.peers import RECORDS_PATH, Link
from chronoline.timers.plan import SHORT_MS, TimerPlan
from chronoline.timers.replica import Replica
from chronoline.timers.timer import Timer, Version
from chronoline.timers.turn_asker import TURNS_PATH, answer_turns
from chronoline.timers.turns import Doubts
from tests.deadline import run_scene, until
from tests.timers.scene import HOUR_MS, NOWHERE, Popped, cluster, receiving, timer
from tests.timers.simulated import Simulation

_ID = 7
_POPS = 10


def _plan(interval_ms: int, factor: int, pops: int = _POPS) -> TimerPlan:
    return TimerPlan(
        interval_ms=interval_ms,
        repeat_for_ms=interval_ms * pops,
        uri="http://client/",
        opaque="x",
        factor=factor,
    )


@settings(max_examples=60, deadline=None)
@given(
    interval_ms=st.sampled_from([1, 20, 50, 100, 1_000]),
    factor=st.integers(2, 3),
    lag_ms=st.integers(1, 400),
    takes_ms=st.sampled_from([0, 5, 30]),
    asked=st.sampled_from("abc"),
)
def test_healthy_cluster_pops_once_and_in_order_while_its_records_are_late(
    interval_ms: int, factor: int, lag_ms: int, takes_ms: int, asked: str
) -> None:
    simulation = Simulation("abc")
    simulation.takes_ms = takes_ms
    assert simulation.change(asked, _ID, _plan(interval_ms, factor), factor=factor)
    end_ms = simulation.now_ms + _POPS * interval_ms + 2_000
    while simulation.now_ms < end_ms:
        simulation.advance(simulation.now_ms + lag_ms)
        simulation.deliver_all()
    popped = [pop.sequence for pop in simulation.pops]
    assert popped == sorted(set(popped))
    assert popped[-1] == _POPS
    assert {pop.node for pop in simulation.pops} == {replicas_of(_ID, factor, "abc")[0]}


@given(interval_ms=st.integers(1, 5_000), factor=st.integers(2, 3), silent=st.integers(1, 2))
def test_silent_nodes_are_not_waited_for_beyond_a_limit(
    interval_ms: int, factor: int, silent: int
) -> None:
    """They answer nothing, as a network does that loses every packet."""
    simulation, plan = Simulation("abc"), _plan(interval_ms, factor, pops=1)
    asked_ms = simulation.now_ms
    assert simulation.change("a", _ID, plan, factor=factor)
    nodes = replicas_of(_ID, factor, "abc")
    silent = min(silent, factor - 1)
    simulation.cut = {
        frozenset((one, other)) for one in nodes[:silent] for other in nodes if one != other
    }
    simulation.advance(asked_ms + 20_000)
    level = silent
    (pop,) = [each for each in simulation.pops if each.node == nodes[level]]
    late_ms = pop.at_ms - asked_ms - interval_ms
    assert late_ms <= (interval_ms if interval_ms >= SHORT_MS else 500 + 100 * level)


def test_standstill_during_a_question_does_not_end_it() -> None:
    held = Timer(
        id=1,
        version=Version(1, "a"),
        plan=_plan(20, 2),
        start_ms=0,
        replicas=("a", "b"),
        view="v",
    )
    doubts = Doubts()

    def look(now_ms: int) -> int | None:
        return doubts.open_until(held, ["a"], limit_ms=620, now_ms=now_ms)

    assert look(25) == 620
    assert list(doubts.take_questions()) == ["a"]
    assert look(800) == 850  # the answer may wait unread
    assert look(849) == 850
    assert look(950) is None
    assert not doubts.take_questions()


def test_records_that_are_held_up_double_no_pop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_go, is_held = asyncio.Event(), False
    ask = Link.ask

    async def held_up(link: Link, method: str, path: str, *others: Any, **more: Any) -> Any:
        if is_held and path == RECORDS_PATH:
            await let_go.wait()
        return await ask(link, method, path, *others, **more)

    monkeypatch.setattr(Link, "ask", held_up)

    async def scene() -> None:
        nonlocal is_held
        async with receiving() as receiver, cluster(tmp_path, 3) as nodes:
            for at in range(3):
                asked = timer(
                    receiver.uri,
                    interval_ms=100,
                    repeat_for_ms=1_000,
                    opaque=str(at),
                    reliability={"replication-factor": 3},
                )
                assert (await nodes.ask("POST", "/timers", asked, at=at)).headers[
                    "X-Copies"
                ] == "3/3"
            is_held = True
            await receiver.until(lambda popped: _ended(popped) == {"0", "1", "2"})
            is_held = False
            let_go.set()
            for opaque in "012":
                popped = [pop.sequence for pop in receiver.popped if pop.body == opaque]
                assert popped == sorted(set(popped))

    run_scene(scene)


def _ended(popped: list[Popped]) -> set[str]:
    return {pop.body for pop in popped if pop.sequence == _POPS}


@pytest.mark.parametrize("answer", [404, 500, b"[]", b'{"waits": [5]}', b'{"waits": [[1, -1]]}'])
def test_node_that_answers_no_turn_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: int | bytes
) -> None:
    """As one of an earlier release does."""

    async def answers(_: Popped) -> int | aiohttp.web.Response:
        return answer if isinstance(answer, int) else aiohttp.web.Response(body=answer)

    async def scene() -> None:
        async with receiving() as receiver, receiving() as stranger, cluster(tmp_path, 2) as nodes:
            stranger.answer = answers
            first, second = nodes.node(0), nodes.node(1)
            # It takes records, and makes no call.
            monkeypatch.setattr(first, "start_popping", lambda: None)
            first.is_ready = False
            (peer,) = second.peers.values()
            ask = peer.link.ask

            async def elsewhere(method: str, path: str, *others: Any, **more: Any) -> Any:
                if path != TURNS_PATH:
                    return await ask(method, path, *others, **more)
                async with aiohttp.ClientSession() as session:
                    link = Link(
                        f"127.0.0.1:{stranger.port}", session, scheme="http", timeout_ms=60_000
                    )
                    return await link.ask(method, path, *others, **more)

            monkeypatch.setattr(peer.link, "ask", elsewhere)
            path = f"/timers/{nodes.kept_by(0, 1):016x}-2"
            assert (await nodes.ask("PUT", path, timer(receiver.uri, interval_ms=50))).status == 200
            await receiver.count(1)
            assert stranger.popped

    run_scene(scene)


def test_questions_that_are_wrong_are_left_out(tmp_path: Path) -> None:
    async def scene() -> None:
        async with cluster(tmp_path, 2) as nodes:
            path = f"/timers/{nodes.kept_by(0, 1):016x}-2"
            await nodes.ask("PUT", path, timer(NOWHERE, interval_ms=HOUR_MS))
            await until(lambda: len(nodes.node(1).replica) == 1)
            (held,) = nodes.node(1).replica.some(1, 1)
            right = [held.id, held.version.number, held.version.giver, 0, 0, 0, 0]
            wrong = [5, [], [*right[:6], "x"], [-1, *right[1:]], [*right[:2], "a\n", *right[3:]]]
            told = {"from": nodes.names[1], "turns": [*wrong, right]}
            answer = (await nodes.ask("POST", TURNS_PATH, told)).json
            ((timer_id, wait_ms),) = answer["waits"]
            assert (timer_id, answer["newer"]) == (held.id, [])
            assert wait_ms > HOUR_MS - 60_000
            nodes.node(0).is_ready = False  # it stops
            answer = (await nodes.ask("POST", TURNS_PATH, told)).json
            assert answer == {"waits": [], "newer": []}

    run_scene(scene)


def test_answer_about_an_unknown_timer_is_to_wait_a_little() -> None:
    replica = Replica("a", Membership(("a", "b")), life="1")
    asked = [1, 5, "b", 0, 0, 0, 0]
    assert answer_turns(replica, "b", [asked], 0) == {"newer": [], "waits": [(1, 10)]}
