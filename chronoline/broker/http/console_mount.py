"""The place of the console in the HTTP interface.

The console stands above the broker, so the broker knows it by this contract alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from starlette.types import ASGIApp

if TYPE_CHECKING:  # the routes import the guard, which imports this
    from chronoline.broker.auth import Door
    from chronoline.broker.backlog import Backlog
    from chronoline.broker.context import BrokerContext
    from chronoline.broker.http.dead_letter_routes import DeadLetterRoutes
    from chronoline.broker.http.message_routes import MessageRoutes
    from chronoline.broker.http.operator_routes import OperatorRoutes
    from chronoline.broker.http.schedule_routes import ScheduleRoutes
    from chronoline.broker.http.topic_routes import TopicRoutes
    from chronoline.broker.topics import TopicsByName

CONSOLE = "/console"
"""The path of all its pages."""


def is_of_console(path: str) -> bool:
    return path == CONSOLE or path.startswith(f"{CONSOLE}/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """The routes of programs, which the actions of pages call too."""

    parts: BrokerContext
    door: Door
    topics: TopicsByName
    topic_routes: TopicRoutes
    message_routes: MessageRoutes
    dead_letter_routes: DeadLetterRoutes
    schedule_routes: ScheduleRoutes
    operator_routes: OperatorRoutes
    backlog: Backlog


class ConsoleApp(Protocol):
    """The console of a node."""

    @property
    def app(self) -> ASGIApp:
        """It answers below `CONSOLE`."""

    def authorization(self, headers: Mapping[bytes, bytes]) -> bytes:
        """The `authorization` header that the cookie of a browser stands for; empty without one."""

    async def start(self) -> None: ...

    def end_streams(self) -> None:
        """Ends the answers that last as long as the browser wants."""

    async def stop(self) -> None: ...


ConsoleFactory = Callable[[Edge], ConsoleApp]
