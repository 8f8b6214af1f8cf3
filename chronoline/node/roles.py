"""The roles of a node: a broker, timers or both, started with its settings."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chronoline.broker.auth import Door
from chronoline.broker.cluster.member import MemberOptions
from chronoline.broker.limits import Limits
from chronoline.callbacks.caller import Caller, CallLimits
from chronoline.callbacks.signature import Signer
from chronoline.coordination.factory import open_coordination
from chronoline.core.errors import InvalidInput
from chronoline.node.auth import address_guard
from chronoline.node.settings import NodeSettings
from chronoline.runtime import audit
from chronoline.runtime.admission import Admission
from chronoline.runtime.descriptors import limit
from chronoline.runtime.tls import client_context
from chronoline.stores.contract import Store

if TYPE_CHECKING:
    from chronoline.broker.http.console_mount import ConsoleFactory
    from chronoline.node.timer_service import ServiceOptions, TimerService

logger = logging.getLogger(__name__)


async def start_roles(
    settings: NodeSettings, store: Store | None, door: Door, exits: AsyncExitStack
) -> dict[str, str]:
    """Starts all roles, and returns the address of each listener. `exits` stops them."""
    where: dict[str, str] = {}
    limits, calls = _limits(settings)
    admission = limits.admission()
    caller = await exits.enter_async_context(_caller(settings, door, calls))
    timers: TimerService | None = None
    if settings.has_timers:
        options = replace(
            _timer_options(settings, door), admission=admission, connections=limits.connections
        )
        timers = await _start_timers(settings, options, door, exits, caller)
        where["timers"] = f"{door.scheme}://{settings.timers_listener.at(timers.port)}"
    if store is not None:
        where |= await _start_broker(
            settings,
            store,
            door,
            exits,
            caller,
            limits=limits,
            admission=admission,
            timers=timers,
        )
    return where


def _limits(settings: NodeSettings) -> tuple[Limits, int]:
    """The limits, and the number of calls, that fit the descriptors of the process unless they are set."""
    shares = settings.shares(limit())
    fitting = settings.shares(limit(), even_if_set=True)
    if shares != fitting:
        logger.warning(
            "limits.connections=%d and callbacks.in_all=%d need more than the %d files that this process may "
            "open: %d and %d would fit, or raise its limit",
            shares.connections,
            shares.calls,
            limit(),
            fitting.connections,
            fitting.calls,
            extra={"action": "few_descriptors"},
        )
    return replace(settings.limits.limits(), connections=shares.connections), shares.calls


def _caller(settings: NodeSettings, door: Door, in_all: int) -> Caller:
    """One caller of URLs for all roles."""
    callbacks = settings.callbacks
    limits = CallLimits(
        for_each_host=callbacks.for_each_host,
        in_all=in_all,
        timeout_ms=callbacks.timeout_ms,
    )
    return Caller(address_guard(settings, door), limits=limits)


# The broker


async def _start_broker(
    settings: NodeSettings,
    store: Store,
    door: Door,
    exits: AsyncExitStack,
    caller: Caller,
    *,
    limits: Limits,
    admission: Admission,
    timers: TimerService | None,
) -> dict[str, str]:
    # Without these imports a node for timers alone starts in two thirds of the time.
    from chronoline.broker.metrics import BrokerMetrics  # noqa: PLC0415
    from chronoline.broker.targets.policy import TargetPolicy  # noqa: PLC0415
    from chronoline.broker.trusted_clock import StoreClock  # noqa: PLC0415
    from chronoline.node.broker_service import BrokerService  # noqa: PLC0415
    from chronoline.runtime.metrics import free_bytes  # noqa: PLC0415

    if words := settings.advertise_warning:
        logger.warning("%s", words, extra={"action": "loopback_advertised"})
    callbacks, secret = settings.callbacks, settings.callbacks.secret
    grpc, http = settings.grpc_listener, settings.http_listener
    metrics = BrokerMetrics(settings.cluster, settings.tags)
    metrics.watch(lambda: [("broker_data_free_bytes", (), free_bytes(settings.data))])
    service = BrokerService(
        store,
        grpc_address=(grpc.bracketed, grpc.port),
        http_address=None if http is None else (http.host, http.port),
        limits=limits,
        admission=admission,
        door=door,
        clock=StoreClock() if settings.clock == "store" else None,
        metrics=metrics,
        patience_s=settings.patience_ms / 1000,
        calls=TargetPolicy(
            caller=caller,
            signer=None if secret is None else Signer(secret.get_secret_value()),
            first_wait_ms=callbacks.first_wait_ms,
            longest_wait_ms=callbacks.longest_wait_ms,
        ),
        coordination=open_coordination(settings.coordination) if settings.is_clustered else None,
        member=_member(settings),
        console=_console(settings, timers),
        quotas=settings.quotas.overrides(),
    )
    await exits.enter_async_context(service)
    assert service.grpc is not None
    where = {"grpc": grpc.at(service.grpc.port)}
    if http is not None and service.http is not None:
        where["http"] = f"{door.scheme}://{http.at(service.http.port)}"
    return where


def _console(settings: NodeSettings, timers: TimerService | None) -> ConsoleFactory | None:
    if not settings.console or settings.http_listener is None:
        return None
    from chronoline.console.app import Console  # noqa: PLC0415 - as in `_start_broker`

    return partial(
        Console,
        logs=settings.logs,
        timers=None if timers is None else timers.node,
        resync=None if timers is None else timers.resync,
    )


def _member(settings: NodeSettings) -> MemberOptions:
    return MemberOptions(
        name=settings.name or "",
        rack=settings.rack or "",
        advertise=settings.advertise or "",
        roles=settings.broker_roles,
        ttl_ms=settings.session_ttl_ms,
        margin_ms=settings.session_margin_ms,
    )


# Timers


async def _start_timers(
    settings: NodeSettings,
    options: ServiceOptions,
    door: Door,
    exits: AsyncExitStack,
    caller: Caller,
) -> TimerService:
    """SIGHUP reads the list of nodes again, SIGUSR1 resyncs."""
    # Without these imports a broker without timers starts faster.
    from chronoline.node.timer_auth import request_check  # noqa: PLC0415
    from chronoline.node.timer_service import TimerService  # noqa: PLC0415

    service = TimerService(options, admits=request_check(door), caller=caller)

    def on_signal(do: Callable[[TimerService], Coroutine[Any, Any, None]]) -> None:
        if service.node is not None and service.is_started:
            service.node.start_work(do(service))
        else:  # it is about to read the list, and to query all nodes
            logger.info("the node is starting: the signal is ignored")

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, on_signal, _reload)
    loop.add_signal_handler(signal.SIGUSR1, on_signal, _resync)
    await exits.enter_async_context(service)
    return service


def _timer_options(settings: NodeSettings, door: Door) -> ServiceOptions:
    from chronoline.node.timer_service import ServiceOptions  # noqa: PLC0415 - as in `_start_timers`
    from chronoline.timers.replica import Attempts  # noqa: PLC0415 - as in `_start_timers`

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
        peer_tls=None if door.tls is None else client_context(_path(replication.ca), door.tls),
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


async def _reload(service: TimerService) -> None:
    audit.local("timers_reload", "SIGHUP")
    try:
        await service.reload()
    except InvalidInput as error:
        logger.error("the old list of nodes stays: %s", error, extra={"action": "reload_failed"})


async def _resync(service: TimerService) -> None:
    audit.local("timers_resync", "SIGUSR1")
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
