"""How a node that starts learns what happened while it was away, before it pops anything.

It loads its journal, then asks every peer for the timers that it is to keep: what they know is later than
what it remembers, and of two starts theirs counts if its own was reckoned by the wall clock. What a peer once
confirmed and now does not know is over, if it is so long past that the peer may have forgotten it: it popped
there, or was deleted. Peers that cannot be reached are dead for now; they ask when they come back. At last
the node tells the others what they did not show, and hears what they know better of it; what is due soon is
told first, and waited for.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import Any

from chronoline.callbacks.caller import words_of
from chronoline.runtime.gc_tuning import searched_seldom
from chronoline.timers.journal import Saved
from chronoline.timers.node import TimerNode
from chronoline.timers.peers import PROBLEMS, RECORDS_PATH, Peer, Short, Told

logger = logging.getLogger(__name__)

KNOWN_PATH = "/cluster/known"
_AT_ONCE = 500
_STARTING_PATIENCE_S = 30.0
_PAUSE_S = 0.1
_SOON_MS = 5_000
_ANSWER_S = 10.0
"""A dead node refuses at once; one that is busy with its own start is worth waiting for."""


async def start_from_journal(node: TimerNode) -> None:
    """Loads, asks, and lets the node pop."""
    with searched_seldom():  # all that is made here stays
        saved = await asyncio.to_thread(
            lambda: list(node.journal.load(now_ms=node.now_ms(), wall_ms=node.wall_ms()))
        )
        for number, each in enumerate(saved):
            node.load(each)
            if number % 1_000 == 0:
                await asyncio.sleep(
                    0
                )  # a million of them take seconds, and peers may ask meanwhile
    node.is_loaded = True
    uncertain = {each.timer.id for each in saved if not each.is_certain}
    peers = list(node.peers.values())
    known = await asyncio.gather(*(_ask(node, peer, uncertain, saved) for peer in peers))
    shown = {peer.address: ids for peer, ids in zip(peers, known, strict=True)}
    if telling := await _tell_the_rest(node, saved, shown):
        await asyncio.wait(telling, timeout=_STARTING_PATIENCE_S)
    node.act()
    node.start_popping()


async def _ask(node: TimerNode, peer: Peer, uncertain: set[int], saved: list[Saved]) -> set[int]:
    """What a peer knows; nothing if it cannot be asked."""
    while True:
        try:
            return await _ask_once(node, peer, uncertain, saved)
        except Short:  # until it is over this node can neither ask nor call
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
    except Short:
        raise
    except PROBLEMS as error:
        logger.log(
            # A new node has nothing to be mistaken about.
            logging.WARNING if saved else logging.DEBUG,
            "%s cannot be asked, the journal counts: %s",
            peer.address,
            words_of(error),
            extra={"action": "peer_away", "peer": peer.address},
        )
        return set()
    return heard


async def _fetch(node: TimerNode, peer: Peer, uncertain: set[int]) -> tuple[str, set[int]]:
    """Everything that a peer holds and this node is to keep; the life of its journal, and the ids."""
    heard: set[int] = set()
    cursor = 0
    while True:
        answer = await _patiently(peer, {"for": node.me, "cursor": str(cursor)})
        now_ms = node.now_ms()
        timers, refused = node.intake.read(answer["records"], peer.address)
        heard.update(each.timer_id for each in refused if each.timer_id is not None)
        for timer in timers:
            heard.add(timer.id)
            mine = node.replica.get(timer.id)
            if mine is not None and timer.id in uncertain and mine.version == timer.version:
                node.replica.put_back(replace(mine, start_ms=timer.start_ms), now_ms)
                uncertain.discard(timer.id)
            node.receive(timer)
        await node.saved()
        if answer["cursor"] is None:
            return answer["life"], heard
        cursor = answer["cursor"]


async def _patiently(peer: Peer, params: dict[str, str]) -> Any:
    """A peer that is starting too will answer soon; one that does not answer at all is dead for now."""
    deadline = asyncio.get_running_loop().time() + _STARTING_PATIENCE_S
    while True:
        answer = await peer.link.ask("GET", RECORDS_PATH, params=params, patience_s=_ANSWER_S)
        if not answer.get("starting"):
            return answer
        if asyncio.get_running_loop().time() > deadline:
            raise TimeoutError(f"{peer.address} has been starting for {_STARTING_PATIENCE_S:g} s")
        await asyncio.sleep(_PAUSE_S)  # it loads its journal, and says nothing when that is done


async def _give_up_unknown(node: TimerNode, peer: Peer, ids: list[int]) -> None:
    for at in range(0, len(ids), _AT_ONCE):
        asked = ids[at : at + _AT_ONCE]
        answer = await peer.link.ask("POST", KNOWN_PATH, {"ids": asked})
        for timer_id in set(asked) - set(answer["known"]):
            node.replica.give_up(timer_id, node.now_ms())
    node.act()


async def _tell_the_rest(
    node: TimerNode, saved: list[Saved], shown: dict[str, set[int]]
) -> list[asyncio.Future[Told | None]]:
    """Tells those that are to keep a timer and did not show it; one that is away hears it when it is back.

    Those of the present list too: it may have been moved, and deleted there. Answers what to wait for: what
    would be popped before they have said what they know.
    """
    soon_ms = node.now_ms() + _SOON_MS
    urgent = []
    for is_soon in (True, False):
        for number, each in enumerate(saved if node.peers else ()):
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)  # others have their turn: a million of them take seconds
            timer = node.replica.get(each.timer.id)
            if timer is None or (timer.due_ms <= soon_ms) is not is_soon:
                continue
            for address in {*timer.replicas, *node.replica.keepers(timer)}:
                if timer.id not in shown.get(address, ()) and (peer := node.peers.get(address)):
                    told = peer.tell(timer)
                    if is_soon:
                        urgent.append(told)
    return urgent
