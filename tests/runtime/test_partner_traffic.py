"""Traffic: counts of bytes, and those that the system knows of a connection."""

import socket

from chronoline.runtime.partner_traffic import PartnerTraffic, socket_bytes


def test_traffic_adds_bytes_and_keeps_the_last_latency() -> None:
    traffic = PartnerTraffic()
    assert traffic.latency_ms is None
    traffic.moved(out_bytes=3)
    traffic.moved(out_bytes=2, in_bytes=7)
    assert (traffic.out_bytes, traffic.in_bytes) == (5, 7)
    for took_s in (0.5, 0.004):
        traffic.answered(took_s)
    assert traffic.latency_ms == 2.0


def test_bytes_of_a_connection_are_counted_and_it_stays_open() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as one,
        server.accept()[0] as other,
    ):
        before = socket_bytes(one.fileno())
        one.sendall(b"four")
        assert other.recv(10) == b"four"
        other.sendall(b"sixsix")
        assert one.recv(10) == b"sixsix"
        after = socket_bytes(one.fileno())
        assert before is not None
        assert after is not None
        assert (after[0] - before[0], after[1] - before[1]) == (4, 6)


def test_connection_that_is_no_tcp_has_no_counts() -> None:
    one, other = socket.socketpair()
    with one, other:
        assert socket_bytes(one.fileno()) is None
