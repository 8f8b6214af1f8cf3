"""Certificates of brokers and of clients, over gRPC."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509

from chronoline.broker import auth
from chronoline.broker.tokens import Tokens
from chronoline.client import Client, Tls
from chronoline.core.errors import BrokerUnavailable, Forbidden, InvalidInput, Unauthenticated
from chronoline.core.rights import Rights
from chronoline.stores.memory import MemoryStore
from chronoline.testing.broker import LocalBroker
from chronoline.wire.v1 import chronoline_pb2 as pb
from tests.certificates import Authority

_ENDED = timedelta(days=-1)
_PATIENCE_S = 10.0
_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
"""The preface of HTTP/2, and empty settings."""
Serve = Callable[[auth.ServerTls, Tokens | None], str]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def serve(chronoline_store: MemoryStore) -> Iterator[Serve]:
    with ExitStack() as exits:

        def start(tls: auth.ServerTls, tokens: Tokens | None) -> str:
            door = auth.Door(tokens, tls)
            return exits.enter_context(LocalBroker(chronoline_store, door=door)).address

        yield start


def _node(authority: Authority, *, asks: bool = True) -> auth.ServerTls:
    certificate, key = authority.issue("node")
    return auth.ServerTls(
        certificate=certificate, key=key, client_ca=authority.file if asks else None
    )


def _topics(address: str, tls: Tls, token: str | None = None) -> list[str]:
    with Client(address, tls=tls, token=token) as client:
        return [each.name for each in client.topics()]


def test_name_in_a_certificate_has_its_rights(
    tmp_path: Path, authority: Authority, serve: Serve
) -> None:
    tokens = Tokens(tmp_path / "tokens.json")
    token = tokens.create("ops")
    rights = Rights.parse(["produce:orders:billing"])
    tokens.admit_certificate("billing", "billing.example", rights)
    address = serve(_node(authority), tokens)
    known = Tls(authority.file, *authority.issue("billing.example"))
    other = Tls(authority.file, *authority.issue("other.example"))
    with Client(address, tls=other, token=token) as client:
        client.create_topic("orders")
    with Client(address, tls=known, producer_group="billing") as client:
        client.send("orders", b"x")
        with pytest.raises(
            Forbidden, match="certificate 'billing' does not have the right observe"
        ):
            client.count("orders")
    for tls, shown in ((other, None), (known, "wrong")):  # a wrong token is not made good
        with pytest.raises(Unauthenticated):
            _topics(address, tls, shown)
    tokens.revoke("billing")
    with pytest.raises(Unauthenticated):
        _topics(address, known)


@pytest.mark.parametrize(
    "name",
    [
        x509.DNSName("billing.example"),
        x509.UniformResourceIdentifier("spiffe://example/billing"),
    ],
)
def test_alternative_names_in_a_certificate_have_their_rights(
    name: x509.DNSName | x509.UniformResourceIdentifier,
    tmp_path: Path,
    authority: Authority,
    serve: Serve,
) -> None:
    tokens = Tokens(tmp_path / "tokens.json")
    tokens.admit_certificate("billing", name.value, Rights.parse(["observe"]))
    address = serve(_node(authority), tokens)
    assert _topics(address, Tls(authority.file, *authority.issue("any", name))) == []


def test_mail_address_in_a_certificate_has_no_rights(
    tmp_path: Path, authority: Authority, serve: Serve
) -> None:
    tokens = Tokens(tmp_path / "tokens.json")
    tokens.admit_certificate("billing", "me@billing.example", Rights.parse(["observe"]))
    address = serve(_node(authority), tokens)
    typed = authority.issue("any", x509.RFC822Name("me@billing.example"))
    with pytest.raises(Unauthenticated):
        _topics(address, Tls(authority.file, *typed))


def test_revoked_certificate_ends_open_streams(
    tmp_path: Path, authority: Authority, serve: Serve
) -> None:
    tokens = Tokens(tmp_path / "tokens.json")
    tokens.create("ops")
    tokens.admit_certificate("me", "me")
    tls = Tls(authority.file, *authority.issue("me"))
    with Client(serve(_node(authority), tokens), tls=tls) as client:
        client.create_topic("t")
        client.send("t", b"x")
        leases = client.consume("t")
        next(leases)
        tokens.revoke("me")  # while both streams are open
        with pytest.raises(Unauthenticated):
            next(leases)


class Clock:
    """The time of a door, which a test can move."""

    ahead = timedelta()

    def now_s(self) -> float:
        return time.time() + self.ahead.total_seconds()


def test_expired_certificate_is_refused_on_an_open_connection(
    tmp_path: Path, authority: Authority, chronoline_store: MemoryStore
) -> None:
    clock, tokens = Clock(), Tokens(tmp_path / "tokens.json")
    token = tokens.create("ops")  # it does not stand for the certificate
    certificate, key = authority.issue("me")
    credentials = grpc.ssl_channel_credentials(
        authority.file.read_bytes(), key.read_bytes(), certificate.read_bytes()
    )
    shown = (("authorization", f"Bearer {token}"),)
    door = auth.Door(tokens, _node(authority), now_s=clock.now_s)
    with (
        LocalBroker(chronoline_store, door=door) as broker,
        grpc.secure_channel(broker.address, credentials) as channel,
    ):
        ask: Any = channel.unary_unary("/chronoline.v1.Overseer/Info")
        consume: Any = channel.stream_stream("/chronoline.v1.Carrier/Consume")
        hello = pb.ConsumerFrame(hello=pb.Hello(name="c"))
        asked = threading.Event()

        def frames() -> Iterator[bytes]:
            yield hello.SerializeToString()
            asked.wait()

        replies = consume(frames(), metadata=shown)
        assert pb.ConsumerReply.FromString(next(replies)).HasField("welcome")
        ask(b"", metadata=shown)
        clock.ahead = timedelta(days=2)
        with pytest.raises(grpc.RpcError) as caught:
            ask(b"", metadata=shown)
        assert "certificate has expired" in str(caught.value)
        last = [pb.ConsumerReply.FromString(reply) for reply in replies][-1]
        assert last.go_away.code == "certificate_expired"
        asked.set()


def test_client_goes_on_with_its_new_certificate_when_the_old_one_ends(
    authority: Authority, chronoline_store: MemoryStore
) -> None:
    clock = Clock()
    door = auth.Door(None, _node(authority), now_s=clock.now_s)
    tls = Tls(authority.file, *authority.issue("me"))
    with LocalBroker(chronoline_store, door=door) as broker, Client(broker.address, tls=tls) as c:
        c.create_topic("t")
        c.send("t", b"x")
        leases = c.consume("t")
        next(leases)
        authority.issue("me", ends_in=timedelta(days=4))
        clock.ahead = timedelta(days=2)
        assert [topic.name for topic in c.topics()] == ["t"]
        c.send("t", b"y")
        assert next(leases).body == b"y"


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_no_session_is_resumed_without_the_certificate(
    version: ssl.TLSVersion, authority: Authority, serve: Serve
) -> None:
    host, _, port = serve(_node(authority), None).rpartition(":")
    certificate, key = authority.issue("me")
    context = ssl.create_default_context(cafile=authority.file)
    context.load_cert_chain(certificate, key)
    context.set_alpn_protocols(["h2"])
    context.maximum_version = version
    session = None
    for _ in range(2):
        with (
            socket.create_connection((host, int(port)), _PATIENCE_S) as plain,
            context.wrap_socket(plain, server_hostname=host, session=session) as secured,
        ):
            secured.sendall(_HELLO)
            assert secured.recv(1)  # it was let in, and its tickets came before this
            assert not secured.session_reused
            session = secured.session


def test_connection_needs_a_certificate_of_the_authority(
    tmp_path: Path, authority: Authority, serve: Serve
) -> None:
    address = serve(_node(authority), None)
    stranger = Authority(tmp_path / "stranger", "stranger")
    for tls, words in (
        (Tls(authority.file), "may ask for a certificate of the client"),
        (Tls(authority.file, *authority.issue("old", ends_in=_ENDED)), "may have expired"),
        (Tls(authority.file, *stranger.issue("me")), "authority that it does not trust"),
    ):
        with pytest.raises(BrokerUnavailable, match=words):
            _topics(address, tls)
    assert _topics(address, Tls(authority.file, *authority.issue("me"))) == []


def test_untrusted_broker_is_named(tmp_path: Path, authority: Authority, serve: Serve) -> None:
    tls = _node(authority, asks=False)
    address = serve(tls, None)
    other = Authority(tmp_path / "other", "other")
    with pytest.raises(
        BrokerUnavailable, match="certificate that is not trusted; name its authority"
    ):
        _topics(address, Tls(other.file))
    authority.issue("node", ends_in=_ENDED)  # the node reads it at the next handshake
    with pytest.raises(BrokerUnavailable, match="certificate that has expired; renew it there"):
        _topics(address, Tls(authority.file))


def test_new_certificates_are_used_without_a_restart(
    tmp_path: Path, authority: Authority, serve: Serve
) -> None:
    clients = tmp_path / "clients.pem"
    clients.write_bytes(authority.file.read_bytes())
    tls = replace(_node(authority), client_ca=clients)
    its_own = (tls.certificate, tls.key, clients)
    address = serve(tls, None)
    with Client(address, tls=Tls(authority.file, *authority.issue("before"))) as before:
        before.create_topic("t")
        new = Authority(tmp_path / "new", "new")
        for mine, latest in zip(its_own, (*new.issue("node"), new.file), strict=True):
            mine.write_bytes(latest.read_bytes())
        assert _topics(address, Tls(new.file, *new.issue("me"))) == ["t"]
        with pytest.raises(BrokerUnavailable, match="authority that it does not trust"):
            _topics(address, Tls(new.file, *authority.issue("me")))
        assert before.topics()  # open connections stay
    tls.key.write_text("half a key")
    assert _topics(address, Tls(new.file, *new.issue("me"))) == ["t"]


def test_client_shows_a_renewed_certificate(authority: Authority, serve: Serve) -> None:
    address = serve(_node(authority), None)
    files = authority.issue("me", ends_in=_ENDED)
    with Client(address, tls=Tls(authority.file, *files)) as client:
        with pytest.raises(BrokerUnavailable):
            client.topics()
        authority.issue("me")
        assert client.topics() == []


def test_client_goes_on_while_its_files_are_replaced(authority: Authority, serve: Serve) -> None:
    certificate, key = authority.issue("me")
    with Client(serve(_node(authority), None), tls=Tls(authority.file, certificate, key)) as client:
        assert client.topics() == []
        key.unlink()
        assert client.topics() == []
        key.write_text("half a key")
        assert client.topics() == []


def test_certificate_without_its_key_is_refused(authority: Authority, tmp_path: Path) -> None:
    certificate, key = authority.issue("me")
    with pytest.raises(InvalidInput, match="needs its key"):
        Tls(authority.file, certificate)
    wrong = Tls(authority.file, certificate, tmp_path / "missing")
    with pytest.raises(InvalidInput, match=r"me\.pem.*missing.*No such file"):
        _topics("127.0.0.1:1", wrong)
    other, _ = authority.issue("other")
    with pytest.raises(InvalidInput, match="not a certificate and its key"):
        _topics("127.0.0.1:1", Tls(authority.file, other, key))
