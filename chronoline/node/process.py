"""A node as this process: from its start to the signal that stops it."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import logging
import os
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager, nullcontext
from pathlib import Path

from chronoline.broker.auth import Door
from chronoline.core.errors import InvalidInput
from chronoline.node.auth import open_door
from chronoline.node.banner import banner
from chronoline.node.roles import start_roles
from chronoline.node.settings import Listener, NodeSettings
from chronoline.node.trace_exporter import export_traces
from chronoline.runtime.descriptors import raise_limit
from chronoline.runtime.gc_tuning import search_seldom
from chronoline.runtime.private_files import open_private
from chronoline.runtime.signals import stop_on_signal
from chronoline.runtime.store_url import scheme_of, sqlite_path
from chronoline.stores.contract import Store
from chronoline.stores.factory import open_store

logger = logging.getLogger(__name__)

_ANY_BYTES = 4_096


def run_node(settings: NodeSettings, *, quiet: bool = False, until_eof: bool = False) -> None:
    """Runs until SIGTERM or SIGINT, or the end of stdin. Raises if the node cannot start."""
    raise_limit()
    door = open_door(settings)
    _check_all_free(settings)
    opened = open_store(settings.store) if settings.has_broker else nullcontext()
    stop, runner = asyncio.Event(), asyncio.Runner()
    loop = runner.get_loop()

    def ask() -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(stop.set)

    with stop_on_signal(ask), opened as store, _known_to_neighbours(settings), runner:
        runner.run(_serve(settings, store, door, stop, quiet=quiet, until_eof=until_eof))


@contextmanager
def _known_to_neighbours(settings: NodeSettings) -> Iterator[None]:
    """Warns if another node uses the SQLite store. Both serve its messages, each to its own consumers."""
    if not settings.has_broker or scheme_of(settings.store) != "sqlite":
        yield
        return
    path = Path(sqlite_path(settings.store))
    with open_private(path.with_name(f"{path.name}.lock"), "ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            logger.warning(
                "another node uses %s too, and its consumers get a part of the messages; stop one of the "
                "two, or name another folder by --data",
                path,
                extra={"action": "shared_store"},
            )
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield


async def _serve(
    settings: NodeSettings,
    store: Store | None,
    door: Door,
    stop: asyncio.Event,
    *,
    quiet: bool,
    until_eof: bool,
) -> None:
    if until_eof:
        _stop_at_eof(stop)
    async with export_traces(settings), AsyncExitStack() as exits:
        starting = asyncio.create_task(start_roles(settings, store, door, exits))
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            where = starting.result()
            search_seldom()
            if not quiet:
                _announce(settings, where, door)
        else:
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
        await stopping
        logger.info("stopping: clients are disconnected", extra={"action": "stopping"})
    logger.info("stopped", extra={"action": "stopped"})


def _announce(settings: NodeSettings, where: Mapping[str, str], door: Door) -> None:
    if settings.log_format == "json":
        fields = {"action": "started", **where}
        if settings.has_broker:
            fields["store"] = settings.shown_store
        logger.info("listening at %s", " and ".join(where.values()), extra=fields)
    else:
        print("\n".join(banner(settings, where, door)), flush=True)


def _check_all_free(settings: NodeSettings) -> None:
    """Raises `InvalidInput` that names all addresses that are taken."""
    found = []
    for name, listener in settings.listeners.items():
        try:
            check_free(listener, f"--{name}")
        except InvalidInput as error:
            found.append(str(error))
    if found:
        raise InvalidInput("\n".join(found))


def check_free(listener: Listener, flag: str) -> None:
    """Raises `InvalidInput` for an address that is taken, before anything is opened."""
    family = socket.AF_INET6 if ":" in listener.host else socket.AF_INET
    try:
        with socket.create_server((listener.host, listener.port), family=family):
            pass
    except OSError as error:
        address = listener.at(listener.port)
        if error.errno == errno.EADDRINUSE:
            words = f"{address} is taken, perhaps by another node"
        else:
            why = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
            words = f"{address} cannot be listened at: {why}"
        raise InvalidInput(f"{words}; name another address by {flag}") from None


def _stop_at_eof(stop: asyncio.Event) -> None:
    """Stops the node when stdin ends; ignores its bytes."""
    loop = asyncio.get_running_loop()
    descriptor = sys.stdin.fileno()

    def look() -> None:
        if not os.read(descriptor, _ANY_BYTES):
            loop.remove_reader(descriptor)
            stop.set()

    try:
        loop.add_reader(descriptor, look)
    except PermissionError:  # a file, or the null device: nobody keeps it open for us
        stop.set()
