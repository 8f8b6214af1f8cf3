"""Peers: the other nodes as one node sees them. Records go to each in batches, one request at a time.

Records that come while a request is under way go with the next one; of a timer only the latest. A node that
does not answer is away: the ids of the records that it misses are remembered, nothing waits for it, and it is
tried again until it answers and has everything.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import aiohttp

from chronoline.callbacks.caller import in_pieces, words_of
from chronoline.core.errors import InvalidInput
from chronoline.runtime.backoff import Backoff, Waits
from chronoline.runtime.descriptors import SHORTAGES, shortage_of
from chronoline.runtime.json_bounds import check_json_bounds
from chronoline.timers.peer_records import PeerRecords, shown
from chronoline.timers.records import id_of, name_of, to_record
from chronoline.timers.timer import Lives, Timer

logger = logging.getLogger(__name__)

RECORDS_PATH = "/cluster/records"
MOST_RECORDS = 100
"""A batch that the receiving node takes in within a few milliseconds."""
MOST_BYTES = 64 * 1024 * 1024
"""The largest request of a node, and the largest answer."""
MOST_CHARACTERS = 4 * 1024 * 1024
"""Of the records of one message. A character may become twelve in JSON, which is less than `MOST_BYTES`."""
_CONFIRM_WITHIN_S = 0.25
"""How long confirmations wait for a request that they can join."""
_CANCEL_AGAIN_S = 0.1
_LOOK_AFTER_S = 2.0
"""After this long without a request a node is probed."""
_REFUSED_AGAIN_S = 10.0
"""How long until a refused record is sent again: clocks may have been set meanwhile."""
_FEW_MISSED = 10_000
_MOST_SHOWN = 200
_BACKOFF = Backoff(0.1, 1.0)
_SHORT_REST_S = 0.1
_to_json = json.JSONEncoder(separators=(",", ":")).encode
PROBLEMS = (aiohttp.ClientError, OSError, TimeoutError, InvalidInput, ValueError, KeyError)


@dataclass(frozen=True, slots=True)
class PeerAnswer:
    """The answer of a node to a record: the life of its journal, and its own record if that is later."""

    # Empty without an answer: it may have taken the record.
    life: str
    newer: Timer | None
    # The reason if it refused the record, or if it has a later one that was refused here.
    problem: str = ""


class PeerRefused(OSError):
    """A node refused a request: nothing was changed."""


class OutOfResources(OSError):
    """This node lacks a descriptor, memory, port or thread for a request, which was not sent."""


class Link:
    """Requests to one node, with the token of the cluster."""

    def __init__(
        self, address: str, session: aiohttp.ClientSession, *, scheme: str, timeout_ms: int
    ) -> None:
        self.address = address
        self._session = session
        self._base = f"{scheme}://{address}"
        self._timeout = aiohttp.ClientTimeout(total=timeout_ms / 1000)

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        params: Mapping[str, str] | None = None,
        patience_s: float | None = None,
    ) -> dict[str, Any]:
        """Sends a request and returns the object of its answer; raises for any other.

        `patience_s` bounds it.

        While this node is short of resources it tries again; after that it raises `OutOfResources`.
        """
        timeout = self._timeout
        if patience_s is not None:
            timeout = aiohttp.ClientTimeout(total=patience_s)
        loop = asyncio.get_running_loop()
        give_up_s = loop.time() + (timeout.total or 0)
        encoded = None if body is None else _to_json(body).encode()
        while True:
            try:
                return await self._ask(method, path, encoded, params, timeout)
            except (aiohttp.ClientError, OSError, MemoryError, RuntimeError) as error:
                resource = shortage_of(error, host=self.address.rpartition(":")[0].strip("[]"))
                if resource is None:
                    raise
                SHORTAGES.note(resource, f"the records for {self.address}")
                if loop.time() + _SHORT_REST_S > give_up_s:
                    raise OutOfResources(f"this node is short of {resource}") from None
            await asyncio.sleep(_SHORT_REST_S)  # nothing signals the end of the shortage

    async def _ask(
        self,
        method: str,
        path: str,
        body: bytes | None,
        params: Mapping[str, str] | None,
        timeout: aiohttp.ClientTimeout,
    ) -> dict[str, Any]:
        data = None if body is None else in_pieces(body)
        try:
            async with self._session.request(
                method, self._base + path, data=data, params=params, timeout=timeout
            ) as response:
                text, status = await _read(response), response.status
        except aiohttp.ClientConnectorCertificateError as error:
            raise PeerRefused(
                f"its certificate is of none that replication.ca names, or is for another: {error}"
            ) from None
        if status == HTTPStatus.UNAUTHORIZED:
            raise PeerRefused("replication.token is not one of its tokens")
        if status >= HTTPStatus.BAD_REQUEST:
            error_type = PeerRefused if status < HTTPStatus.INTERNAL_SERVER_ERROR else OSError
            raise error_type(
                f"it answered {status}: {shown(text[:_MOST_SHOWN].decode(errors='replace'))}"
            )
        return _object(text) if text else {}


async def _read(response: aiohttp.ClientResponse) -> bytes:
    """The body. Raises `OSError` for one that is compressed or too large, before it is in memory."""
    if response.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise OSError("its answer is compressed")
    body = bytearray()
    async for piece in response.content.iter_any():
        body += piece
        if len(body) > MOST_BYTES:
            raise OSError(f"its answer is larger than {MOST_BYTES} bytes")
    return bytes(body)


def _object(text: bytes) -> dict[str, Any]:
    check_json_bounds(text)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"its answer is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidInput("its answer is not an object")
    return value


def listed(answer: Mapping[str, Any], name: str) -> list[Any]:
    """A list of an answer; empty if the answer has none. Raises `InvalidInput` for another value."""
    value = answer.get(name, [])
    if not isinstance(value, list):
        raise InvalidInput(f"its answer has no list as {name}")
    return value


def next_cursor(answer: Mapping[str, Any], cursor: int) -> int | None:
    """Where the next page begins; None after the last one. Raises `InvalidInput` if it does not advance."""
    following = answer.get("cursor")
    if following is None:
        return None
    if type(following) is not int or following <= cursor:
        raise InvalidInput(f"its answer to page {cursor} is followed by {following!r:.100}")
    return following


class Peer:
    """One other node."""

    def __init__(
        self,
        link: Link,
        *,
        me: str,
        now_ms: Callable[[], int],
        get: Callable[[int], Timer | None],
        heard: Callable[[Timer], object],
        intake: PeerRecords,
        is_up: Callable[[], bool] = lambda: True,
    ) -> None:
        """`get` returns the present record of a timer; `heard` takes a later record that the node has.

        It is not probed before `is_up` says that this node has started.
        """
        self.link = link
        self.address = link.address
        self._me = me
        self._now_ms = now_ms
        self._get = get
        self._heard = heard
        self._is_up = is_up
        self._intake = intake
        self._waiting: dict[int, tuple[Timer, list[asyncio.Future[PeerAnswer | None]]]] = {}
        self._missed: set[int] = set()
        self._refused: set[int] = set()
        # Above this number, ids that are forgotten here are removed.
        self._look_through_at = _FEW_MISSED
        self._confirmations: list[list[Any]] = []
        self._wake = asyncio.Event()
        self._back = asyncio.Event()
        self._reached = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        # Whether this node pops, and whether the other needs a request even without records.
        self._pops = True
        self._is_news = False
        self.is_away = False
        self.is_short = False
        """Whether it counts as away only because this node lacks descriptors or the like."""
        self.has_left = False
        """Whether it announced that it stops."""
        self._is_stopped = False
        self._task = asyncio.create_task(self._run(), name=f"peer {link.address}")

    @property
    def behind(self) -> int:
        """The number of records that it does not have yet."""
        return len(self._waiting) + len(self._missed) + len(self._refused)

    def owes(self, timer_id: int) -> bool:
        """Whether it lacks the record of a timer."""
        return timer_id in self._missed or timer_id in self._waiting or timer_id in self._refused

    def send(self, timer: Timer) -> asyncio.Future[PeerAnswer | None]:
        """Sends a record with the next batch; returns None if the node is away, and sends it when it is back.

        A node that was reached and did not answer may have it: that is a `PeerAnswer` without a life.
        """
        told: asyncio.Future[PeerAnswer | None] = asyncio.get_running_loop().create_future()
        if self.is_away:
            self._missed.add(timer.id)
            if len(self._missed) > self._look_through_at:
                self._missed = {each for each in self._missed if self._get(each) is not None}
                self._look_through_at = max(_FEW_MISSED, 2 * len(self._missed))
            told.set_result(None)
        else:
            waiting, futures = self._waiting.pop(timer.id, (timer, []))
            latest = timer if timer.progress >= waiting.progress else waiting
            self._waiting[timer.id] = (latest, [*futures, told])
            self._idle.clear()
            self._wake.set()
        return told

    def confirm(self, timer: Timer, lives: Lives) -> None:
        """Sends, eventually, which nodes have a timer that it has; losing this is harmless."""
        if not self.is_away and len(self._confirmations) < MOST_RECORDS:
            self._confirmations.append([timer.id, *timer.version, lives])
            if len(self._confirmations) == 1:
                asyncio.get_running_loop().call_later(_CONFIRM_WITHIN_S, self._confirm_now)
            elif len(self._confirmations) == MOST_RECORDS // 2:
                self._confirm_now()

    def _confirm_now(self) -> None:
        """Sends confirmations that found no request to join in time."""
        if self._confirmations:
            self._is_news = True
            self._wake.set()

    def seen(self) -> None:
        """Notes a request from it: if it was away, it is worth trying now."""
        self.has_left = False
        if self.is_away:
            self._back.set()

    async def retry(self) -> None:
        """Notes that it is back: it gets at once what it missed, and what is being sent."""
        if self.is_away:
            self.seen()
            await self._reached.wait()
        else:
            await self._idle.wait()

    def leave(self) -> None:
        """Announces that this node stops popping, so that it does not wait for this one."""
        self._pops = False
        self._is_news = True
        self._idle.clear()
        self._wake.set()

    async def stop(self, *, patience_s: float = 0.0) -> None:
        """Sends the pending records, within a time-out."""
        if not self.is_away:
            with suppress(TimeoutError):
                async with asyncio.timeout(patience_s):
                    await self._idle.wait()
        self._is_stopped = True
        while not self._task.done():
            # Repeatedly: a cancellation is lost if the awaited task ends in the same moment.
            self._task.cancel()
            await asyncio.wait([self._task], timeout=_CANCEL_AGAIN_S)
        self.is_away = True
        self._give_up_waiting()

    async def _run(self) -> None:
        pauses = Waits(_BACKOFF)
        while not self._is_stopped:
            try:
                await self._turn(pauses)
            except Exception as error:
                logger.exception("telling %s failed", self.address)
                self._lost(error)

    async def _turn(self, pauses: Waits) -> None:
        """Sends pending records, or probes a peer that is away after a pause."""
        if not self.is_away:
            try:
                async with asyncio.timeout(_LOOK_AFTER_S):
                    await self._wake.wait()
            except TimeoutError:
                self._is_news = self._is_up()
            self._wake.clear()
            await self._send_waiting()
            if not self._waiting:
                self._idle.set()
            pauses.reset()
            return
        with suppress(TimeoutError):
            await asyncio.wait_for(self._back.wait(), pauses.next())
        self._back.clear()
        if await self._send_missed():
            self._idle.set()
            self._reached.set()
            told = {"action": "peer_back", "peer": self.address}
            if not self.is_short:
                logger.info("%s is back", self.address, extra=told)
            self.is_short = False

    async def _send_waiting(self) -> None:
        while (self._waiting or self._is_news) and not self.is_away:
            ids = self._some(self._waiting, lambda timer_id: self._waiting[timer_id][0])
            batch = [self._waiting.pop(timer_id) for timer_id in ids]
            told: dict[int, PeerAnswer] = {}
            otherwise: PeerAnswer | None = PeerAnswer("", None)
            try:
                told = await self._send([timer for timer, _ in batch])
            except Exception as error:  # whatever it answers
                if isinstance(error, aiohttp.ClientConnectorError | PeerRefused | OutOfResources):
                    otherwise = None  # it was not reached, or refused
                self._lost(error)
                self._missed.update(ids)
            finally:  # also when cancelled: no caller waits forever
                for timer, futures in batch:
                    _answer(futures, told.get(timer.id, otherwise))

    def _lost(self, error: Exception) -> None:
        self.is_away = True
        self._reached.clear()
        self._note_away(error)
        self._give_up_waiting()

    def _note_away(self, error: Exception) -> None:
        self.is_short = isinstance(error, OutOfResources)
        if self.is_short:
            return  # which says nothing about the other node
        logger.log(
            logging.INFO if self.has_left or not self._pops else logging.WARNING,
            "%s is away, it is tried again: %s",
            self.address,
            words_of(error),
            extra={"action": "peer_away", "peer": self.address},
        )

    def _give_up_waiting(self) -> None:
        for timer, futures in self._waiting.values():
            self._missed.add(timer.id)
            _answer(futures, None)
        self._waiting.clear()
        self._confirmations.clear()

    async def _send_missed(self) -> bool:
        """Whether it is back and has everything. It is probed first."""
        ids: list[int] = []
        while True:
            timers = [timer for timer_id in ids if (timer := self._get(timer_id)) is not None]
            self._missed.difference_update(ids)
            try:
                await self._send(timers)
            except Exception as error:  # whatever it answers
                if self.is_short:
                    self._note_away(error)
                logger.debug("%s is still away: %s", self.address, error)
                self._missed.update(ids)
                return False
            if not self._missed:
                self.is_away = False
                return True
            ids = self._some(self._missed, self._get)

    @staticmethod
    def _some(ids: Iterable[int], find: Callable[[int], Timer | None]) -> list[int]:
        """The next batch, bounded by records and characters."""
        some: list[int] = []
        characters = 0
        for timer_id in ids:
            timer = find(timer_id)
            characters += 0 if timer is None else timer.characters
            if some and characters > MOST_CHARACTERS:
                break
            some.append(timer_id)
            if len(some) == MOST_RECORDS:
                break
        return some

    async def _send(self, timers: Iterable[Timer]) -> dict[int, PeerAnswer]:
        now_ms = self._now_ms()
        records = [to_record(timer, now_ms) for timer in timers]
        confirmed, self._confirmations = self._confirmations, []
        self._is_news = False
        body = {
            "from": self._me,
            "pops": self._pops,
            "records": records,
            "confirmed": confirmed,
        }
        answer = await self.link.ask("POST", RECORDS_PATH, body)
        life, newer = name_of(answer.get("life")), listed(answer, "newer")
        taken, unread = self._intake.take(newer, self.address, self._heard)
        refused = dict(map(_refusal, listed(answer, "refused")))
        self._resend_later(refused)
        problems = refused | {
            each.timer_id: f"its record is later, and was refused: {each.reason}" for each in unread
        }
        later = {timer.id: timer for timer, _ in taken}
        return {
            timer_id: PeerAnswer("", None, problem)
            if (problem := problems.get(timer_id))
            else PeerAnswer(life, later.get(timer_id))
            for timer_id in (record["id"] for record in records)
        }

    def _resend_later(self, refused: Mapping[int | None, str]) -> None:
        if not refused:
            return
        if not self._refused:
            asyncio.get_running_loop().call_later(_REFUSED_AGAIN_S, self._resend_refused)
        self._refused.update(each for each in refused if each is not None)
        logger.error(
            "%s: %s (%d records)",
            self.address,
            next(iter(refused.values())),
            len(refused),
            extra={"action": "peer_refused", "peer": self.address, "records": len(refused)},
        )

    def _resend_refused(self) -> None:
        refused, self._refused = self._refused, set()
        for timer_id in () if self._is_stopped else refused:
            if (timer := self._get(timer_id)) is not None:
                self.send(timer)


def _refusal(entry: Any) -> tuple[int | None, str]:
    """A record that was not taken, and the reason."""
    if not isinstance(entry, dict):
        raise InvalidInput("its answer has a refusal that is no object")
    timer_id, reason = entry.get("id"), entry.get("reason")
    return id_of(timer_id), f"it refused the record: {shown(reason)}"


def _answer(futures: Iterable[asyncio.Future[PeerAnswer | None]], told: PeerAnswer | None) -> None:
    for future in futures:
        if not future.done():
            future.set_result(told)
