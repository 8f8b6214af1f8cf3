"""The timers of a node: the service with the settings of the node, its doors and its signals."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import Any

from aiohttp import web

from chronoline.broker.auth import Door
from chronoline.broker.settings import NodeSettings
from chronoline.callbacks.caller import Caller
from chronoline.cli.reaching import trusting
from chronoline.core.addresses import is_loopback
from chronoline.core.errors import InvalidInput
from chronoline.runtime.admission import Admission
from chronoline.timers.http.responses import Refusal
from chronoline.timers.replica import Attempts
from chronoline.timers.service import ServiceOptions, TimerService

logger = logging.getLogger(__name__)


async def start_timers(
    settings: NodeSettings,
    door: Door,
    exits: AsyncExitStack,
    caller: Caller,
    *,
    admission: Admission,
    connections: int,
) -> str:
    """Starts the service, and answers where it listens. SIGHUP reads the list of nodes, SIGUSR1 resyncs."""
    lets_in = admits(door, settings.timers_listener.host)
    options = replace(_options(settings, door), admission=admission, connections=connections)
    service = TimerService(options, admits=lets_in, caller=caller)
    exits.push_async_callback(service.stop)

    def on_signal(do: Callable[[TimerService], Coroutine[Any, Any, None]]) -> None:
        if service.node is not None and service.is_started:
            service.node.start_work(do(service))
        else:  # it is about to read the list, and to ask everybody
            logger.info("the node is starting: the signal is passed over")

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, on_signal, _reload)
    loop.add_signal_handler(signal.SIGUSR1, on_signal, _resync)
    await service.start()
    return f"{door.scheme}://{settings.timers_listener.bracketed}:{service.port}"


def _options(settings: NodeSettings, door: Door) -> ServiceOptions:
    listener, replication, callbacks = (
        settings.timers_listener,
        settings.replication,
        settings.callbacks,
    )
    token = replication.token
    return ServiceOptions(
        host=listener.host,
        port=listener.port,
        data=settings.data,
        nodes_file=_path(replication.nodes),
        address=replication.address,
        secret=None if callbacks.secret is None else callbacks.secret.get_secret_value(),
        peer_timeout_ms=replication.timeout_ms,
        least_copies=replication.copies,
        most_timers=replication.most_timers,
        clock_bound_ms=replication.clock_bound_ms,
        dead_letters=callbacks.dead_letters,
        insecure=settings.insecure,
        labels={"cluster": settings.cluster, **settings.tags},
        tls=door.ssl_context(),
        peer_tls=None if door.tls is None else trusting(_path(replication.ca)),
        peer_headers={}
        if token is None
        else {"Authorization": f"Bearer {token.get_secret_value()}"},
        attempts=Attempts(
            most=callbacks.attempts,
            timeout_ms=callbacks.timeout_ms,
            first_wait_ms=callbacks.first_wait_ms,
            longest_wait_ms=callbacks.longest_wait_ms,
            skip_missed=callbacks.missed == "skip",
        ),
    )


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)


def admits(door: Door, host: str) -> Callable[[web.BaseRequest], None]:
    """What raises `Refusal` for a request that may not come in to a node that listens there."""
    on_loopback = is_loopback(host)

    def admit(request: web.BaseRequest) -> None:
        try:
            asks, let_in = door.asks, door.lets_in(request.headers.get("Authorization", ""))
        except InvalidInput as error:  # the tokens cannot be read
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, str(error)) from None
        if not let_in:
            raise Refusal(
                HTTPStatus.UNAUTHORIZED,
                "a token is needed: Authorization: Bearer …, as `chronoline token create` printed it",
                {"WWW-Authenticate": "Bearer"},
            )
        if on_loopback and not asks:
            _check_stranger(door, request)

    return admit


def _check_stranger(door: Door, request: web.BaseRequest) -> None:
    """Where no token is asked for, web pages that somebody looks at on this machine must not get in."""
    if (problem := door.host_problem(request.headers.get("Host", ""))) is not None:
        raise Refusal(HTTPStatus.MISDIRECTED_REQUEST, problem)
    if "Origin" in request.headers:
        raise Refusal(
            HTTPStatus.FORBIDDEN, "web pages may not ask here: without a token, send no Origin"
        )


async def _reload(service: TimerService) -> None:
    try:
        await service.reload()
    except InvalidInput as error:
        logger.error("the old list of nodes stays: %s", error, extra={"action": "reload_failed"})


async def _resync(service: TimerService) -> None:
    assert service.resync is not None
    progress = await service.resync.run()
    logger.info(
        "the resync went through %d timers; %d problems",
        progress.offered,
        len(progress.problems),
        extra={
            "action": "resynced",
            "timers": progress.offered,
            "problems": list(progress.problems),
        },
    )


def first_timer(where: str, door: Door) -> Iterator[str]:
    """What to type for a first success."""
    token = ' -H "Authorization: Bearer $CHRONOLINE_TOKEN"' if door.asks else ""
    if door.tls is not None:
        token += " --cacert CA.pem"
    where = where.replace("://0.0.0.0:", "://127.0.0.1:").replace("://[::]:", "://[::1]:")
    yield "chronoline timers listen 9000    # shows what it is called with"
    yield (
        f"curl -si {where}/timers{token} -d '"
        '{"timing":{"interval":5},"callback":{"http":{"uri":"http://127.0.0.1:9000/pop","opaque":"hello"}}}'
        "'"
    )
