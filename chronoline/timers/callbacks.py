"""Callbacks of timers, and dead letters for those that fail for good."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable

from chronoline.callbacks.caller import Answer, Caller, CallLimits, CallOrigin
from chronoline.callbacks.signature import Signer
from chronoline.runtime.traces import checked_context
from chronoline.timers.replica import Callback

logger = logging.getLogger(__name__)


class Callbacks:
    """Sends callbacks, signed if there is a signer, and dead letters."""

    def __init__(
        self, caller: Caller, *, signer: Signer | None = None, dead_letters: str | None = None
    ) -> None:
        self._caller = caller
        self._signer = signer
        self.dead_letters = dead_letters

    @property
    def limits(self) -> CallLimits:
        return self._caller.limits

    def refusal(self, uri: str) -> str | None:
        """The reason why a URI with a forbidden address is never called."""
        return self._caller.refusal(uri)

    async def make(self, call: Callback, *, may_begin: Callable[[], bool]) -> Answer:
        """Sends the callback. `may_begin` is asked right before the request."""
        body = call.plan.opaque.encode()
        headers = {
            "X-Sequence-Number": str(call.sequence),
            "X-Timer-Id": call.name,
            "Content-Type": "application/octet-stream",
            **self._signed(_call_id(call), body),
        }
        return await self._caller.post_traced(
            call.plan.uri,
            body,
            headers,
            origin=CallOrigin("timers", call.name, checked_context(call.plan.traceparent)),
            attempt=call.timer.attempts,
            may_begin=may_begin,
        )

    async def report(self, call: Callback, reason: str) -> None:
        """Reports a call that failed for good, once; if that fails, only log and metric show it."""
        assert self.dead_letters is not None
        body = json.dumps(
            {
                "timer": call.name,
                "sequence": call.sequence,
                "uri": call.plan.uri,
                "opaque": call.plan.opaque,
                "reason": reason,
            }
        ).encode()
        headers = {
            "Content-Type": "application/json",
            **self._signed(f"{_call_id(call)}-dead", body),
        }
        told = await self._caller.post(self.dead_letters, body, headers)
        if not told.succeeded:
            logger.warning(
                "the dead letter was not taken: %s",
                told.reason,
                extra={"action": "dead_letter_failed"},
            )

    def _signed(self, call_id: str, body: bytes) -> dict[str, str]:
        if self._signer is None:
            return {}
        return self._signer.headers(call_id, body, wall_s=int(time.time()))


def _call_id(call: Callback) -> str:
    """The id of a callback, the same for every attempt."""
    return f"{call.timer.id:016x}-{call.timer.version.number}-{call.sequence}"
