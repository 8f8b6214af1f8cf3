"""Requests of other nodes: records, the calls that they cede, and a resync."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from http import HTTPStatus
from typing import Any

from aiohttp import web

from chronoline.core.errors import InvalidInput
from chronoline.timers.http.responses import (
    Handlers,
    HttpRefusal,
    answer_json,
    check_started,
    cursor_in,
    read_object,
)
from chronoline.timers.node import TimerNode
from chronoline.timers.peer_records import RefusedRecord
from chronoline.timers.peers import MOST_BYTES, MOST_CHARACTERS, RECORDS_PATH
from chronoline.timers.queue_balancer import CEDED_PATH
from chronoline.timers.records import id_of, name_of, to_record
from chronoline.timers.resync import page_of_offers
from chronoline.timers.startup_sync import KNOWN_PATH
from chronoline.timers.timer import MOST_NUMBER, Lives, Timer, Version
from chronoline.timers.turn_asker import TURNS_PATH, answer_turns

_PAGE = 300
_BACK_PATIENCE_S = 1.0
_MOST_LIVES = 100
"""More than the nodes that can keep a timer."""


class NodeHandlers:
    """The nodes of a cluster exchange their records by these."""

    def __init__(self, node: TimerNode) -> None:
        self._node = node
        # The ids of a walk, for a node that asks page by page.
        self._walks: dict[tuple[str, str], list[int]] = {}

    def of_all(self) -> Handlers:
        return {"GET": self._offers}

    def by_path(self) -> dict[str, Handlers]:
        return {
            RECORDS_PATH: {"POST": self._take_records, "GET": self._records},
            KNOWN_PATH: {"POST": self._known},
            CEDED_PATH: {"POST": self._take_ceded},
            TURNS_PATH: {"POST": self._answer_turns},
            "/cluster/back": {"POST": self._back},
            "/timers/references": {"DELETE": self._dealt_with},
        }

    async def _take_records(self, request: web.BaseRequest) -> web.Response:
        asked = await read_object(request, MOST_BYTES)
        check_started(self._node)  # the journal would overwrite it
        node = self._node
        now_ms = node.now_ms()
        records, sender = _list(asked, "records"), str(asked.get("from", ""))
        confirmed = _list({"confirmed": [], **asked}, "confirmed")
        taken, refused = node.intake.take(records, sender, node.receive)
        node.hear_of(sender, pops=asked.get("pops", True) is True)
        newer, late = _newer(taken, now_ms)
        refused += late
        self._take_confirmed(confirmed, sender)
        await node.saved()
        told: dict[str, Any] = {"life": node.journal.life, "newer": newer}
        if refused:
            told["refused"] = [{"id": each.timer_id, "reason": each.reason} for each in refused]
        return answer_json(told)

    def _take_confirmed(self, entries: list[Any], sender: str) -> None:
        """Notes which nodes have which timers; an entry that is wrong is left out."""
        wrong: list[RefusedRecord] = []
        for entry in entries:
            try:
                timer_id, version, lives = _confirmed(entry)
            except InvalidInput as error:
                wrong.append(RefusedRecord(None, str(error)))
            else:
                self._node.confirm(timer_id, version, lives)
        if wrong:
            self._node.intake.log_refused(wrong, sender)

    async def _records(self, request: web.BaseRequest) -> web.Response:
        """A page of the timers that concern a node, bounded by the number that is looked at and by size."""
        node = self._node
        told: dict[str, Any] = {"life": node.journal.life, "records": [], "cursor": None}
        if not node.is_loaded:
            return answer_json({**told, "starting": True})
        asker, cursor = request.query.get("for", ""), cursor_in(request)
        ids = self._walk("records", asker, cursor)
        node.hear_of(asker, pops=True)
        now_ms = node.now_ms()
        end, characters = min(cursor + _PAGE, len(ids)), 0
        while cursor < end and characters < MOST_CHARACTERS:
            timer = node.replica.get(ids[cursor])
            if timer is not None and node.replica.concerns(timer, asker):
                told["records"].append(to_record(timer, now_ms))
                characters += timer.characters
            cursor += 1
        if cursor < len(ids):
            told["cursor"] = cursor
        else:
            self._walks.pop(("records", asker), None)
        return answer_json(told)

    def _walk(self, what: str, asker: str, cursor: int) -> list[int]:
        """The ids at the first page of the asker's walk."""
        if cursor == 0 or (what, asker) not in self._walks:
            if asker not in self._node.peers:
                raise HttpRefusal(
                    HTTPStatus.NOT_FOUND, f"{asker[:200]!r} is no other node of this cluster"
                )
            self._walks[what, asker] = self._node.replica.ids()
        return self._walks[what, asker]

    async def _known(self, request: web.BaseRequest) -> web.Response:
        ids = _list(await read_object(request, MOST_BYTES), "ids")
        check_started(self._node)
        if not all(type(each) is int for each in ids):
            raise InvalidInput("ids must be numbers")
        known = [each for each in ids if self._node.replica.get(each) is not None]
        return answer_json({"known": known})

    async def _back(self, request: web.BaseRequest) -> web.Response:
        asked = await read_object(request, MOST_BYTES)
        if peer := self._node.peers.get(str(asked.get("from", ""))):
            with suppress(TimeoutError):  # the caller does not wait longer
                async with asyncio.timeout(_BACK_PATIENCE_S):
                    await peer.retry()
        return answer_json({})

    async def _answer_turns(self, request: web.BaseRequest) -> web.Response:
        """A later replica asks whether this node makes calls; while this one stops or starts it does not."""
        asked = await read_object(request, MOST_BYTES)
        node, sender, turns = self._node, str(asked.get("from", "")), _list(asked, "turns")
        if not node.is_ready:
            turns = []
        answer = answer_turns(node.replica, sender, turns, node.now_ms())
        node.act()  # the others hear of the calls, too
        return answer_json(answer)

    async def _take_ceded(self, request: web.BaseRequest) -> web.Response:
        """Another node has more calls queued for a host than this one, and cedes some of them."""
        asked = await read_object(request, MOST_BYTES)
        check_started(self._node)
        node = self._node
        host, port, waiting = asked.get("host"), asked.get("port"), asked.get("waiting")
        if type(host) is not str or type(port) is not int or type(waiting) is not int:
            raise InvalidInput("host, port and waiting are needed: a text and two numbers")
        sender = str(asked.get("from", ""))
        here = node.waiting_at((host, port))
        received, _ = node.intake.take(_list(asked, "records"), sender, node.receive)
        timers = [timer for timer, _ in received]
        taken = node.take_ceded((host, port), waiting, timers) if timers else []
        return answer_json({"waiting": here, "taken": taken})

    async def _offers(self, request: web.BaseRequest) -> web.Response:
        asker = request.query.get("node-for-replicas", "")
        view = request.query.get("cluster-view-id", "")
        if not asker or not view:
            raise InvalidInput(
                "node-for-replicas and cluster-view-id are needed: nodes ask here. /v1/timers lists timers"
            )
        ours = self._node.replica.membership.view
        if view != ours:
            raise InvalidInput(
                f"the list of nodes here is {ours}, not {view[:64]}: reload it on every node"
            )
        check_started(self._node)  # its offers are not complete yet
        cursor = cursor_in(request)
        page = page_of_offers(self._node, asker, self._walk("offers", asker, cursor), cursor)
        if page["cursor"] is None:
            self._walks.pop(("offers", asker), None)
            return answer_json(page)
        headers = {"Content-Range": str(len(page["timers"]))}
        return answer_json(page, status=HTTPStatus.PARTIAL_CONTENT, headers=headers)

    async def _dealt_with(self, request: web.BaseRequest) -> web.Response:
        entries = _list(await read_object(request, MOST_BYTES), "IDs")
        check_started(self._node)
        wrong: list[RefusedRecord] = []
        for entry in entries:
            try:
                timer_id, level = _reference(entry)
            except InvalidInput as error:
                wrong.append(RefusedRecord(None, str(error)))
            else:
                self._node.replica.known_by(timer_id, level, self._node.now_ms())
        if wrong:
            self._node.intake.log_refused(wrong, "a node that resyncs")
        self._node.act()
        await self._node.saved()
        return web.Response(status=HTTPStatus.ACCEPTED)


