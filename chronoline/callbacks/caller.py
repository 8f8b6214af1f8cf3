"""The HTTP client of callbacks."""

from __future__ import annotations

import asyncio
import io
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from yarl import URL

from chronoline.callbacks.address_guard import AddressGuard, not_allowed
from chronoline.callbacks.resolver import Lookups
from chronoline.core.callback_url import CallbackUrl, parse_callback_url, shown_url
from chronoline.core.errors import InvalidInput
from chronoline.runtime.descriptors import SHORTAGES, shortage_of
from chronoline.runtime.log_summary import LogSummary
from chronoline.runtime.service import AsyncService
from chronoline.runtime.traces import (
    NO_TRACE,
    Attributes,
    TraceContext,
    TraceStep,
    current_context,
    fail,
    span_of,
    tracer,
)

if TYPE_CHECKING:
    from aiohttp import ClientSession

logger = logging.getLogger(__name__)
_summary = LogSummary(logger)

_SUCCESS, _REDIRECT = 2, 3
"""The first digits of a status."""

_MOST_WORDS = 500
_PIECE_BYTES = 64 * 1024
_REST_S = 0.5
"""The wait before the next attempt of a call that failed for a shortage of this process."""
_STALL_S = 0.5
"""A timer that comes later than this shows that the process stood still."""

Lookup = Callable[[str, int], Awaitable[list[str]]]
"""The addresses of a host and a port, in the order to try them."""

Endpoint = tuple[str, int]
"""A host and a port. Each has its own limit of calls."""


class Verdict(StrEnum):
    """How a call ended; the word is the label of a metric."""

    succeeded = "succeeded"
    answered_badly = "answered_badly"
    redirected = "redirected"
    timed_out = "timed_out"
    unreachable = "unreachable"
    not_allowed = "not_allowed"
    unknown_host = "unknown_host"
    failed = "failed"
    """The URL cannot be called, or the call raised an error that is none of the others."""
    no_turn = "no_turn"
    """The call was not begun: too many others were in progress, it was no longer wanted, or the node was
    short of descriptors, memory, ports or threads."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a call."""

    verdict: Verdict
    reason: str

    @property
    def succeeded(self) -> bool:
        return self.verdict is Verdict.succeeded


