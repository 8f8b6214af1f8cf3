"""The URL of an etcd; TLS and log-in against a real one."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from chronoline.coordination.contract import Put
from chronoline.coordination.embedded import EmbeddedCoordination
from chronoline.coordination.etcd import EtcdAddress, EtcdCoordination
from chronoline.coordination.etcd.server_clock import measure_offset
from chronoline.coordination.factory import open_coordination
from chronoline.coordination.membership import BrokerRecord, Registration
from chronoline.core.errors import CoordinationRefused, CoordinationUnavailable, InvalidInput
from chronoline.testing.etcd import EtcdServer
from tests.certificates import make_certificate
from tests.conftest import running
from tests.coordination.engines import keys, view_where
from tests.coordination.etcd_admin import enable_auth
from tests.deadline import run_scene, until

PASSWORD = "s3/cret:@"


def test_url_names_members_and_prefix() -> None:
    found = EtcdAddress.parse("etcd://one,two:1,[::1]:2/a/b")
    assert found.members == ("one:2379", "two:1", "[::1]:2")
    assert (found.prefix, found.user, found.has_tls) == ("a/b", None, False)
    assert EtcdAddress.parse("etcd://one").prefix == "chronoline"


def test_url_has_login_and_tls() -> None:
    url = "etcd://me:s%2Fe%40@one/?ca=ca.pem&cert=c.pem&key=k.pem"
    found = EtcdAddress.parse(url)
    assert (found.user, found.password) == ("me", "s/e@")
    assert (found.has_tls, found.ca, found.cert, found.key) == (
        True,
        *map(Path, ("ca.pem", "c.pem", "k.pem")),
    )
    assert "s/e@" not in repr(found)
    assert EtcdAddress.parse("etcd://one?tls=on").has_tls


def test_security_page_shows_a_valid_url() -> None:
    page = (Path(__file__).parents[2] / "docs" / "security.md").read_text("utf-8")
    (row,) = [line for line in page.splitlines() if line.startswith("| etcd |")]
    url, certificate, system, *_ = re.findall(r"`([^`]+)`", row)
    found = EtcdAddress.parse(url + certificate)
    assert found.has_tls
    assert found.user
    assert found.password
    assert all((found.ca, found.cert, found.key))
    assert EtcdAddress.parse(f"etcd://one{system}").has_tls


@pytest.mark.parametrize(
    "url",
    [
        "etcd://",
        "etcd:///prefix",
        "etcd://one,,two",
        "etcd://one:0",
        "etcd://one:70000",
        "etcd://one:x",
        "etcd://me@one",
        "etcd://:hidden@one",
        "etcd://one/a b",
        "etcd://one/a//b",
        "etcd://one/#x",
        "etcd://one?x=1",
        "etcd://one?tls=maybe",
        "etcd://one?tls=on&tls=on",
        "etcd://one?cert=c.pem",
        "etcd://one?tls=off&ca=x",
        "etcd://me:hidden@one?ca",
        "http://me:hidden@one",
        "embedded:x",
        "",
    ],
)
def test_wrong_url_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        open_coordination(url)
    assert "hidden" not in str(refused.value)


def test_url_chooses_the_engine() -> None:
    assert isinstance(open_coordination("embedded:"), EmbeddedCoordination)
    assert isinstance(open_coordination("etcd://one"), EtcdCoordination)


def test_missing_file_is_named(tmp_path: Path) -> None:
    async def scene() -> None:
        with pytest.raises(InvalidInput, match=r"ca\.pem cannot be read"):
            await open_coordination(f"etcd://one?ca={tmp_path}/ca.pem").start()

    run_scene(scene)


# A real server with TLS and users


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def guarded(
    certificate: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EtcdServer]:
    cert, key = certificate
    tls = ("--cert-file", cert, "--key-file", key, "--client-cert-auth", "--trusted-ca-file", cert)
    for server in running(EtcdServer(tmp_path_factory.mktemp("etcd"), options=tls)):
        asyncio.run(enable_auth(server, cert, key, PASSWORD))
        yield server


def url_of(server: EtcdServer, ca: Path, password: str, user: str = "root") -> str:
    shown = f"cert={ca}&key={ca.with_name('node-key.pem')}"
    return f"etcd://{user}:{password}@{server.address}/guarded?ca={ca}&{shown}"


def test_login_over_tls_is_repeated_when_its_token_is_forgotten(
    guarded: EtcdServer, certificate: tuple[Path, Path]
) -> None:
    async def scene() -> None:
        url = url_of(guarded, certificate[0], "s3%2Fcret%3A%40")
        async with open_coordination(url) as one, one.watch("") as watch:
            session = await one.open_session(30_000)
            await one.commit([Put("k", b"", session)])
            await view_where(watch, lambda view: keys(view) == ["k"])
            assert await measure_offset(EtcdAddress.parse(url), guarded.address, 1) is not None
            await asyncio.to_thread(guarded.stop)
            await asyncio.to_thread(guarded.start)  # it has forgotten all tokens

            async def is_put() -> bool:
                try:
                    return (await one.commit([Put("l", b"")])).is_made
                except CoordinationUnavailable:
                    return False  # the channel is connected again by and by

            await until(is_put)
            await session.keep_alive()
            await view_where(watch, lambda view: view.is_current and len(view.entries) == 2)

    run_scene(scene)


def test_wrong_password_is_an_error_of_its_own(
    guarded: EtcdServer, certificate: tuple[Path, Path]
) -> None:
    async def scene() -> None:
        async with open_coordination(url_of(guarded, certificate[0], "wrong")) as one:
            for call in (one.read(""), one.commit([Put("k", b"")]), one.open_session()):
                with pytest.raises(CoordinationRefused, match="invalid user ID or password"):
                    await call
            async with Registration(one) as mine:
                await until(lambda: "invalid user ID or password" in mine.failure)

    run_scene(scene)


def test_missing_right_is_an_error_of_its_own(
    guarded: EtcdServer, certificate: tuple[Path, Path]
) -> None:
    async def scene() -> None:
        url = url_of(guarded, certificate[0], "s3%2Fcret%3A%40", user="reader")
        async with open_coordination(url) as one, Registration(one) as mine:
            assert (await one.read("")).is_current
            with pytest.raises(CoordinationRefused, match="permission denied"):
                await one.commit([Put("k", b"")])
            mine.show(BrokerRecord("b", "host:7400"))
            await until(lambda: "permission denied" in mine.failure)
            assert mine.session is not None
            assert mine.session.is_trusted

    run_scene(scene)


def test_etcd_refuses_a_client_without_a_certificate(
    guarded: EtcdServer, certificate: tuple[Path, Path]
) -> None:
    async def scene() -> None:
        url = url_of(guarded, certificate[0], "s3%2Fcret%3A%40").partition("&cert=")[0]
        async with open_coordination(url) as one:
            with pytest.raises(CoordinationUnavailable) as refused:
                await one.read("")
            assert PASSWORD not in str(refused.value)
            assert "s3%2F" not in str(refused.value)
            assert "\n" not in str(refused.value)

    run_scene(scene)


def test_server_without_our_authority_is_not_trusted(guarded: EtcdServer) -> None:
    async def scene() -> None:
        async with open_coordination(f"etcd://{guarded.address}?tls=on") as one:
            with pytest.raises(CoordinationUnavailable):
                await one.read("")

    run_scene(scene)
