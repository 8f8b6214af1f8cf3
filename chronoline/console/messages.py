"""Messages: one with its body and what may be done with it; sending, rescheduling, cancelling."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from chronoline.broker.http.console_mount import CONSOLE
from chronoline.broker.http.message_routes import RescheduleRequest, SendRequest
from chronoline.broker.http.requests import sender_context
from chronoline.broker.http.responses import MessageResponse
from chronoline.broker.principals import Principal, check_look, may_see
from chronoline.console.pages import (
    Pages,
    act,
    allows,
    form_of,
    is_done,
    path_name,
    principal_of,
    redirect,
    segment,
    session_of,
    time_given,
)
from chronoline.core.errors import ChronolineError, Refused
from chronoline.core.message import DEFAULT_PRODUCER_GROUP, Message
from chronoline.core.permissions import Actor, Producer, System
from chronoline.core.rights import RightKind
from chronoline.core.status import Status, status_of
from chronoline.core.topic import Topic
from chronoline.runtime.message_ids import new_id
from chronoline.runtime.timestamps import parse_when_ms

_MOST_BODY_BYTES = 64 * 1024
"""The most of a body that a page shows."""
_PAGE = 50
_FILTERS = ("group", "consumer", "prefix", "from", "to", "status")
_MOST_JSON_CHARACTERS = 8 * _MOST_BODY_BYTES
_JSON_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{},:]|[^\s\[\]{},:"]+')
_HEX_COLUMNS = 16
_NOT_PLAIN = {
    each: "." for each in range(256) if not chr(each).isascii() or not chr(each).isprintable()
}


class MessagePages:
    """One method for each route."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        self._context = pages.context
        self._routes = pages.context.edge.message_routes
        self._operator_routes = pages.context.edge.operator_routes

    def routes(self) -> list[Route]:
        every, one = "/topics/{topic}/messages", "/topics/{topic}/messages/{id}"
        return [
            Route(every, self._list),
            # Not below the messages: a message may have any id.
            Route("/topics/{topic}/find", self._find),
            Route("/topics/{topic}/send", self._send_page),
            Route("/topics/{topic}/send", self.send_message, methods=["POST"]),
            Route(one, self._show),
            Route(f"{one}/reschedule", self._reschedule_page),
            Route(f"{one}/reschedule", self.reschedule_message, methods=["POST"]),
            Route(f"{one}/cancel", self._cancel_page),
            Route(f"{one}/cancel", self.cancel_message, methods=["POST"]),
        ]

    # Looking

    async def _find(self, request: Request) -> Response:
        topic = await self._pages.topic(request)
        wanted = request.query_params.get("id", "")
        return redirect(message_path(topic, wanted) if wanted else topic_path(topic))

    async def _list(self, request: Request) -> Response:
        """Messages by time, or by a group, a holder or the beginning of the id."""
        topic, query = await self._pages.topic(request), request.query_params
        given = {name: query.get(name, "").strip() for name in _FILTERS}
        status = given["status"]
        if status and status not in list(Status):
            raise HTTPException(HTTPStatus.BAD_REQUEST, f"{status!r} is no status")
        lacks_group = not given["group"] and not allows(request, RightKind.OBSERVE, topic.name)
        if lacks_group and allows(request, RightKind.PRODUCE, topic.name):
            return self._messages_page(request, topic, given, [], None)
        page = await self._operator_routes.list_messages(
            principal=principal_of(request),
            topic=topic.name,
            producer_group=given["group"],
            consumer=given["consumer"],
            prefix=given["prefix"],
            start=time_given(given["from"]) or None,
            end=time_given(given["to"]) or None,
            status=[status] if status else None,  # type: ignore[list-item]  # one of them
            limit=_PAGE,
            after=query.get("after", ""),
        )
        return self._messages_page(request, topic, given, page.messages, page.next)

    def _messages_page(
        self,
        request: Request,
        topic: Topic,
        given: Mapping[str, str],
        messages: Sequence[MessageResponse],
        after: str | None,
    ) -> Response:
        return self._pages.page(
            request,
            "messages.html",
            topic=topic,
            messages=messages,
            given=given,
            statuses=list(Status),
            may_observe=allows(request, RightKind.OBSERVE, topic.name),
            # The filters again, since a page of another selection begins elsewhere.
            next=after and urlencode({**given, "after": after}),
        )

    async def _show(self, request: Request) -> Response:
        topic, message_id = await self._pages.topic(request), path_name(request, "id")
        message = await self._look_up(request, topic, message_id)
        if message is None:
            return await self._show_state(request, topic, message_id)
        body, problem = await self._body(principal_of(request), topic, message)
        return self._pages.page(
            request,
            "message.html",
            topic=topic,
            message=message,
            message_status=status_of(
                message.ts, message.lock_consumer is not None, self._context.parts.clock.now_ms()
            ).value,
            body=None if body is None else show_body(body),
            body_problem=problem,
            headers=[(name, show_text(value)) for name, value in message.headers],
            key=None if message.key is None else show_text(message.key),
            may_change=allows(request, RightKind.PRODUCE, topic.name, message.producer_group),
        )

    async def _show_state(self, request: Request, topic: Topic, message_id: str) -> Response:
        """The fate of a message that is not on the timeline, while it is known."""
        try:
            known = await self._operator_routes.state(
                principal=principal_of(request), topic=topic.name, id=message_id
            )
        except Refused:
            known = None
        return self._pages.page(
            request,
            "message_gone.html",
            status=HTTPStatus.NOT_FOUND if known is None else HTTPStatus.OK,
            topic=topic,
            id=message_id,
            known=known,
        )

    async def _look_up(self, request: Request, topic: Topic, message_id: str) -> Message | None:
        principal = principal_of(request)
        check_look(principal, topic.name)
        found = await self._context.parts.carrier.lookup(topic.uid, [message_id])
        message = found.get(message_id)
        return message if message and may_see(principal, topic.name, message) else None

    async def _wanted(self, request: Request) -> tuple[Topic, Message | None]:
        topic, message_id = await self._pages.topic(request), path_name(request, "id")
        return topic, await self._look_up(request, topic, message_id)

    def _show_fate(self, request: Request, topic: Topic) -> Response:
        """Answers an action on a message that is not on the timeline: another page says what became of it."""
        message_id = path_name(request, "id")
        words = f"Refused: the message {message_id!r} is not on the timeline of {topic.name!r}."
        session_of(request).notes.append(("refused", words))
        return redirect(message_path(topic, message_id))

    async def _body(
        self, principal: Principal, topic: Topic, message: Message
    ) -> tuple[bytes | None, str]:
        """The body, or why it is not shown."""
        actor = _reader(principal, topic, message)
        if actor is None:
            return None, "Your token may not read the bodies of this producer group."
        try:
            bodies = await self._context.parts.carrier.bodies(topic.uid, [message.id], actor)
        except ChronolineError as error:
            return None, str(error)
        if bodies.refused:
            return None, str(Refused(bodies.refused))
        body = bodies.found.get(message.id)
        return body, "" if body is not None else "The message has no body."

    # Sending

    async def _send_page(self, request: Request) -> Response:
        topic = await self._pages.topic(request)
        principal_of(request).check(RightKind.PRODUCE, topic.name)
        return self._send_form(request, topic, {"id": new_id(), "when": "+1m"})

    def _send_form(self, request: Request, topic: Topic, given: Mapping[str, str]) -> Response:
        return self._pages.page(
            request,
            "send.html",
            topic=topic,
            id=given.get("id", ""),
            when=given.get("when", ""),
            body=given.get("body", ""),
            group=given.get("group", DEFAULT_PRODUCER_GROUP),
        )

    async def send_message(self, request: Request) -> Response:
        topic = await self._pages.topic(request)
        form = await form_of(request, RightKind.PRODUCE, topic=topic.name)
        message_id = form.get("id", "").strip()

        async def send() -> None:
            content = SendRequest(
                due_ms=self._when(form),
                # Browsers send each line end of a form as CR LF.
                body=form.get("body", "").replace("\r\n", "\n"),
                producer_group=form.get("group", DEFAULT_PRODUCER_GROUP),
            )
            await self._routes.create_message(
                principal=principal_of(request),
                sender=sender_context(request),
                topic=topic.name,
                id=message_id,
                request=content,
            )

        answer = await act(
            request,
            send,
            done=f"The message {message_id!r} was sent to {topic.name!r}.",
            then=message_path(topic, message_id),
        )
        # No browser keeps what was written into a form that may not be stored.
        return answer if is_done(request) else self._send_form(request, topic, form)

    def _when(self, form: Mapping[str, str]) -> int:
        when = time_given(form.get("when", "now"))
        return parse_when_ms(when, "when", self._context.parts.clock.now_ms())

    # Changing

    async def _reschedule_page(self, request: Request) -> Response:
        topic, message = await self._wanted(request)
        if message is None:
            return self._show_fate(request, topic)
        return self._pages.page(request, "reschedule.html", topic=topic, message=message)

    async def reschedule_message(self, request: Request) -> Response:
        form = await form_of(request, RightKind.PRODUCE, topic=path_name(request, "topic"))
        topic, message = await self._wanted(request)
        if message is None:
            return self._show_fate(request, topic)

        async def reschedule() -> None:
            await self._routes.reschedule_message(
                principal_of(request),
                topic.name,
                message.id,
                RescheduleRequest(due_ms=self._when(form), producer_group=message.producer_group),
            )

        return await act(
            request,
            reschedule,
            done=f"The message {message.id!r} was rescheduled.",
            then=message_path(topic, message.id),
        )

    async def _cancel_page(self, request: Request) -> Response:
        topic, message = await self._wanted(request)
        if message is None:
            return self._show_fate(request, topic)
        return self._pages.page(request, "cancel.html", topic=topic, message=message)

    async def cancel_message(self, request: Request) -> Response:
        await form_of(request, RightKind.PRODUCE, topic=path_name(request, "topic"))
        topic, message = await self._wanted(request)
        if message is None:
            return self._show_fate(request, topic)

        async def cancel() -> None:
            await self._routes.cancel_message(
                principal=principal_of(request),
                topic=topic.name,
                id=message.id,
                producer_group=message.producer_group,
            )

        return await act(
            request,
            cancel,
            done=f"The message {message.id!r} was cancelled.",
            then=topic_path(topic),
            if_not=message_path(topic, message.id),
        )


