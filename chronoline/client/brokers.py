"""The brokers that a client knows, and which of them it uses.

A client begins with the addresses that it was given, and learns the others from each answer of a broker, and
from the welcome of a stream: one live address is enough, also after all the given ones are gone. A request
that was refused for want of a role goes to the brokers that the refusal names. A stream asks any broker that
answers for the brokers in order of preference for its topic, and takes the first that has not just failed.
Streams of one client can be at different brokers; those at the same one share a connection.

A broker that does not answer is left out for a moment (`AddressBook`), and the next is tried at once. Only
when all of them have failed, the client waits longer and longer before it tries again.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import grpc
from grpc import aio

from chronoline.client.connection import (
    ADDRESS_VARIABLE,
    DEFAULT_ADDRESS,
    ChannelGivenUp,
    ClientAccess,
    Connection,
    failure_in,
    may_have_left,
)
from chronoline.client.tls import Tls
from chronoline.core.errors import (
    BrokerUnavailable,
    ChronolineError,
    ClientClosed,
    CoordinationUnavailable,
    InvalidInput,
    NodeBusy,
    OutcomeUnknown,
    StoreBusy,
    StoreFull,
    StoreUnavailable,
    TooMuch,
    WrongBroker,
)
from chronoline.runtime.backoff import Backoff, Waits
from chronoline.runtime.tasks import TaskSet
from chronoline.wire.codes import FailureKind
from chronoline.wire.v1 import chronoline_pb2 as pb

BACKOFF = Backoff(0.05, 2.0, spread=0.5)
_FAILED_S = 5.0
"""How long a broker that failed comes after all others."""
_PREFER_S = 2.0
"""The time for an answer about preferences: a broker that takes longer is left out."""
_KEPT_S = 300.0
"""How long an address that no broker names any more is kept: the one that answers may know no others yet."""
_MOST_KEPT = 100
_ATTEMPT_S = 5.0
"""The time for the answer to a call that can be repeated at another broker; doubled after each silence."""
_DEGRADED = "degraded"
_QUESTIONS = frozenset(
    {
        "Carrier/Lookup",
        "Carrier/ReadBodies",
        "Carrier/Count",
        "Carrier/Forecast",
        "Carrier/DeadLetters",
        "Overseer/GetTopic",
        "Overseer/ListTopics",
        "Overseer/Info",
        "Overseer/Prefer",
    }
)
"""Methods that change nothing: without an answer, no outcome is unknown."""

Answer = TypeVar("Answer")


def read_addresses(given: str | Iterable[str] | None) -> list[str]:
    """The addresses of a text, separated by commas, or of a list; of the environment if there are none."""
    if given is None:
        given = os.environ.get(ADDRESS_VARIABLE, "")
    parts = given.split(",") if isinstance(given, str) else given
    found = [str(each).strip() for each in parts]
    return list(dict.fromkeys(filter(None, found))) or [DEFAULT_ADDRESS]


class AddressBook:
    """The known addresses, and the order in which to try them. Time is an argument, in seconds."""

    def __init__(self, given: Sequence[str]) -> None:
        self._given = tuple(given)
        self._learned: dict[str, float] = {}
        """By address, when a broker last named it; the latest first."""
        self._failed: dict[str, float] = {}
        """When a broker failed last; without those that have answered since."""
        self._latest = self._given[0]
        """The last that answered."""

    @property
    def known(self) -> list[str]:
        """All addresses: the last that answered, the given ones, the learned ones."""
        return list(dict.fromkeys((self._latest, *self._given, *self._learned)))

    def learn(self, learned: Iterable[str], now_s: float) -> None:
        """A broker has named these. Addresses that were named before come after them, for some minutes."""
        named = dict.fromkeys(learned, now_s)
        before = self._learned.items()
        kept = {each: at for each, at in before if now_s - at < _KEPT_S and each not in named}
        self._learned = dict([*named.items(), *kept.items()][:_MOST_KEPT])

    def answered(self, address: str) -> None:
        self._latest = address
        self._failed.pop(address, None)

    def failed(self, address: str, now_s: float) -> None:
        self._failed[address] = now_s
        self._failed = {each: when for each, when in self._failed.items() if each in self.known}
        if address == self._latest:
            self._latest = self.order(now_s)[0]

    def order(self, now_s: float, preferred: Iterable[str] = ()) -> list[str]:
        """The addresses to try: those that have not just failed, then the oldest failure.

        Preferred ones come before the rest.
        """
        known = list(dict.fromkeys((*preferred, *self.known)))
        fresh = [each for each in known if self._is_fresh(each, now_s)]
        stale = [each for each in known if not self._is_fresh(each, now_s)]
        return fresh + sorted(stale, key=lambda each: self._failed[each])

    def fresh(self, now_s: float) -> list[str]:
        """The addresses that have not just failed."""
        return [each for each in self.known if self._is_fresh(each, now_s)]

    def _is_fresh(self, address: str, now_s: float) -> bool:
        when_s = self._failed.get(address)
        return when_s is None or now_s - when_s >= _FAILED_S


class Brokers:
    """The brokers of one client, with a connection to each that it uses. Owned by the event loop."""

    def __init__(
        self,
        address: str | Iterable[str] | None,
        token: str | None,
        tls: bool | str | Path | Tls,
        *,
        insecure: bool = False,
        rack: str = "",
    ) -> None:
        """Raises `InvalidInput` if others could read the token on the way, unless `insecure` allows it."""
        self._access = ClientAccess.given(token, tls, insecure=insecure)
        given = read_addresses(address)
        for each in given:
            self._access.check(each)
        self.book = AddressBook(given)
        self.rack = rack
        self._connections: dict[str, Connection] = {}
        self._dropping = TaskSet()
        self._closed = False
        self.reached = False
        """Whether a broker has answered once: one that does not answer now will probably be back."""
        self._asks_preference = True
        """Whether it is worth to ask: a broker that is alone, or of an earlier version, has no others."""

    @property
    def has_others(self) -> bool:
        """Whether there is a broker to go to when one does not answer."""
        return len(self.book.known) > 1

    @property
    def all_failed(self) -> bool:
        """Whether every known broker has just failed: then it is time to wait."""
        return not self.book.fresh(_now_s())

    def at(self, address: str) -> Connection:
        """The connection to a broker. Raises `ClientClosed`."""
        if self._closed:
            raise ClientClosed
        if address not in self._connections:
            self._drop_unknown()
            self._connections[address] = Connection(address, self._access, self.learn)
        return self._connections[address]

    def _drop_unknown(self) -> None:
        """Closes the channels to brokers that are gone for good: addresses change with every deployment."""
        known = set(self.book.known)
        for address, connection in list(self._connections.items()):
            if address not in known and not connection.is_used:
                del self._connections[address]
                self._dropping.start(connection.give_up(connection.generation))

    def accepts(self, address: str) -> bool:
        """Whether the token may travel to an address that a broker has named."""
        try:
            self._access.check(address)
        except InvalidInput:
            return False
        return bool(address)

    def learn(self, by: str, others: Iterable[str]) -> None:
        """The broker at `by` has named the other brokers."""
        learned = [each for each in others if self.accepts(each)]
        self._asks_preference = bool(learned)
        self.book.learn([by, *learned] if learned else [], _now_s())

    def sent_on(self, by: str, error: WrongBroker) -> list[str]:
        """The broker at `by` lacks a role: the addresses of those that have it."""
        named = [broker for broker in error.brokers if broker != by and self.accepts(broker)]
        self.book.learn(named, _now_s())
        return named

    def answered(self, address: str) -> None:
        self.reached = True
        self.book.answered(address)

    def failed(self, address: str) -> None:
        self.book.failed(address, _now_s())

    async def choose(self, kind: pb.PreferRequest.Kind, topic_uid: int) -> Connection:
        """The connection for a new stream: to the preferred broker of those that have not just failed.

        If none answers, it is the one whose failure is the oldest.
        """
        while (self._asks_preference or self.has_others) and (fresh := self.book.fresh(_now_s())):
            try:
                preferred = await self._prefer(fresh[0], kind, topic_uid)
            except (aio.AioRpcError, ChannelGivenUp) as error:
                if not _is_away(error):
                    return self.at(fresh[0])  # of an earlier version; or the stream gets its answer
                if not self.has_others:
                    break
                self.failed(fresh[0])
            else:
                return self.at(self.book.order(_now_s(), preferred)[0])
        return self.at(self.book.order(_now_s())[0])

    async def _prefer(self, address: str, kind: pb.PreferRequest.Kind, topic_uid: int) -> list[str]:
        asked = pb.PreferRequest(topic_uid=topic_uid, kind=kind, rack=self.rack)
        found = await self._ask_preference(address, asked)
        # A broker that is alone may listen under a name that its clients cannot use.
        others = [each for each in found.brokers if each.id != found.answered_by]
        if not others or (not found.answered_by and len(others) == 1):
            return []
        preferred = [each.address for each in found.brokers if self.accepts(each.address)]
        self.book.learn(preferred, _now_s())
        return preferred

    async def _ask_preference(self, address: str, asked: pb.PreferRequest) -> pb.PreferredBrokers:
        return await self.at(address).call(
            "Overseer/Prefer", asked, pb.PreferredBrokers.FromString, _PREFER_S
        )

    async def healthy_one(
        self, suggested: str, here: str, kind: pb.PreferRequest.Kind, topic_uid: int
    ) -> str:
        """A broker that calls itself healthy: the suggested one, or another; empty if there is none.

        A degraded broker suggests by the last that it saw of the others, which can be as degraded by now.
        """
        asked = pb.PreferRequest(topic_uid=topic_uid, kind=kind, rack=self.rack, only_look=True)
        for address in self.book.order(_now_s(), [suggested]):
            if address == here:
                continue
            try:
                found = await self._ask_preference(address, asked)
            except (aio.AioRpcError, ChannelGivenUp) as error:
                if _is_away(error):
                    self.failed(address)
                elif _is_earlier_version(error):
                    return address
            else:
                own = [each.health for each in found.brokers if each.id == found.answered_by]
                if not found.answered_by or (own and own[0] != _DEGRADED):
                    return address
        return ""

    async def ask(
        self,
        method: str,
        question: Any,
        answer: Callable[[bytes], Answer],
        timeout_s: float,
        *,
        repeatable: bool = True,
    ) -> Answer:
        """One request, one answer. Raises the error of the broker.

        A request that was not answered, or of which the broker says that it may succeed later, is repeated
        until the time-out; at another broker, if there is one and this one cannot do its work. A request that
        is not `repeatable` is repeated only if the broker answered that nothing was changed, or was not
        reached. If a broker lacks the role, one that it names is asked, then each other.
        """
        loop = asyncio.get_running_loop()
        give_up_s = loop.time() + timeout_s
        waits, attempt_s = Waits(BACKOFF), _ATTEMPT_S
        known: ChronolineError
        answered: ChronolineError | None = None
        wrong: set[str] = set()  # brokers without the role that the request needs
        named: list[str] = []  # brokers that have it, as one of these says
        while True:
            order = self.book.order(_now_s(), named)
            connection = self.at(next((each for each in order if each not in wrong), order[0]))
            left_s = give_up_s - loop.time()
            most_s = min(left_s, attempt_s) if repeatable and self.has_others else left_s
            try:
                found = await connection.call(method, question, answer, most_s)
            except ChannelGivenUp as error:
                known, answers, worth = error, False, True
            except aio.AioRpcError as error:
                known, failure = connection.error_of(error), failure_in(error)
                answers = failure is not None
                worth = _is_worth_repeating(known, failure)
                attempt_s *= 2 if isinstance(known, OutcomeUnknown) else 1
                if answers:
                    answered = known
                elif answered is not None and error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                    # The last attempt had hardly any time left: an earlier answer is more precise.
                    known = type(known)(
                        f"it was not done in time; {connection.address} last answered: {answered}"
                    )
            else:
                self.answered(connection.address)
                return found
            if not answers and not repeatable and may_have_left(known):
                raise OutcomeUnknown(f"it may have happened or not: {known}")
            self.reached |= answers
            worth |= repeatable and isinstance(known, OutcomeUnknown)
            others: list[str] = []
            if isinstance(known, WrongBroker):
                wrong.add(connection.address)
                named = self.sent_on(connection.address, known)
                others = self.book.known
            elif not answers or _is_cut_off(known):
                self.failed(connection.address)
                others = self.book.fresh(_now_s()) if worth else []
            if not wrong.issuperset(others) and loop.time() < give_up_s:
                continue  # at another broker, at once
            rest_s = waits.after(known)
            if not (worth and self.reached) or loop.time() + rest_s >= give_up_s:
                is_question = method in _QUESTIONS and isinstance(known, OutcomeUnknown)
                raise BrokerUnavailable(str(known)) if is_question else known
            await asyncio.sleep(rest_s)  # before the repetition
            wrong.clear()  # they may know by now which brokers have the role

    async def close(self) -> None:
        """May be called twice."""
        self._closed = True
        await asyncio.gather(*self._dropping, return_exceptions=True)
        connections, self._connections = self._connections, {}
        for each in connections.values():
            await each.close()


def _now_s() -> float:
    return asyncio.get_running_loop().time()


def _is_worth_repeating(error: ChronolineError, failure: pb.Failure | None) -> bool:
    """Whether the same request may succeed later. A request that is too large never does."""
    if failure is None:
        return isinstance(error, BrokerUnavailable)
    is_too_large = isinstance(error, TooMuch) and not isinstance(error, NodeBusy)
    return failure.kind == FailureKind.TRY_AGAIN.value and not is_too_large


def _is_cut_off(error: ChronolineError) -> bool:
    """Whether another broker may do what this one cannot. A store that is full or locked is so for all."""
    if isinstance(error, StoreUnavailable):
        return not isinstance(error, StoreBusy | StoreFull)
    return isinstance(error, BrokerUnavailable | CoordinationUnavailable)


def _is_earlier_version(error: aio.AioRpcError | ChannelGivenUp) -> bool:
    """Whether the broker does not know the method."""
    return isinstance(error, aio.AioRpcError) and error.code() is grpc.StatusCode.UNIMPLEMENTED


def _is_away(error: aio.AioRpcError | ChannelGivenUp) -> bool:
    """Whether no broker answered."""
    if isinstance(error, ChannelGivenUp):
        return True
    away = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
    return failure_in(error) is None and error.code() in away
