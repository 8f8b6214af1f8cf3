"""Silent cuts: connections stay open, nothing passes, and afterwards everything arrives."""

from __future__ import annotations

import asyncio
import socket
import sys
from pathlib import Path

import pytest

from chronoline.runtime.child_process import LineProcess, free_addresses
from tests.broker.tcp_proxy import tcp_proxy
from tests.torture.cluster.namespaces import make_namespaces

_SILENT_S = 0.3
_PATIENCE_S = 30.0
_ECHO = """
import socket, sys
with socket.create_server((sys.argv[1], int(sys.argv[2]))) as server:
    print("listens", flush=True)
    peer, _ = server.accept()
    while said := peer.recv(100):
        peer.sendall(said)
"""


def _echo(*prefix: str, address: str) -> LineProcess:
    """A process that returns what one connection sends."""
    host, _, port = address.rpartition(":")
    return LineProcess([*prefix, sys.executable, "-c", _ECHO, host, port])


def _is_silent(way: socket.socket) -> bool:
    way.settimeout(_SILENT_S)
    try:
        way.recv(100)
    except TimeoutError:
        return True
    finally:
        way.settimeout(_PATIENCE_S)
    return False


def test_silent_proxy_passes_everything_later() -> None:
    (address,) = free_addresses(1)

    async def run() -> None:
        async with tcp_proxy(address) as proxy:
            host, _, port = proxy.address.rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(b"one")
            assert await reader.read(100) == b"one"
            proxy.silence()
            writer.write(b"two")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(reader.read(100), _SILENT_S)
            proxy.heal()
            assert await asyncio.wait_for(reader.read(100), _PATIENCE_S) == b"two"
            writer.close()

    with _echo(address=address) as server:
        server.read_line("listens")
        asyncio.run(run())


def test_cut_namespace_loses_packets_of_one_part() -> None:
    namespaces = make_namespaces(1)
    if not namespaces:
        return  # without root, proxies keep silent instead
    (namespace,) = namespaces
    try:
        address = f"{namespace.inside('clients')}:20000"
        with _echo(*namespace.command([]), address=address) as server:
            server.read_line("listens")
            with socket.create_connection(
                (namespace.inside("clients"), 20_000), _PATIENCE_S
            ) as way:
                namespace.cut("etcd")
                way.sendall(b"one")
                assert way.recv(100) == b"one"
                namespace.cut("clients")
                way.sendall(b"two")
                assert _is_silent(way)
                namespace.heal("clients")
                assert way.recv(100) == b"two"
    finally:
        namespace.remove()
    assert not Path(f"/run/netns/{namespace.name}").exists()