def topic_path(topic: Topic) -> str:
    return f"{CONSOLE}/topics/{segment(topic.name)}"


def message_path(topic: Topic, message_id: str) -> str:
    return f"{topic_path(topic)}/messages/{segment(message_id)}"


def _reader(principal: Principal, topic: Topic, message: Message) -> Actor | None:
    """As whom a visitor reads a body."""
    if principal.may(RightKind.PRODUCE, topic.name, message.producer_group):
        return Producer(message.producer_group)
    return System() if principal.may(RightKind.ADMINISTER, topic.name) else None


def show_text(data: bytes | None) -> str:
    """Bytes as text, or as hex where they are none."""
    if data is None:
        return "null"
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.hex(" ")


def show_body(body: bytes) -> dict[str, Any]:
    """A body as text, as JSON and as hex, each where it can be shown so."""
    shown = body[:_MOST_BODY_BYTES]
    return {
        "bytes": len(body),
        "is_cut": len(shown) < len(body),
        "text": _as_text(shown),
        "json": _as_json(body) if len(body) == len(shown) else None,
        "hex": _as_hex(shown),
    }


def _as_text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        # A character may have been cut in the middle.
        return data[: error.start].decode() if error.end == len(data) > _HEX_COLUMNS else None


def _as_json(data: bytes) -> str | None:
    """Indented, with its numbers, strings and repeated names as they were written.

    None also for JSON that indents would make much larger than it is, as those of a deep nesting.
    """
    try:
        text = data.decode()
        json.loads(text, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return None
    shown, characters, indent, before = list[str](), 0, "\n", ""
    for token in _JSON_TOKEN.findall(text):
        if token in ("]", "}"):
            indent = indent[:-2]
            part = token if before in ("[", "{") else indent + token
        else:
            part = indent + token if before in ("[", "{", ",") else token
            if token in ("[", "{"):
                indent += "  "
        if token == ":":
            part += " "
        shown.append(part)
        characters += len(part)
        if characters > _MOST_JSON_CHARACTERS:
            return None
        before = token
    return "".join(shown)


def _as_hex(data: bytes) -> str:
    lines = []
    for place in range(0, len(data), _HEX_COLUMNS):
        row = data[place : place + _HEX_COLUMNS]
        plain = row.decode("latin-1").translate(_NOT_PLAIN)
        lines.append(f"{place:08x}  {row.hex(' '):<{3 * _HEX_COLUMNS}} {plain}")
    return "\n".join(lines)