class CallOrigin(NamedTuple):
    """The message or the timer for which a call is made."""

    name: str
    """The topic, or `timers`."""
    id: str
    context: TraceContext = NO_TRACE
    """The trace of its sender."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallLimits:
    """The most calls at a time, and the longest time for one."""

    for_each_host: int = 64
    in_all: int = 1_000
    timeout_ms: int = 2_000


class Caller(AsyncService):
    """Makes calls, within its limits."""

    def __init__(
        self,
        guard: AddressGuard,
        *,
        limits: CallLimits | None = None,
        lookup: Lookup | None = None,
        rest_s: float = _REST_S,
    ) -> None:
        """Without a `lookup`, names are looked up by the system."""
        self._guard = guard
        self.limits = limits or CallLimits()
        self._lookup = lookup or Lookups()
        self._rest_s = rest_s
        self._hosts: dict[tuple[str, int], _HostTurns] = {}
        self._all = asyncio.Semaphore(self.limits.in_all)
        self._session: ClientSession | None = None

    def refusal(self, uri: str) -> str | None:
        """The reason why a URI with a forbidden address is never called. A name is looked up at each call."""
        return self._guard.refusal(uri)

    async def _start(self) -> None:
        """Does nothing: many nodes call no URL, and aiohttp takes a fifth of the start of a broker."""

    async def open(self) -> ClientSession:
        """Makes the first call fast: it would wait until aiohttp is imported. May be called twice."""
        if self._session is None:
            await asyncio.to_thread(import_module, "aiohttp")
            if self._session is None:
                self._session = self._new_session()
        return self._session

    def _new_session(self) -> ClientSession:
        import aiohttp  # noqa: PLC0415 - see `_start`

        if not self._runs:
            raise RuntimeError("the caller is stopped")
        # The limits are kept here, by the name that is called: the pool has none.
        connector = aiohttp.TCPConnector(limit=0, use_dns_cache=False, keepalive_timeout=15)
        return aiohttp.ClientSession(
            connector=connector,
            timeout=aiohttp.ClientTimeout(total=None),  # `post` has its own
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("User-Agent", "Accept-Encoding"),  # receivers do not need them
            auto_decompress=False,
            trust_env=False,
        )

    async def _stop(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def post_traced(
        self,
        uri: str,
        body: bytes,
        headers: Mapping[str, str],
        *,
        origin: CallOrigin,
        attempt: int = 0,
        turn_within_s: float | None = None,
        may_begin: Callable[[], bool] = lambda: True,
    ) -> Answer:
        """Calls once, in the trace of the sender, whose context goes with the request."""

        def call(context: TraceContext) -> Awaitable[Answer]:
            return self.post(
                uri,
                body,
                {**headers, **context},
                attempt=attempt,
                turn_within_s=turn_within_s,
                may_begin=may_begin,
            )

        if not origin.context or tracer() is None:
            return await call(origin.context)
        about: Attributes = {
            "messaging.message.id": origin.id,
            "http.request.method": "POST",
            "url.full": shown_url(uri),
            "http.request.resend_count": attempt,
        }
        with span_of(TraceStep.CALL, origin.name, lambda: about, parent=origin.context) as span:
            answer = await call(current_context() or origin.context)
            if span is not None and not answer.succeeded:
                fail(span, answer.verdict.value, answer.reason)
            return answer

    async def post(
        self,
        uri: str,
        body: bytes,
        headers: Mapping[str, str],
        *,
        attempt: int = 0,
        turn_within_s: float | None = None,
        may_begin: Callable[[], bool] = lambda: True,
    ) -> Answer:
        """Calls once. Each further `attempt` goes to the next address of the name.

        A call whose turn does not come within `turn_within_s` is not begun; with None it waits. `may_begin`
        returns whether the call is still wanted when its turn has come and its address is known. While this
        process is short of descriptors, memory, ports or threads, the call waits as for its turn, and
        `may_begin` is asked again.
        """
        try:
            return await self._post_in_turn(
                parse_callback_url(uri),
                body,
                headers,
                attempt=attempt,
                turn_within_s=turn_within_s,
                may_begin=may_begin,
            )
        except InvalidInput as error:
            return Answer(
                Verdict.failed, f"{shown_url(uri)!r:.200} cannot be called: the URL {error}"
            )
        except Exception as error:  # one call must not end the loop that makes the others
            if not self._runs:
                return Answer(Verdict.no_turn, "the node stops")
            return self.failure(error, uri)

    @staticmethod
    def failure(error: Exception, uri: str) -> Answer:
        """The answer of a call that raised an error; logs it."""
        shown = shown_url(uri)
        words = f"{type(error).__name__}: {error}".replace(uri, shown)[:_MOST_WORDS]
        logger.debug("the call to %s failed", shown, exc_info=error)
        _summary.log(logging.ERROR, "call_failed", "the call to %s failed: %s", shown, words)
        return Answer(Verdict.failed, words)

    async def _post_in_turn(
        self,
        url: CallbackUrl,
        body: bytes,
        headers: Mapping[str, str],
        *,
        attempt: int,
        turn_within_s: float | None,
        may_begin: Callable[[], bool],
    ) -> Answer:
        place = (url.host, url.port)
        host = self._hosts.setdefault(place, _HostTurns(self.limits.for_each_host))
        host.calls += 1
        timeout_s = self.limits.timeout_ms / 1000
        begun, waits_for = False, "too many calls are under way"
        try:
            async with asyncio.timeout(turn_within_s) as patience, host.turns, self._all:
                give_up_s = patience.when()
                while True:
                    begun = True
                    deadline = _Deadline(patience, timeout_s)
                    try:
                        return await self._post(
                            url, body, headers, attempt=attempt, may_begin=may_begin
                        )
                    except _Short as short:
                        begun, waits_for = False, str(short)
                    finally:
                        deadline.cancel()
                    patience.reschedule(give_up_s)
                    await asyncio.sleep(self._rest_s)  # the end of a shortage has no event
        except TimeoutError:
            if not begun:
                return Answer(Verdict.no_turn, waits_for)
            return Answer(Verdict.timed_out, f"no answer within {self.limits.timeout_ms} ms")
        finally:
            host.calls -= 1
            if not host.calls:
                del self._hosts[place]

    async def _post(
        self,
        url: CallbackUrl,
        body: bytes,
        headers: Mapping[str, str],
        *,
        attempt: int,
        may_begin: Callable[[], bool],
    ) -> Answer:
        host = url.host
        try:
            session = await self.open()
            addresses = await self._lookup(host, url.port)
        except (OSError, RuntimeError, MemoryError) as error:
            _check_shortage(error, host)
            if not isinstance(error, OSError):
                raise
            return Answer(Verdict.unknown_host, f"{host} has no address: {words_of(error)}")
        allowed = [each for each in addresses if self._guard.allows(each)]
        if not allowed:
            where = "" if host in addresses else f" is {', '.join(addresses[:3])}, which"
            return Answer(Verdict.not_allowed, not_allowed(host + where))
        if not may_begin():
            return Answer(Verdict.no_turn, "it is not wanted any more")
        from aiohttp import ClientError  # noqa: PLC0415 - see `_start`

        address = allowed[attempt % len(allowed)]
        try:
            return await _ask(session, url, address, headers, body)
        except (ClientError, OSError, ValueError, MemoryError) as error:
            _check_shortage(error, address)
            return Answer(Verdict.unreachable, f"{address}: {words_of(error)}")


async def _ask(
    session: ClientSession,
    url: CallbackUrl,
    address: str,
    headers: Mapping[str, str],
    body: bytes,
) -> Answer:
    asked = URL.build(
        scheme=url.scheme,
        host=address,
        port=url.port,
        path=url.path,
        query_string=url.query,
        encoded=True,
    )
    async with session.post(
        asked,
        data=in_pieces(body),
        headers={**headers, "Host": url.authority},
        allow_redirects=False,
        server_hostname=url.host if url.scheme == "https" else None,
    ) as response:
        status = response.status
    if status // 100 == _SUCCESS:
        return Answer(Verdict.succeeded, str(status))
    if status // 100 == _REDIRECT:
        return Answer(Verdict.redirected, f"answered {status}; redirects are not followed")
    return Answer(Verdict.answered_badly, f"answered {status}")


class _Short(Exception):
    """This process is short of a resource that a call needs."""


def _check_shortage(error: Exception, host: str) -> None:
    if (resource := shortage_of(error, host=host)) is not None:
        SHORTAGES.note(resource, f"the call to {host}")
        raise _Short(f"the node is short of {resource}") from None


def endpoint_of(uri: str) -> Endpoint:
    """The host and the port of a URI. Raises `InvalidInput` for one that cannot be called."""
    url = parse_callback_url(uri)
    return url.host, url.port


def in_pieces(body: bytes) -> bytes | io.BytesIO:
    """A large body as a file, which aiohttp sends in pieces without blocking the loop."""
    return body if len(body) <= _PIECE_BYTES else io.BytesIO(body)


def words_of(error: Exception) -> str:
    """The text of an error, without aiohttp's notes on its own settings."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return str(getattr(error, "strerror", None) or error) or type(error).__name__


class _Deadline:
    """The end of a call. If this process stood still until then, the answer may wait unread: once more."""

    def __init__(self, patience: asyncio.Timeout, timeout_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._patience = patience
        self._timeout_s = timeout_s
        self._at_s = self._loop.time() + timeout_s
        patience.reschedule(None)
        self._timer = self._loop.call_at(self._at_s, self._end)

    def _end(self) -> None:
        now_s = self._loop.time()
        stood_still = now_s - self._at_s > _STALL_S
        self._patience.reschedule(now_s + self._timeout_s if stood_still else now_s)

    def cancel(self) -> None:
        self._timer.cancel()


class _HostTurns:
    """The turns of one server, and the number of its calls."""

    def __init__(self, most: int) -> None:
        self.turns = asyncio.Semaphore(most)
        self.calls = 0