def _list(asked: dict[str, Any], name: str) -> list[Any]:
    value = asked.get(name)
    if not isinstance(value, list):
        raise InvalidInput(f"{name} must be a list")
    return value


def _newer(
    taken: list[tuple[Timer, Timer]], now_ms: int
) -> tuple[list[dict[str, Any]], list[RefusedRecord]]:
    """The later records that this node holds, and refusals of those that do not fit into the answer."""
    newer: list[dict[str, Any]] = []
    late: list[RefusedRecord] = []
    characters = 0
    for timer, held in taken:
        if held.progress <= timer.progress:
            continue
        if characters < MOST_CHARACTERS:
            newer.append(to_record(held, now_ms))
            characters += held.characters
        else:
            late.append(RefusedRecord(timer.id, "the answer has no room for its later record"))
    return newer, late


def _reference(entry: Any) -> tuple[int, int]:
    if isinstance(entry, dict):
        timer_id, level = id_of(entry.get("ID")), entry.get("ReplicaIndex")
        if timer_id is not None and type(level) is int and level >= 0:
            return timer_id, level
    raise InvalidInput("each of IDs needs ID and ReplicaIndex, both numbers")


def _confirmed(entry: Any) -> tuple[int, Version, Lives]:
    try:
        timer_id, number, giver, lives = entry
        if id_of(timer_id) is None or type(number) is not int or not 0 <= number <= MOST_NUMBER:
            raise ValueError
        if type(lives) is not list or len(lives) > _MOST_LIVES:
            raise ValueError
        names = tuple((name_of(node), name_of(life)) for node, life in lives)
        return timer_id, Version(number, name_of(giver)), names
    except (TypeError, ValueError):
        raise InvalidInput(
            "confirmed must be lists of a timer, its version and who has it"
        ) from None
