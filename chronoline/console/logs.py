"""Logs that the settings name: topics with their partitions, groups with their lag, and a peek at events."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from chronoline.console.messages import show_body, show_text
from chronoline.console.pages import Pages, path_name, principal_of, whole_parameter
from chronoline.console.rollups import Rollups
from chronoline.core.errors import ChronolineError
from chronoline.core.rights import EVERY_TOPIC, RightKind
from chronoline.log.log import Log
from chronoline.log.place import open_log
from chronoline.runtime import audit
from chronoline.runtime.store_url import without_password

_PEEK = 20
Result = TypeVar("Result")


@dataclass(slots=True)
class ShownLog:
    """A log of the settings. It is opened for the first page that shows it."""

    url: str
    log: Log | None = field(default=None)

    @property
    def name(self) -> str:
        return without_password(self.url)

    def opened(self) -> Log:
        if self.log is None:
            self.log = open_log(self.url)
        return self.log

    def close(self) -> None:
        if self.log is not None:
            self.log.close()


class LogPages:
    """One method for each route. Logs are read in threads, since they may be far away.

    Their topics are none of the timeline's, so they are shown to a right to all topics alone.
    """

    def __init__(self, pages: Pages, urls: Sequence[str]) -> None:
        self._pages = pages
        self._logs = [ShownLog(each) for each in urls]
        self._topics: Rollups[list[dict[str, Any]]] = Rollups()
        self._one: Rollups[dict[str, Any]] = Rollups()

    def routes(self) -> list[Route]:
        one = "/logs/{log:int}/{topic}"
        return [
            Route("/logs", self._list),
            Route(one, self._show),
            Route(f"{one}/{{partition:int}}", self.peek_events),
        ]

    async def stop(self) -> None:
        self._topics.stop()
        self._one.stop()
        for each in self._logs:
            await asyncio.to_thread(each.close)

    async def _list(self, request: Request) -> Response:
        principal_of(request).check(RightKind.OBSERVE, EVERY_TOPIC)
        logs = []
        for number, each in enumerate(self._logs):
            try:
                rollup = await self._topics.get(number, lambda each=each: _ask(each, _topics))  # type: ignore[misc]  # of this turn
                logs.append((each.name, rollup, ""))
            except ChronolineError as error:
                logs.append((each.name, None, str(error)))
        return self._pages.page(request, "logs.html", logs=logs, now_s=time.monotonic())

    async def _show(self, request: Request) -> Response:
        principal_of(request).check(RightKind.OBSERVE, EVERY_TOPIC)
        number, topic = request.path_params["log"], path_name(request, "topic")
        shown = self._shown(number)
        rollup = await self._one.get(
            (number, topic), lambda: _ask(shown, lambda log: _topic(log, topic))
        )
        return self._pages.page(
            request,
            "log_topic.html",
            log=shown.name,
            number=number,
            topic=topic,
            rollup=rollup,
            now_s=time.monotonic(),
        )

    async def peek_events(self, request: Request) -> Response:
        """Events may hold anything, so an administrator alone reads them."""
        principal_of(request).check(RightKind.ADMINISTER, EVERY_TOPIC)
        number, topic = request.path_params["log"], path_name(request, "topic")
        partition = request.path_params["partition"]
        shown = self._shown(number)
        audit.note(topic, log=shown.name, partition=partition)
        before = whole_parameter(request, "before", 0, least=0) or None
        events = await _ask(shown, lambda log: _events(log, topic, partition, before))
        return self._pages.page(
            request,
            "log_events.html",
            log=shown.name,
            number=number,
            topic=topic,
            partition=partition,
            events=events,
        )

    def _shown(self, number: int) -> ShownLog:
        if not 0 <= number < len(self._logs):
            raise HTTPException(HTTPStatus.NOT_FOUND, "the settings of the node name no such log")
        return self._logs[number]


async def _ask(shown: ShownLog, ask: Callable[[Log], Result]) -> Result:
    return await asyncio.to_thread(lambda: ask(shown.opened()))


def _topics(log: Log) -> list[dict[str, Any]]:
    found = []
    for topic in log.topics():
        heads = log.heads(topic.name)
        groups = log.groups(topic.name)
        found.append(
            {
                "name": topic.name,
                "partitions": len(heads),
                "events": sum(each.next_sequence - each.first_sequence for each in heads),
                "groups": len({each.group for each in groups}),
                "lag": max(
                    (
                        sum(each.lag for each in groups if each.group == name)
                        for name in {each.group for each in groups}
                    ),
                    default=0,
                ),
            }
        )
    return found


def _topic(log: Log, topic: str) -> dict[str, Any]:
    return {"heads": log.heads(topic), "groups": log.groups(topic)}


def _events(log: Log, topic: str, partition: int, upto: int | None) -> list[dict[str, Any]]:
    """The last events before a sequence, or before the end, the newest first."""
    head = next((each for each in log.heads(topic) if each.partition == partition), None)
    if head is None:
        return []
    end = head.next_sequence if upto is None else max(0, min(upto, head.next_sequence))
    start = max(head.first_sequence, end - _PEEK)
    events = [
        event
        for batch in log.read_range(topic, partition, start, end, batch=_PEEK)
        for event in batch
    ]
    return [
        {
            "sequence": each.sequence,
            "ts": each.ts,
            "key": None if each.key is None else show_text(each.key),
            "headers": [(name, show_text(value)) for name, value in each.headers],
            "body": None if each.value is None else show_body(each.value),
        }
        for each in reversed(events)
    ]
