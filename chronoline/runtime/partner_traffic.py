"""Traffic between this process and one partner, such as a database or etcd."""

from __future__ import annotations

import socket
import struct
import sys
import threading

_COUNTS = struct.Struct("@120xQQ")
"""Of Linux's `tcp_info`: the bytes that the peer has acknowledged, and those that came from it."""


class PartnerTraffic:
    """Counts bytes to and from a partner, and keeps the last time on the way to it. Any thread may call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.out_bytes = 0
        self.in_bytes = 0
        self.latency_ms: float | None = None
        """Half of the last round trip that was measured."""

    def moved(self, *, out_bytes: int = 0, in_bytes: int = 0) -> None:
        """Counts bytes that went out, and that came in."""
        with self._lock:
            self.out_bytes += out_bytes
            self.in_bytes += in_bytes

    def answered(self, took_s: float) -> None:
        """Notes a round trip."""
        self.latency_ms = took_s / 2 * 1_000


def socket_bytes(descriptor: int) -> tuple[int, int] | None:
    """The bytes that went out on a TCP connection, and that came in; None where the system does not tell.

    They are those on the wire: with TLS the encrypted ones.
    """
    if sys.platform != "linux":
        return None
    connection = socket.socket(fileno=descriptor)
    try:
        told = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _COUNTS.size)
    except OSError:  # a Unix socket
        return None
    finally:
        connection.detach()  # it is another's
    if len(told) < _COUNTS.size:
        return None
    out_bytes, in_bytes = _COUNTS.unpack(told)
    return out_bytes, in_bytes
