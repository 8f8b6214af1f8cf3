"""Questions about turns, sent to other nodes: one request at a time to each, with all that wait by then.

The answer waits for no disk. A node that cannot be reached, does not answer in time, or is of an earlier
release makes no call, as far as this node knows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping
from itertools import islice
from typing import Any

from chronoline.callbacks.caller import words_of
from chronoline.core.errors import InvalidInput
from chronoline.timers.peer_records import PeerRecords
from chronoline.timers.peers import MOST_CHARACTERS, Peer, listed
from chronoline.timers.records import id_of, name_of, to_record
from chronoline.timers.replica import Replica
from chronoline.timers.timer import MOST_MS, MOST_NUMBER, MOST_STEPS, Timer, Version
from chronoline.timers.turns import AskedTurn

logger = logging.getLogger(__name__)

TURNS_PATH = "/cluster/turns"
_MOST_TURNS = 200
"""The turns of one request. The records of an answer are bounded, as others are, by their characters."""


class TurnAsker:
    """Asks the nodes that come before this one. Owned by the event loop."""

    def __init__(
        self,
        replica: Replica,
        peers: Mapping[str, Peer],
        intake: PeerRecords,
        *,
        now_ms: Callable[[], int],
        receive: Callable[[Timer], object],
        start: Callable[[Coroutine[Any, Any, None]], object],
        answered: Callable[[], None],
    ) -> None:
        """`start` runs a task; `answered` is called when turns may have come."""
        self._replica = replica
        self._peers = peers
        self._intake = intake
        self._now_ms = now_ms
        self._receive = receive
        self._start = start
        self._answered = answered
        self._waiting: dict[str, dict[int, AskedTurn]] = {}
        self._asking: set[str] = set()

    def ask(self) -> None:
        """Sends the questions of the replica."""
        for node, turns in self._replica.take_questions().items():
            self._waiting.setdefault(node, {}).update((turn.timer_id, turn) for turn in turns)
            if node not in self._asking:
                self._asking.add(node)
                self._start(self._ask_all(node))

    async def _ask_all(self, node: str) -> None:
        try:
            while waiting := self._waiting.get(node):
                turns = [waiting.pop(timer_id) for timer_id in list(islice(waiting, _MOST_TURNS))]
                waits = await self._ask(node, turns)
                for turn in turns:
                    self._replica.turn_answered(
                        node, turn, waits.get(turn.timer_id), self._now_ms()
                    )
                self._answered()
        finally:
            self._asking.discard(node)
            self._waiting.pop(node, None)

    async def _ask(self, node: str, turns: list[AskedTurn]) -> dict[int, int]:
        """How long the node asks to wait for each turn. Its later records are taken."""
        peer = self._peers.get(node)
        if peer is None:
            return {}
        try:
            body = {"from": self._replica.me, "turns": list(map(_to_json, turns))}
            answer = await peer.link.ask("POST", TURNS_PATH, body)
            waits = dict(map(_wait, listed(answer, "waits")))
            self._intake.take(listed(answer, "newer"), node, self._receive)
        except Exception as error:  # whatever it answers
            logger.debug("%s was asked for turns: %s", node, words_of(error))
            return {}
        return waits


def answer_turns(
    replica: Replica, asker: str, asked: list[Any], now_ms: int
) -> dict[str, list[Any]]:
    """The answer to a node that asks; entries that are wrong are left out."""
    newer: list[dict[str, Any]] = []
    waits: list[tuple[int, int]] = []
    characters = 0
    for entry in asked[:_MOST_TURNS]:
        try:
            turn = _turn(entry)
        except (TypeError, ValueError):
            continue
        answer = replica.answer_turn(asker, turn, now_ms)
        if isinstance(answer, Timer) and characters < MOST_CHARACTERS:
            characters += answer.characters
            newer.append(to_record(answer, now_ms))
        elif isinstance(answer, Timer):
            waits.append((turn.timer_id, 0))  # it asks again
        elif answer is not None:
            waits.append((turn.timer_id, answer))
    return {"newer": newer, "waits": waits}


def _to_json(turn: AskedTurn) -> list[Any]:
    version, *numbers = turn.progress
    return [turn.timer_id, version.number, version.giver, *numbers]


def _turn(entry: Any) -> AskedTurn:
    """Raises `TypeError` or `ValueError` for an entry that is not of `_to_json`."""
    timer_id, number, giver, popped, attempts, renewed, step = entry
    for value in (number, popped, attempts, renewed, step):
        if type(value) is not int or not 0 <= value <= max(MOST_NUMBER, MOST_STEPS):
            raise ValueError
    if id_of(timer_id) is None:
        raise ValueError
    return AskedTurn(timer_id, (Version(number, name_of(giver)), popped, attempts, renewed, step))


def _wait(entry: Any) -> tuple[int, int]:
    if type(entry) is list and len(entry) == len(("id", "wait")):
        timer_id, wait_ms = id_of(entry[0]), entry[1]
        if timer_id is not None and type(wait_ms) is int and 0 <= wait_ms <= MOST_MS:
            return timer_id, wait_ms
    raise InvalidInput("its answer has a wait that is not a timer and a number")
