"""TLS and a password towards PostgreSQL: a server that demands both."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from chronoline.core.errors import StoreError
from chronoline.core.topic import TopicSettings
from chronoline.stores.factory import open_store
from chronoline.testing.postgres import PostgresServer
from chronoline_bench.servers.pgbouncer import PgBouncerServer
from tests.certificates import Authority
from tests.conftest import running
from tests.stores.line import NOW

_PASSWORD = "s3/cret:@"
_IN_A_URL = "s3%2Fcret%3A%40"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def guarded(
    postgres_server: PostgresServer, authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PgBouncerServer]:
    """The bundled server is built without TLS, so the pooler before it demands TLS and the password."""
    folder = tmp_path_factory.mktemp("guarded")
    users = folder / "users.txt"
    users.write_text(f'"app" "{_PASSWORD}"\n')
    certificate, key = (Path(shutil.copy(each, folder)) for each in authority.issue("postgres"))
    if os.geteuid() == 0:  # the pooler runs as another user then
        for path in (folder, *folder.parents):
            path.chmod(path.stat().st_mode | 0o011)
        for file in (users, certificate, key):
            shutil.chown(file, "nobody")
    options: dict[str, str | Path] = {
        "auth_type": "scram-sha-256",
        "auth_file": users,
        "client_tls_sslmode": "require",
        "client_tls_cert_file": certificate,
        "client_tls_key_file": key,
    }
    server = PgBouncerServer(folder, postgres_server.url(), pool_mode="session", options=options)
    yield from running(server)


@pytest.fixture
def authorities(authority: Authority, tmp_path: Path) -> tuple[Authority, Authority]:
    """The server's authority, and another one."""
    return authority, Authority(tmp_path, "other")


@pytest.fixture(scope="module")
def database(postgres_server: PostgresServer) -> str:
    postgres_server.create_database("guarded")
    return "guarded"


def _url(server: PgBouncerServer, database: str, password: str, options: str) -> str:
    url = server.url(database)
    user = url.partition("//")[2].partition("@")[0]
    return url.replace(f"{user}@", f"app:{password}@") + f"?{options}"


def test_store_works_over_tls_with_a_password(
    guarded: PgBouncerServer, database: str, authority: Authority
) -> None:
    trusting = f"sslmode=verify-full&sslrootcert={authority.file}"
    with open_store(_url(guarded, database, _IN_A_URL, trusting)) as store:
        topic = store.create_topic("t", TopicSettings(), now_ms=NOW)
        assert store.list_topics() == [topic]


def test_security_page_shows_the_options(
    guarded: PgBouncerServer, database: str, authority: Authority
) -> None:
    page = (Path(__file__).parents[3] / "docs" / "security.md").read_text("utf-8")
    (options,) = re.findall(r"`postgresql://[^`?]+\?([^`]+)`", page)
    options = options.replace("authority.pem", str(authority.file))
    open_store(_url(guarded, database, _IN_A_URL, options)).close()


@pytest.mark.parametrize(
    "case",
    [
        ("wr0ng", "sslmode=verify-full&sslrootcert={ca}", "authentication failed"),
        (_IN_A_URL, "sslmode=verify-full&sslrootcert={other}", "certificate verify failed"),
        (_IN_A_URL, "sslmode=verify-full&sslrootcert={ca}.missing", "does not exist"),
        (_IN_A_URL, "sslmode=disable", "SSL required"),
    ],
    ids=["password", "authority", "file", "plain"],
)
def test_refused_connection_has_one_line_without_the_password(
    guarded: PgBouncerServer,
    database: str,
    authorities: tuple[Authority, Authority],
    case: tuple[str, str, str],
) -> None:
    (password, options, reason), (authority, other) = case, authorities
    url = _url(guarded, database, password, options.format(ca=authority.file, other=other.file))
    with pytest.raises(StoreError, match=reason) as refused:
        open_store(url)
    text = str(refused.value)
    assert "\n" not in text
    assert all(each not in text for each in (_PASSWORD, _IN_A_URL, "wr0ng"))
