"""Failures of buckets, and their errors."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from chronoline.core.errors import InvalidInput, StoreError, StoreFull, StoreUnavailable
from chronoline.log.contract import ObjectMissing, Objects
from chronoline.log.objects.remote import RemoteObjects
from chronoline_bench.servers.aws import S3Server
from tests.log.objects.faults import FaultyServer

NAME = "01KDVDN00000000000000000AA"

CALLS: dict[str, Callable[[Objects], object]] = {
    "put": lambda objects: objects.put(NAME, b"events"),
    "get": lambda objects: objects.get(NAME, 0, 6),
    "list": lambda objects: list(objects.list()),
    "delete": lambda objects: objects.delete([NAME]),
}

FORKING = """
import os, sys
from chronoline.core.errors import StoreError
from chronoline.log.objects.remote import RemoteObjects

objects = RemoteObjects(sys.argv[1])
objects.put("01KDVDN00000000000000000AA", b"events")
if os.fork() == 0:
    for use in (lambda: objects.get("01KDVDN00000000000000000AA", 0, 6), lambda: RemoteObjects(sys.argv[1])):
        try:
            use()
        except StoreError as error:
            print(error, flush=True)
    os._exit(0)
os.wait()
print(objects.get("01KDVDN00000000000000000AA", 0, 6))
"""


@pytest.fixture
def faulty(s3: S3Server) -> Iterator[FaultyServer]:
    with FaultyServer(s3.endpoint) as server:
        yield server


@pytest.fixture
def behind(faulty: FaultyServer, s3_url: str) -> RemoteObjects:
    """Objects of the server, seen through the proxy."""
    return RemoteObjects(f"{s3_url.partition('?')[0]}?endpoint={quote(faulty.endpoint, safe='')}")


def at(endpoint: str, bucket: str = "events", *, answer_s: float = 10) -> RemoteObjects:
    return RemoteObjects(f"s3://{bucket}/p?endpoint={quote(endpoint, safe='')}", answer_s=answer_s)


# Lost answers


@pytest.mark.parametrize("fault", ["close", "reset", "not sent", "500", "503", "429"])
def test_a_put_whose_answer_is_lost_is_done_once(
    behind: RemoteObjects, faulty: FaultyServer, fault: str
) -> None:
    faulty.faults.append(fault)
    behind.put(NAME, b"events")
    assert faulty.asked.count("PUT") == 2
    assert behind.get(NAME, 0, 100) == b"events"
    assert [stored.name for stored in behind.list()] == [NAME]


def test_a_put_that_meets_anothers_object_fails(
    behind: RemoteObjects, faulty: FaultyServer
) -> None:
    behind.put(NAME, b"others")
    faulty.faults.append("not sent")
    with pytest.raises(StoreError, match="exists already, with other bytes"):
        behind.put(NAME, b"events")
    assert behind.get(NAME, 0, 100) == b"others"


@pytest.mark.parametrize("fault", ["503", "not sent", "409", "400"])
def test_a_put_that_failed_is_not_reported_as_done(
    behind: RemoteObjects, faulty: FaultyServer, fault: str
) -> None:
    faulty.faults.extend([fault] * 20)
    with pytest.raises(StoreUnavailable, match=f"object '{NAME}' was not put"):
        behind.put(NAME, b"events")
    faulty.faults.clear()
    with pytest.raises(ObjectMissing):
        behind.get(NAME, 0, 1)


def test_truncated_answer_is_read_again(behind: RemoteObjects, faulty: FaultyServer) -> None:
    data = os.urandom(100_000)
    behind.put(NAME, data)
    faulty.faults.append("cut")
    assert behind.get(NAME, 0, len(data)) == data


@pytest.mark.parametrize("fault", ["close", "reset", "503"])
def test_reads_and_deletes_are_retried(
    behind: RemoteObjects, faulty: FaultyServer, fault: str
) -> None:
    behind.put(NAME, b"events")
    faulty.faults.append(fault)
    assert behind.get(NAME, 0, 6) == b"events"
    faulty.faults.append(fault)
    assert len(list(behind.list())) == 1
    faulty.faults.append(fault)
    behind.delete([NAME])
    assert list(behind.list()) == []


def test_full_storage_is_reported(behind: RemoteObjects, faulty: FaultyServer) -> None:
    faulty.faults.extend(["507"] * 20)
    with pytest.raises(StoreFull, match="'events' has no room left"):
        behind.put(NAME, b"events")


@pytest.mark.parametrize("call", ["get", "delete"])
def test_bare_404_is_unavailable(behind: RemoteObjects, faulty: FaultyServer, call: str) -> None:
    faulty.faults.append("404")
    with pytest.raises(StoreUnavailable, match="answered 404"):
        CALLS[call](behind)


# Unavailable servers


@pytest.mark.parametrize("call", CALLS)
def test_an_unknown_bucket_is_named_with_what_to_do(s3: S3Server, call: str) -> None:
    with pytest.raises(StoreUnavailable, match=r"'missing' does not exist.*chronoline log init"):
        CALLS[call](at(s3.endpoint, "missing"))


@pytest.mark.parametrize("call", CALLS)
def test_wrong_credentials_are_reported(s3: S3Server, s3_url: str, call: str) -> None:
    objects = RemoteObjects(s3_url)
    s3.check_credentials(True)
    try:
        with pytest.raises(StoreUnavailable, match=r"'events' is denied \(InvalidAccessKeyId: "):
            CALLS[call](objects)
    finally:
        s3.check_credentials(False)
    objects.put(NAME, b"events")


@pytest.mark.parametrize("call", CALLS)
def test_server_that_is_gone_is_given_up(s3: S3Server, call: str) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        with pytest.raises(StoreUnavailable, match=f"{endpoint} cannot be reached.*refused"):
            CALLS[call](at(endpoint))


@pytest.mark.parametrize("call", CALLS)
def test_server_that_hangs_is_given_up(s3: S3Server, s3_url: str, call: str) -> None:
    objects = RemoteObjects(s3_url, answer_s=0.5)
    objects.put("01KDVDN00000000000000000BB", b"before")
    s3.pause()
    try:
        with pytest.raises(StoreUnavailable, match=r"cannot be reached.*did not answer in time"):
            CALLS[call](objects)
    finally:
        s3.resume()
    assert objects.get("01KDVDN00000000000000000BB", 0, 10) == b"before"


def test_full_connection_backlog_times_out(s3: S3Server) -> None:
    with socket.socket() as full, socket.socket() as first, socket.socket() as second:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for waiting in (first, second):
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        with pytest.raises(StoreUnavailable, match="cannot be reached"):
            CALLS["put"](at(f"http://127.0.0.1:{full.getsockname()[1]}"))


def test_a_server_that_comes_back_is_used_again() -> None:
    with S3Server() as server, pytest.MonkeyPatch.context() as patch:
        for variable, value in server.environment.items():
            patch.setenv(variable, value)
        objects = RemoteObjects(server.create_bucket("events"))
        objects.put(NAME, b"events")
        server.kill()
        with pytest.raises(StoreUnavailable):
            objects.get(NAME, 0, 6)
        server.start()
        with pytest.raises(StoreUnavailable, match="chronoline log init"):
            objects.get(NAME, 0, 6)
        server.create_bucket("events")
        objects.put(NAME, b"events")
        assert objects.get(NAME, 0, 6) == b"events"


# Opening


def test_without_credentials_nothing_is_opened(
    s3: S3Server, s3_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(variable)
    for variable in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(variable, str(tmp_path / "nothing"))
    with pytest.raises(StoreUnavailable, match="set AWS_ACCESS_KEY_ID"):
        RemoteObjects(s3_url)


def test_credentials_of_a_profile_are_found(
    s3: S3Server, s3_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(variable)
    profiles = tmp_path / "credentials"
    profiles.write_text("[mine]\naws_access_key_id = a\naws_secret_access_key = b\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(profiles))
    monkeypatch.setenv("AWS_PROFILE", "mine")
    RemoteObjects(s3_url).put(NAME, b"events")
    monkeypatch.setenv("AWS_PROFILE", "others")
    with pytest.raises(StoreError, match=r"AWS settings.*others"):
        RemoteObjects(s3_url)


@pytest.mark.parametrize("variable", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
def test_url_endpoint_wins_over_the_environment(
    s3: S3Server, s3_url: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, s3.endpoint)
    RemoteObjects(s3_url.partition("?")[0]).put(NAME, b"events")
    monkeypatch.setenv(variable, "http://127.0.0.1:9")
    assert RemoteObjects(s3_url).get(NAME, 0, 6) == b"events"


def test_azure_needs_an_account(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in [name for name in os.environ if name.startswith("AZURE_")]:
        monkeypatch.delenv(variable)
    with pytest.raises(InvalidInput, match=r"az://container/p cannot be opened.*[Aa]ccount"):
        RemoteObjects("az://container/p")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    monkeypatch.setenv("AZURE_SKIP_SIGNATURE", "true")
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        endpoint = quote(f"http://127.0.0.1:{nobody.getsockname()[1]}", safe="")
        with pytest.raises(StoreUnavailable, match=r"'container' at http.* cannot be reached"):
            RemoteObjects(f"az://container/p?endpoint={endpoint}").get(NAME, 0, 1)


def test_use_in_a_fork_is_refused(s3: S3Server, s3_url: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKING, s3_url],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.count("forked") == 2
    assert done.stdout.endswith("b'events'\n")


def test_foreign_objects_are_ignored(s3_url: str) -> None:
    objects = RemoteObjects(s3_url)
    objects.put(NAME, b"events")
    inner = RemoteObjects(s3_url.replace("?", "/inner?"))
    inner.put("01KDVDN00000000000000000BB", b"others")
    assert [stored.name for stored in objects.list()] == [NAME]
    assert [stored.size_bytes for stored in inner.list()] == [6]
