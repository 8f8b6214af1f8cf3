"""Dead letters of a topic: their list, putting back and discarding."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from chronoline.broker.http.console_mount import CONSOLE
from chronoline.broker.http.dead_letter_routes import DiscardRequest, RedriveRequest
from chronoline.broker.http.responses import OutcomeResponse
from chronoline.console.pages import Pages, act, allows, form_of, path_name, principal_of, segment
from chronoline.core.errors import Refused
from chronoline.core.message import DEFAULT_PRODUCER_GROUP
from chronoline.core.outcome import Outcome, Refusal
from chronoline.core.rights import RightKind

_PAGE = 50


class DeadLetterPages:
    """One method for each route."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        self._routes = pages.context.edge.dead_letter_routes

    def routes(self) -> list[Route]:
        one = "/topics/{topic}/dead/{id}"
        return [
            Route("/topics/{topic}/dead", self._list),
            Route(f"{one}/redrive", self._redrive_page),
            Route(f"{one}/redrive", self.redrive, methods=["POST"]),
            Route(f"{one}/discard", self._discard_page),
            Route(f"{one}/discard", self.discard, methods=["POST"]),
        ]

    async def _list(self, request: Request) -> Response:
        topic = await self._pages.topic(request)
        principal = principal_of(request)
        page = await self._routes.list_dead_letters(
            principal, topic.name, _PAGE, request.query_params.get("after")
        )
        return self._pages.page(
            request,
            "dead_letters.html",
            topic=topic,
            letters=page.letters,
            next=page.next,
            may_change=allows(request, RightKind.ADMINISTER, topic.name)
            or allows(request, RightKind.PRODUCE, topic.name),
        )

    async def _redrive_page(self, request: Request) -> Response:
        return await self._confirm(request, "redrive", "Put back")

    async def _discard_page(self, request: Request) -> Response:
        return await self._confirm(request, "discard", "Discard")

    async def _confirm(self, request: Request, action: str, verb: str) -> Response:
        topic = await self._pages.topic(request)
        return self._pages.page(
            request,
            "dead_letter.html",
            topic=topic,
            id=path_name(request, "id"),
            group=request.query_params.get("group", DEFAULT_PRODUCER_GROUP),
            action=action,
            verb=verb,
        )

    async def redrive(self, request: Request) -> Response:
        message_id, topic = path_name(request, "id"), path_name(request, "topic")
        form = await form_of(request, RightKind.ADMINISTER, RightKind.PRODUCE, topic=topic)
        group = form.get("group", DEFAULT_PRODUCER_GROUP)

        async def put_back() -> None:
            wanted = RedriveRequest(ids=[message_id], producer_group=group)
            answer = await self._routes.redrive(principal_of(request), topic, wanted)
            _raise_refusal(answer.outcomes)

        return await act(
            request,
            put_back,
            done=f"The message {message_id!r} was put back, and is due now.",
            then=f"{CONSOLE}/topics/{segment(topic)}/messages/{segment(message_id)}",
        )

    async def discard(self, request: Request) -> Response:
        message_id, topic = path_name(request, "id"), path_name(request, "topic")
        form = await form_of(request, RightKind.ADMINISTER, RightKind.PRODUCE, topic=topic)
        group = form.get("group", DEFAULT_PRODUCER_GROUP)

        async def delete() -> None:
            wanted = DiscardRequest(ids=[message_id], producer_group=group)
            answer = await self._routes.discard(principal_of(request), topic, wanted)
            _raise_refusal(answer.outcomes)

        return await act(
            request,
            delete,
            done=f"The dead letter {message_id!r} was discarded.",
            then=f"{CONSOLE}/topics/{segment(topic)}/dead",
        )


def _raise_refusal(outcomes: Sequence[OutcomeResponse]) -> None:
    (outcome,) = outcomes
    if outcome.refusal is not None:
        raise Refused([Outcome(id=outcome.id, refusal=Refusal(outcome.refusal))])
