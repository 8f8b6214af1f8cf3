"""Throttles producers over HTTP most of whose requests are invalid.

Such requests cost parsing and time of the store without any use. A producer is a connection here, as it is a
stream over gRPC: by token or address one faulty process would throttle all that share it. Only requests that
are invalid count; a cancel that comes too late, or a broker that is busy, is no fault of the producer.
"""

from __future__ import annotations

import time
from http import HTTPStatus

from starlette.types import Scope

from chronoline.broker.failure_sampler import THROTTLE, THROTTLED, FailureSampler
from chronoline.broker.metrics import BrokerMetrics
from chronoline.core.errors import TooMuch
from chronoline.runtime.bounded_cache import BoundedCache

_INVALID = frozenset(
    {
        HTTPStatus.BAD_REQUEST,
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
        HTTPStatus.UNPROCESSABLE_ENTITY,
    }
)
_OF_MESSAGES = ("/messages", "/reschedule", "/cancel")
_QUIET_S = 60.0
"""A connection that has sent nothing for this time is shown no more."""

Address = tuple[str, int]


class ProducerThrottle:
    """Owned by the event loop."""

    def __init__(self, metrics: BrokerMetrics, *, most: int) -> None:
        """`most` is the number of connections that it remembers."""
        self._metrics = metrics
        self._samplers: BoundedCache[Address, FailureSampler] = BoundedCache(most)
        self._asked_s: dict[Address, float] = {}  # of those that are throttled, the last request

    def admit(self, scope: Scope) -> None:
        """Raises `TooMuch` if the connection is throttled and this request is not its turn."""
        sampler = self._sampler_of(scope)
        if sampler is None or not sampler.is_failing:
            return
        now_s = time.monotonic()
        self._asked_s[scope["client"]] = now_s
        if not sampler.admits(now_s):
            self._metrics.refused("http", "throttled")
            error = TooMuch(THROTTLED)
            error.retry_after_ms = sampler.wait_ms(now_s)
            raise error

    def answered(self, scope: Scope, status: int) -> None:
        """Counts the answer of a request that was admitted."""
        if not _is_change(scope):
            return
        sampler, now_s = self._sampler_of(scope), time.monotonic()
        if status in _INVALID:
            if sampler is None:
                sampler = FailureSampler(THROTTLE)
                self._samplers.put(scope["client"], sampler)
            sampler.failed(now_s)
            self._asked_s[scope["client"]] = now_s
        elif sampler is not None and status < HTTPStatus.BAD_REQUEST:
            sampler.succeeded(now_s)

    def throttled(self) -> list[str]:
        """The addresses of the connections that are throttled."""
        now_s = time.monotonic()
        self._asked_s = {
            address: asked_s
            for address, asked_s in self._asked_s.items()
            if now_s - asked_s < _QUIET_S and address in self._samplers
        }
        found = [each for each in self._asked_s if self._is_failing(each)]
        return sorted(f"{host}:{port}" for host, port in found)

    def _is_failing(self, address: Address) -> bool:
        sampler = self._samplers.get(address)
        return sampler is not None and sampler.is_failing

    def _sampler_of(self, scope: Scope) -> FailureSampler | None:
        return self._samplers.get(scope["client"]) if _is_change(scope) else None


def _is_change(scope: Scope) -> bool:
    """Whether a producer creates or changes messages by this request."""
    is_of_messages = any(each in scope["path"] for each in _OF_MESSAGES)
    return bool(scope["client"]) and scope["method"] not in ("GET", "HEAD") and is_of_messages
