"""A node in this process: started, told of, and stopped when a signal says so."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

from chronoline import __version__
from chronoline.broker.auth import Door, Tls, Tokens, check_listener
from chronoline.broker.limits import Limits
from chronoline.broker.settings import DEFAULT_GRPC, Listener, NodeSettings
from chronoline.callbacks.address_guard import Guard
from chronoline.callbacks.caller import Caller, CallLimits
from chronoline.callbacks.signature import Signer
from chronoline.cli.node.timers import first_timer, start_timers
from chronoline.core.errors import InvalidInput
from chronoline.runtime.admission import Admission
from chronoline.runtime.descriptors import limit, raise_limit
from chronoline.runtime.gc_tuning import search_seldom
from chronoline.stores.contract import Store
from chronoline.stores.factory import open_store

logger = logging.getLogger(__name__)

_ANYWHERE = ("0.0.0.0", "::")
_ANY_BYTES = 4_096


def run_node(settings: NodeSettings, *, quiet: bool = False, until_eof: bool = False) -> None:
    """Until SIGTERM or SIGINT, or the end of its input. Raises what keeps it from starting."""
    raise_limit()
    door = open_door(settings)
    for flag, listener in _listeners(settings).items():
        check_free(listener, flag)
    opened = open_store(settings.store) if settings.has_broker else nullcontext()
    with opened as store:
        asyncio.run(_serve(settings, store, door, quiet=quiet, until_eof=until_eof))


async def _serve(
    settings: NodeSettings, store: Store | None, door: Door, *, quiet: bool, until_eof: bool
) -> None:
    told = asyncio.Event()
    if until_eof:
        _watch_input(told)
    with _asking(told):
        async with AsyncExitStack() as exits:
            starting = asyncio.create_task(_start(settings, store, door, exits))
            telling = asyncio.create_task(told.wait())
            await asyncio.wait({starting, telling}, return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                where = starting.result()
                search_seldom()
                if not quiet:
                    _announce(settings, where, door)
            else:
                starting.cancel()
                await asyncio.gather(starting, return_exceptions=True)
            await telling
            logger.info("stopping: clients are told to go", extra={"action": "stopping"})
    logger.info("stopped", extra={"action": "stopped"})


async def _start(
    settings: NodeSettings, store: Store | None, door: Door, exits: AsyncExitStack
) -> dict[str, str]:
    """Where it listens."""
    where: dict[str, str] = {}
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
    limits = replace(settings.limits.limits(), connections=shares.connections)
    admission = limits.admission()
    caller = await exits.enter_async_context(_caller(settings, shares.calls))
    if settings.has_timers:
        where["timers"] = await start_timers(
            settings, door, exits, caller, admission=admission, connections=limits.connections
        )
    if store is not None:
        where |= await _start_broker(
            settings, store, door, exits, caller, limits=limits, admission=admission
        )
    return where


def _caller(settings: NodeSettings, in_all: int) -> Caller:
    """One for all that the node calls."""
    callbacks = settings.callbacks
    limits = CallLimits(
        for_each_host=callbacks.for_each_host,
        in_all=in_all,
        timeout_ms=callbacks.timeout_ms,
    )
    return Caller(Guard(settings.may_call), limits=limits)


async def _start_broker(
    settings: NodeSettings,
    store: Store,
    door: Door,
    exits: AsyncExitStack,
    caller: Caller,
    *,
    limits: Limits,
    admission: Admission,
) -> dict[str, str]:
    """Where it listens."""
    # A node of timers alone starts in two thirds of the time without them.
    from chronoline.broker.metrics import BrokerMetrics  # noqa: PLC0415
    from chronoline.broker.node import Node  # noqa: PLC0415
    from chronoline.broker.targets.calls import Calls  # noqa: PLC0415

    callbacks, secret = settings.callbacks, settings.callbacks.secret
    node = Node(
        store,
        limits=limits,
        admission=admission,
        door=door,
        metrics=BrokerMetrics(settings.cluster, settings.tags),
        patience_s=settings.patience_ms / 1000,
        calls=Calls(
            caller=caller,
            signer=None if secret is None else Signer(secret.get_secret_value()),
            first_wait_ms=callbacks.first_wait_ms,
            longest_wait_ms=callbacks.longest_wait_ms,
        ),
    )
    exits.push_async_callback(node.stop)
    grpc, http = settings.grpc_listener, settings.http_listener
    at_http = () if http is None else (http.host, http.port)
    await node.start(grpc.bracketed, grpc.port, *at_http)
    assert node.grpc is not None
    where = {"grpc": f"{grpc.bracketed}:{node.grpc.port}"}
    if http is not None and node.http is not None:
        where["http"] = f"{door.scheme}://{http.bracketed}:{node.http.port}"
    return where


# Before it starts


def _listeners(settings: NodeSettings) -> dict[str, Listener]:
    """By the options that name them."""
    found: dict[str, Listener | None] = {}
    if settings.has_broker:
        found |= {"--grpc": settings.grpc_listener, "--http": settings.http_listener}
    if settings.has_timers:
        found["--timers"] = settings.timers_listener
    return {flag: listener for flag, listener in found.items() if listener is not None}


def open_door(settings: NodeSettings) -> Door:
    """Its tokens and certificates. Raises `InvalidInput` for an address that they do not suffice for."""
    tokens, tls = Tokens(settings.tokens_file), None
    if settings.tls_certificate is not None and settings.tls_key is not None:
        tls = Tls(certificate=Path(settings.tls_certificate), key=Path(settings.tls_key))
    door = Door(tokens, tls, allowed_hosts=settings.allowed_hosts)
    door.ssl_context()  # what is wrong with the files is said now, and in words
    for listener in _listeners(settings).values():
        check_listener(listener.host, door, insecure=settings.insecure)
    return door


def check_free(listener: Listener, flag: str) -> None:
    """Tells of an address that cannot be had before anything is opened, and in plain words."""
    family = socket.AF_INET6 if ":" in listener.host else socket.AF_INET
    try:
        with socket.create_server((listener.host, listener.port), family=family):
            pass
    except OSError as error:
        address = f"{listener.bracketed}:{listener.port}"
        if error.errno == errno.EADDRINUSE:
            words = f"{address} is taken, perhaps by another node"
        else:
            why = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
            words = f"{address} cannot be listened at: {why}"
        raise InvalidInput(f"{words}; name another address by {flag}") from None


# Signals


@contextmanager
def _asking(told: asyncio.Event) -> Iterator[None]:
    """The first signal asks the node to stop; a second one ends the process at once."""
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGTERM, signal.SIGINT)

    def ask() -> None:
        told.set()
        for number in numbers:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)

    for number in numbers:
        loop.add_signal_handler(number, ask)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


def _watch_input(told: asyncio.Event) -> None:
    """Asks the node to stop when its input ends; what comes before that is thrown away."""
    loop = asyncio.get_running_loop()
    descriptor = sys.stdin.fileno()

    def look() -> None:
        if not os.read(descriptor, _ANY_BYTES):
            loop.remove_reader(descriptor)
            told.set()

    loop.add_reader(descriptor, look)


# Telling


def _announce(settings: NodeSettings, where: Mapping[str, str], door: Door) -> None:
    if settings.log_format == "json":
        fields = {"action": "started", **where}
        if settings.has_broker:
            fields["store"] = settings.shown_store
        logger.info("listening at %s", " and ".join(where.values()), extra=fields)
    else:
        print("\n".join(_banner(settings, where, door)), flush=True)


def _banner(settings: NodeSettings, where: Mapping[str, str], door: Door) -> Iterator[str]:
    yield f"Chronoline {__version__} is up. Ctrl-C stops it."
    yield ""
    if "grpc" in where:
        yield f"  gRPC    {where['grpc']}"
    if "http" in where:
        yield f"  HTTP    {where['http']}   (the API under /v1; /metrics, /openapi.json)"
    if "timers" in where:
        yield f"  timers  {where['timers']}   (POST /timers; /metrics)"
    if settings.has_broker:
        yield f"  store   {settings.shown_store}"
    yield f"  doors   {_doors(settings, door)}"
    yield f"  calls   the public internet, and {', '.join(settings.may_call) or 'nothing else'}"
    if "timers" in where and Guard(settings.may_call).lets_out("127.0.0.1"):
        yield ""
        yield "Set the first timer, in another terminal:"
        yield ""
        yield from (f"  {line}" for line in first_timer(where["timers"], door))
    if "grpc" in where:
        yield ""
        yield "Send the first message, in another terminal:"
        yield ""
        yield from (f"  {line}" for line in _first_message(settings, where["grpc"], door))
    yield ""


def _doors(settings: NodeSettings, door: Door) -> str:
    words = "TLS" if door.tls else "no TLS"
    words += ", a token is needed" if door.asks else ", no token is needed"
    return words + (" (insecure)" if settings.insecure else "")


def _first_message(settings: NodeSettings, grpc: str, door: Door) -> Iterator[str]:
    if settings.grpc_listener.host in _ANYWHERE:
        grpc = f"127.0.0.1:{grpc.rpartition(':')[2]}"
    if grpc != DEFAULT_GRPC:
        yield f"export CHRONOLINE_ADDRESS={grpc}"
    if door.asks:
        yield "export CHRONOLINE_TOKEN=…       # as `chronoline token create` printed it"
    tls = " --tls" if door.tls else ""
    yield f"chronoline topic create reminders{tls}"
    yield f"chronoline send reminders --in 5s --body hello{tls}"
    yield f"chronoline receive reminders{tls}"
