"""The choice of the broker, and the errors when it cannot be reached."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from chronoline.broker.auth import Door
from chronoline.broker.tokens import Tokens
from chronoline.core.rights import Rights
from chronoline.stores.factory import open_store
from chronoline.testing.broker import LocalBroker
from tests.cli.command import Command


@pytest.mark.parametrize(
    "arguments",
    [("status",), ("topic", "list"), ("send", "t"), ("receive", "t"), ("forecast", "t")],
    ids=" ".join,
)
def test_missing_broker_error_shows_how_to_start_one(arguments: tuple[str, ...]) -> None:
    with socket.socket() as nobody:  # it has the port, and does not listen
        nobody.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
        refused = Command("127.0.0.1:1").refusal(*arguments, "--address", address)
    assert refused.startswith(f"no broker answers at {address}; start one with `chronoline up`")
    assert refused.endswith("(--address): Connection refused")
    assert "\n" not in refused


def test_bad_address_is_refused(command: Command) -> None:
    words = "--address 'nowhere' is no address; write host:port, such as 127.0.0.1:7400"
    assert command.refusal("status", "--address=nowhere") == words


def test_token_comes_from_file_or_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = Tokens(tmp_path / "tokens.json")
    token = tokens.create("me")
    file = tmp_path / "token"
    file.write_text(f"{token}\n")
    with open_store("memory:") as store, LocalBroker(store, door=Door(tokens)) as broker:
        command = Command(broker.address)
        for arguments in (("status",), ("topic", "create", "t"), ("send", "t"), ("receive", "t")):
            assert "asks for a token" in command.refusal(*arguments)
        given = ["--token-file", str(file)]
        command("topic", "create", "t", *given)
        command("send", "t", *given)
        assert command("receive", "t", "--ack", *given) == "\n"
        command.token = token
        assert "t" in command("topic", "list")
        command.token = tokens.create("reader", Rights.parse(["consume:t"]))
        assert "64" in command("topic", "list")  # its settings: the counts need `observe`
        assert json.loads(command("topic", "show", "t", "--json"))["waiting"] is None
        refused = command.refusal("send", "t")
        assert "does not have the right produce" in refused
        assert "--group" not in refused
        command.token = tokens.create("shop", Rights.parse(["produce:t:shop"]))
        assert "Give a producer group for which it has the right (--group" in command.refusal(
            "send", "t"
        )
        command.token = token
        tokens.revoke("me")
        tokens.create("other")
        assert "does not know this token" in command.refusal("topic", "list")


@pytest.mark.parametrize("arguments", [("status",), ("timers", "nodes")], ids=" ".join)
def test_token_without_tls_is_sent_only_to_loopback(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    file = tmp_path / "token"
    file.write_text("chronoline_secret")
    given = ("--address=192.0.2.1:1", f"--token-file={file}")
    refused = Command("127.0.0.1:1").refusal(*arguments, *given)
    assert "can read the token; it was not sent" in refused
    assert "--insecure" in refused


@pytest.mark.parametrize("content", [b"", b" \n", b"\xff", "ä".encode(), b"a\x00b"])
def test_file_without_a_token_is_refused(command: Command, tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "token"
    given = ["status", "--token-file", str(file)]
    assert (
        command.refusal(*given) == f"the token '{file}' cannot be read: No such file or directory"
    )
    file.write_bytes(content)
    assert "holds no token such as `chronoline token create` prints" in command.refusal(*given)


def test_unreadable_authority_is_refused(command: Command, tmp_path: Path) -> None:
    refused = command.refusal("topic", "list", "--ca", str(tmp_path / "ca.pem"))
    assert refused == f"'{tmp_path}/ca.pem' cannot be read: No such file or directory"
