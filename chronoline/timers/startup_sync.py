"""The start of a node: it learns what happened while it was away, before it pops anything.

It loads its journal, then asks every peer for the timers that it must keep: their records are later than
its own, and of two starts theirs counts if its own came from the wall clock. A timer that a peer once
confirmed and no longer knows is over, if the peer may have forgotten it by now: it popped there, or was
deleted. Unreachable peers count as dead; they ask when they come back. At last the node sends the others
the timers that they did not show, and takes their later records; timers that are due soon go first, and are
waited for.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import Any

from chronoline.callbacks.caller import words_of
from chronoline.core.errors import StoreError
from chronoline.runtime.gc_tuning import searched_seldom
from chronoline.timers.journal import Saved
from chronoline.timers.node import TimerNode
from chronoline.timers.peers import (
    RECORDS_PATH,
    OutOfResources,
    Peer,
    PeerAnswer,
    listed,
    next_cursor,
)
from chronoline.timers.records import id_of, name_of
from chronoline.timers.timer import Timer

logger = logging.getLogger(__name__)

KNOWN_PATH = "/cluster/known"
_AT_ONCE = 500
_STARTING_PATIENCE_S = 30.0
_PAUSE_S = 0.1
_SOON_MS = 5_000
_ANSWER_S = 10.0
"""A dead node refuses at once; one that is busy with its own start is worth waiting for."""


async def start_from_journal(node: TimerNode) -> None:
    """Loads the journal, asks the peers, and lets the node pop."""
    with searched_seldom():  # the objects made here live long
        saved = await asyncio.to_thread(
            lambda: list(node.journal.load(now_ms=node.now_ms(), wall_ms=node.wall_ms()))
        )
        for number, each in enumerate(saved):
            try:
                node.load(each)
            except Exception as error:  # of one record: the others are loaded
                node.journal.leave_out(each.timer.id, error)
            if number % 1_000 == 0:
                await asyncio.sleep(
                    0
                )  # a million of them take seconds, and peers may ask meanwhile
    node.is_loaded = True
    uncertain = {each.timer.id for each in saved if not each.is_certain}
    peers = list(node.peers.values())
    known = await asyncio.gather(*(_ask(node, peer, uncertain, saved) for peer in peers))
    shown = {peer.address: ids for peer, ids in zip(peers, known, strict=True)}
    if telling := await _send_rest(node, saved, shown):
        await asyncio.wait(telling, timeout=_STARTING_PATIENCE_S)
    node.act()
    node.start_popping()


async def _ask(node: TimerNode, peer: Peer, uncertain: set[int], saved: list[Saved]) -> set[int]:
    """The timers that a peer knows; none if it cannot be reached."""
    while True:
        try:
            return await _ask_once(node, peer, uncertain, saved)
        except OutOfResources:  # until then this node can neither ask nor call
            await asyncio.sleep(_PAUSE_S)


async def _ask_once(
    node: TimerNode, peer: Peer, uncertain: set[int], saved: list[Saved]
) -> set[int]:
    try:
        life, heard = await _fetch(node, peer, uncertain)
        once, now_ms = (peer.address, life), node.now_ms()
        doubtful = [
            each.timer.id
            for each in saved
            if once in each.confirmed
            and each.timer.id not in heard
            and each.timer.forgotten_ms() <= now_ms
        ]
        await _give_up_unknown(node, peer, doubtful)
    except (OutOfResources, StoreError):
        raise
    except Exception as error:  # it must not keep this node from its start
        logger.log(
            # A new node has no old records.
            logging.WARNING if saved else logging.DEBUG,
            "%s cannot be asked, the journal counts: %s",
            peer.address,
            words_of(error),
            extra={"action": "peer_away", "peer": peer.address},
        )
        return set()
    return heard


async def _fetch(node: TimerNode, peer: Peer, uncertain: set[int]) -> tuple[str, set[int]]:
    """The timers of a peer that this node must keep; the life of its journal, and the ids."""
    heard: set[int] = set()
    cursor = 0

    def take(timer: Timer) -> None:
        heard.add(timer.id)
        mine = node.replica.get(timer.id)
        if mine is not None and timer.id in uncertain and mine.version == timer.version:
            node.replica.put_back(replace(mine, start_ms=timer.start_ms), node.now_ms())
            uncertain.discard(timer.id)
        node.receive(timer)

    while True:
        answer = await _patiently(peer, {"for": node.me, "cursor": str(cursor)})
        _, refused = node.intake.take(listed(answer, "records"), peer.address, take)
        heard.update(each.timer_id for each in refused if each.timer_id is not None)
        await node.saved()
        following = next_cursor(answer, cursor)
        if following is None:
            return name_of(answer.get("life")), heard
        cursor = following


async def _patiently(peer: Peer, params: dict[str, str]) -> dict[str, Any]:
    """Waits for a peer that is starting too; one that does not answer counts as dead."""
    deadline = asyncio.get_running_loop().time() + _STARTING_PATIENCE_S
    while True:
        answer = await peer.link.ask("GET", RECORDS_PATH, params=params, patience_s=_ANSWER_S)
        if not answer.get("starting"):
            return answer
        if asyncio.get_running_loop().time() > deadline:
            raise TimeoutError(f"{peer.address} has been starting for {_STARTING_PATIENCE_S:g} s")
        await asyncio.sleep(_PAUSE_S)  # it loads its journal, and does not signal the end


async def _give_up_unknown(node: TimerNode, peer: Peer, ids: list[int]) -> None:
    for at in range(0, len(ids), _AT_ONCE):
        asked = ids[at : at + _AT_ONCE]
        answer = await peer.link.ask("POST", KNOWN_PATH, {"ids": asked})
        for timer_id in set(asked) - {id_of(each) for each in listed(answer, "known")}:
            node.replica.give_up(timer_id, node.now_ms())
    node.act()


async def _send_rest(
    node: TimerNode, saved: list[Saved], shown: dict[str, set[int]]
) -> list[asyncio.Future[PeerAnswer | None]]:
    """Sends timers to keepers that did not show them; one that is away gets them when it is back.

    Keepers by the present list get them too: a timer may have been moved, and deleted there. Returns the
    answers to wait for: those of timers that would pop before.
    """
    soon_ms = node.now_ms() + _SOON_MS
    urgent = []
    for is_soon in (True, False):
        for number, each in enumerate(saved if node.peers else ()):
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)  # yields to other tasks: a million of them take seconds
            timer = node.replica.get(each.timer.id)
            if timer is None or (timer.due_ms <= soon_ms) is not is_soon:
                continue
            for address in {*timer.replicas, *node.replica.keepers(timer)}:
                if timer.id not in shown.get(address, ()) and (peer := node.peers.get(address)):
                    told = peer.send(timer)
                    if is_soon:
                        urgent.append(told)
    return urgent
