from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from chronoline.broker.tokens import Tokens
from chronoline.cli.main import command_line
from chronoline.core.errors import InvalidInput


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def token(*arguments: str, **env: str) -> str:
    result = CliRunner().invoke(command_line(), ["token", *arguments], env=env)
    assert result.exit_code == 0, (result.exception, result.output)
    return result.stdout


def listed() -> dict[str, str]:
    """The rights of each token, as the list shows them."""
    _, *lines = token("list").splitlines()
    return {line.split()[0]: line.split("  ")[1].strip() for line in map(_single, lines)}


def _single(line: str) -> str:
    return re.sub(r" {2,}", "  ", line)


def refusal(*arguments: str) -> str:
    result = CliRunner().invoke(command_line(), ["token", *arguments])
    assert isinstance(result.exception, InvalidInput)
    return str(result.exception)


def test_token_is_printed_once_and_stored_as_hash(tmp_path: Path) -> None:
    printed = token("create", "billing")
    secret = printed.removesuffix("\n")
    file = tmp_path / "chronoline-data" / "tokens.json"
    assert file.stat().st_mode & 0o777 == 0o600
    assert secret not in file.read_text()
    assert Tokens(file).knows(secret)
    assert listed() == {"billing": "everything"}
    assert "a token 'billing' exists already" in refusal("create", "billing")


def test_token_is_revoked_by_its_name() -> None:
    secrets = {name: token("create", name).strip() for name in ("b", "a")}
    assert list(listed()) == ["a", "b"]
    assert token("revoke", "a") == "revoked 'a'\n"
    tokens = Tokens(Path("chronoline-data", "tokens.json"))
    assert [tokens.knows(secrets[name]) for name in ("a", "b")] == [False, True]
    assert "there is no token 'a'; there are: b" in refusal("revoke", "a")
    assert token("revoke", "b").startswith("revoked 'b'; it was the last.")
    assert "There are no tokens" in token("list")


def test_tokens_are_in_the_folder_of_the_node(tmp_path: Path) -> None:
    token("create", "flag", "--data=f")
    token("create", "variable", CHRONOLINE_NODE_DATA="v")
    (tmp_path / "node.toml").write_text('data = "c"\n')
    token("create", "file", "--config=node.toml")
    kept = {path.parent.name: Tokens(path).names() for path in tmp_path.glob("*/tokens.json")}
    assert kept == {"f": ["flag"], "v": ["variable"], "c": ["file"]}


def test_list_creates_no_folder(tmp_path: Path) -> None:
    token("list")
    assert list(tmp_path.iterdir()) == []


def test_token_is_made_with_rights_and_an_end() -> None:
    rights = ("--right=produce:orders-*:billing", "--right=observe")
    token("create", "billing", *rights, "--expires-in=30d")
    assert listed() == {"billing": "produce:orders-*:billing, observe"}
    [record] = Tokens(Path("chronoline-data", "tokens.json")).records()
    assert record.expires_ms is not None
    assert record.created_ms is not None
    assert record.expires_ms > record.created_ms
    assert "is no right" in refusal("create", "x", "--right=fly")
    assert "--expires-in" in refusal("create", "x", "--expires-in=soon")
    assert list(listed()) == ["billing"]


def test_name_in_certificates_is_listed_and_revoked() -> None:
    said = token("create", "mailer", "--certificate=mailer.example", "--right=consume")
    assert said == "clients with a certificate of 'mailer.example' are 'mailer' now\n"
    assert "certificate mailer.example" in token("list")
    assert "known as 'mailer' already" in refusal("create", "b", "--certificate=mailer.example")
    [record] = Tokens(Path("chronoline-data", "tokens.json")).records()
    assert (record.certificate, record.hash, record.rights.texts()) == (
        "mailer.example",
        "",
        ["consume"],
    )
    token("revoke", "mailer")
    assert "There are no tokens" in token("list")


def test_changes_are_written_to_the_audit_file(tmp_path: Path) -> None:
    (tmp_path / "node.toml").write_text('audit_file = "audit.jsonl"\n')
    secret = token("create", "a", "--config=node.toml").strip()
    token("revoke", "a", "--config=node.toml")
    text = (tmp_path / "audit.jsonl").read_text()
    assert [json.loads(line)["act"] for line in text.splitlines()] == [
        "create_token",
        "revoke_token",
    ]
    assert secret not in text
