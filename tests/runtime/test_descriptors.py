"""Descriptors: their shares, and the errors that are local shortages."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys

import pytest

from chronoline.runtime.descriptors import Shares, share_out, shortage_of


def test_calls_and_listeners_share_the_spare_descriptors() -> None:
    assert share_out(20_000, listeners=3, peers=0, calls=1_000) == Shares(6_269, 1_000)
    few = share_out(256, listeners=1, peers=16, calls=1_000)
    assert few == Shares(43, 21)
    assert few.connections + few.calls + 96 + 16 * 4 + 32 == 256


def test_small_limit_still_gives_a_few_of_each() -> None:
    assert share_out(20, listeners=3, peers=0, calls=1_000) == Shares(8, 16)


@pytest.mark.parametrize(
    ("error", "resource"),
    [
        (OSError(errno.EMFILE, ""), "descriptors"),
        (OSError(errno.ENFILE, ""), "descriptors"),
        (OSError(errno.ENOMEM, ""), "memory"),
        (OSError(errno.ENOBUFS, ""), "memory"),
        (MemoryError(), "memory"),
        (socket.gaierror(socket.EAI_MEMORY, ""), "memory"),
        (RuntimeError("can't start new thread"), "threads"),
        (ConnectionRefusedError(errno.ECONNREFUSED, ""), None),
        (OSError("no number"), None),
        (TimeoutError(), None),
        (socket.gaierror(socket.EAI_NONAME, ""), None),
        (RuntimeError("something else"), None),
    ],
)
def test_errors_that_are_local_shortages(error: Exception, resource: str | None) -> None:
    assert shortage_of(error) == resource


def test_missing_port_is_a_shortage_for_routable_addresses() -> None:
    error = OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
    assert shortage_of(error, host="127.0.0.1") == "ports"
    assert shortage_of(error, host="not-an-address") is None


def test_lookup_without_descriptors_is_a_shortage() -> None:
    program = """
import os, resource, socket
from chronoline.runtime.descriptors import limit, raise_limit, shortage_of

before = limit()
print(before, raise_limit())
opened = []
try:
    while True:
        opened.append(os.open(os.devnull, os.O_RDONLY))
except OSError as error:
    print(shortage_of(error))
for error in (socket.gaierror(socket.EAI_AGAIN, ""), socket.gaierror(socket.EAI_SYSTEM, "")):
    print(shortage_of(error))
"""
    ended = subprocess.run(
        ["sh", "-c", 'ulimit -Sn 32; ulimit -Hn 64; exec "$0" -c "$1"', sys.executable, program],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert ended.stdout.split() == ["32", "64", *["descriptors"] * 3]
