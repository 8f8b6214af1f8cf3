"""File descriptors of a process: their division among its parts, and shortages of them.

A node needs descriptors for its store, its peers and its calls, and any client can open connections to it. So
each listener has a bounded part of them, calls have another, and the rest is for the node itself.

A shortage of this process (descriptors, memory, ports, threads) is not the receiver's failure: `shortage_of`
tells it apart; it is logged, counted, and the call is made again later.
"""

from __future__ import annotations

import errno
import logging
import os
import resource
import socket
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass

logger = logging.getLogger(__name__)

_OWN = 96
"""For the store, the journal, logs, event loops and libraries: an idle node has about fifty."""
_OF_A_PEER = 4
_BEYOND_THE_CAP = 32
"""The margin of a listener: connections that it refuses or has just closed."""
_LEAST_CALLS = 16
_LEAST_CONNECTIONS = 8
_PROBED = 4
"""With fewer descriptors than this a name cannot be resolved."""
_TELL_EVERY_S = 10.0

_RESOURCES = {
    errno.EMFILE: "descriptors",
    errno.ENFILE: "descriptors",
    errno.ENOMEM: "memory",
    errno.ENOBUFS: "memory",
    errno.EAGAIN: "threads",
}


def raise_limit() -> int:
    """Raises the soft limit of descriptors to the hard one, and returns it.

    The soft limit is low for programs that use `select`; a server raises its own.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(OSError, ValueError):  # the system may have a lower limit of its own
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return limit()


def limit() -> int:
    """The number of descriptors that the process may have."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**31 if soft == resource.RLIM_INFINITY else soft


@dataclass(frozen=True, slots=True)
class Shares:
    """The number of descriptors for each part of a node."""

    connections: int
    """The connections of each listener."""
    calls: int


def share_out(descriptors: int, *, listeners: int, peers: int, calls: int) -> Shares:
    """Calls get up to a third of the descriptors besides the node's own; listeners share the rest."""
    free = descriptors - _OWN - peers * _OF_A_PEER - listeners * _BEYOND_THE_CAP
    calls = min(calls, max(free // 3, _LEAST_CALLS))
    return Shares(max((free - calls) // max(listeners, 1), _LEAST_CONNECTIONS), calls)


# Shortages


def shortage_of(error: BaseException, *, host: str = "") -> str | None:
    """The resource that this process has run short of, if the error means that.

    `host` is the address that could not be reached.
    """
    if isinstance(error, MemoryError):
        return "memory"
    if isinstance(error, RuntimeError) and "can't start new thread" in str(error):
        return "threads"
    if isinstance(error, socket.gaierror):
        return _shortage_of_lookup(error)
    if isinstance(error, OSError) and error.errno == errno.EADDRNOTAVAIL:
        return "ports" if _has_route(host) else None
    return _RESOURCES.get(error.errno or 0) if isinstance(error, OSError) else None


def _shortage_of_lookup(error: socket.gaierror) -> str | None:
    """A resolution without a descriptor fails like one without an answer; so descriptors are tried."""
    if error.errno == socket.EAI_MEMORY:
        return "memory"
    return "descriptors" if is_out_of_descriptors() else None


def _has_route(host: str) -> bool:
    """Tells a machine without a free port from one without an address of that family.

    Connecting a datagram socket sends nothing, and takes a port of another kind.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, 9, type=socket.SOCK_DGRAM, flags=socket.AI_NUMERICHOST
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(address)
    except OSError:
        return False
    return True


def is_out_of_descriptors() -> bool:
    """Whether there are too few to open a file or two."""
    opened: list[int] = []
    try:
        for _ in range(_PROBED):
            opened.append(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return error.errno in (errno.EMFILE, errno.ENFILE)
    finally:
        for each in opened:
            os.close(each)
    return False


class Shortages:
    """Counts shortages by resource, and logs them at intervals."""

    def __init__(self) -> None:
        self.counted: Counter[str] = Counter()
        self._tell_s = 0.0

    def note(self, resource_name: str, what: str) -> None:
        """Notes that `what` failed by a shortage, and is tried again."""
        self.counted[resource_name] += 1
        now_s = time.monotonic()
        if now_s < self._tell_s:
            return
        self._tell_s = now_s + _TELL_EVERY_S
        logger.error(
            "this process is short of %s: %s waits, and is tried again",
            resource_name,
            what,
            extra={"action": "shortage", "resource": resource_name},
        )


SHORTAGES = Shortages()
"""The shortages of this process, whose parts share its resources."""
