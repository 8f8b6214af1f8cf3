"""The sockets of this process at a port: strangers are closed when they are old or many."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from chronoline.broker.grpc.connections import SILENCE_S, GrpcConnections


@contextmanager
def _connected(count: int) -> Iterator[tuple[int, list[socket.socket]]]:
    """A port, and connections to it whose other side is in this process too."""
    with ExitStack() as exits:
        server = exits.enter_context(socket.create_server(("127.0.0.1", 0)))
        port = server.getsockname()[1]
        clients = []
        for _ in range(count):
            clients.append(exits.enter_context(socket.create_connection(("127.0.0.1", port))))
            exits.enter_context(server.accept()[0])
        for client in clients:
            client.setblocking(False)
        yield port, clients


def _address(client: socket.socket) -> str:
    host, port = client.getsockname()
    return f"{host}:{port}"


def _is_open(client: socket.socket) -> bool:
    try:
        return client.recv(1) != b""
    except BlockingIOError:
        return True


def test_oldest_strangers_give_way_when_they_are_many() -> None:
    with _connected(5) as (port, clients):
        connections = GrpcConnections(port, most_strangers=2)
        connections.know(_address(clients[0]))
        connections.check(0.0)
        assert [_is_open(client) for client in clients].count(True) == 3
        assert _is_open(clients[0])
        assert connections.closed == 2


def test_stranger_has_some_seconds() -> None:
    with _connected(2) as (port, clients):
        connections = GrpcConnections(port, most_strangers=10)
        connections.check(0.0)
        connections.know(_address(clients[1]))
        connections.check(SILENCE_S - 1)
        assert all(map(_is_open, clients))
        connections.check(SILENCE_S)
        assert list(map(_is_open, clients)) == [False, True]
        assert connections.closed == 1


def test_other_ports_are_left_alone() -> None:
    with _connected(2) as (port, clients), _connected(1) as (_, others):
        connections = GrpcConnections(port, most_strangers=0)
        connections.check(0.0)
        assert not any(map(_is_open, clients))
        assert all(map(_is_open, others))


def test_proof_ends_with_its_connection() -> None:
    with _connected(1) as (port, clients):
        connections = GrpcConnections(port, most_strangers=0)
        connections.know(_address(clients[0]))
        connections.check(0.0)
        assert _is_open(clients[0])
        empty = GrpcConnections(port + 1, most_strangers=0)
        empty.know(_address(clients[0]))
        empty.check(0.0)  # there is no such connection at this port
        assert not empty.known


def test_address_of_a_connection_has_one_form() -> None:
    connections = GrpcConnections(1, most_strangers=0)
    for address in (
        "127.0.0.1:1",
        "[::ffff:127.0.0.1]:1",
        "[::1]:2",
        "[fe80::1%eth0]:3",
        "a socket",
    ):
        connections.know(address)
    assert connections.known == {"127.0.0.1:1", "[::1]:2", "[fe80::1]:3"}


def test_connection_that_cannot_be_seen_stays_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def short(_: object) -> list[str]:
        raise OSError(errno.EMFILE, "too many open files")

    with _connected(1) as (port, clients):
        connections = GrpcConnections(port, most_strangers=0)
        connections.know(_address(clients[0]))
        with monkeypatch.context() as patched:
            patched.setattr(os, "listdir", short)
            connections.check(0.0)
        connections.check(0.0)
        assert _is_open(clients[0])
