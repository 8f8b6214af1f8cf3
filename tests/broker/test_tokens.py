"""Tokens: what is written is there after a power loss."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from chronoline.broker.tokens import Tokens, hash_of
from chronoline.core.errors import InvalidInput
from chronoline.core.rights import ALL_RIGHTS, Rights


def test_revocation_is_flushed_with_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = Tokens(tmp_path / "tokens.json")
    tokens.create("me")
    done: list[str] = []
    flush, replace = os.fsync, Path.replace

    def note_flush(descriptor: int) -> None:
        is_folder = Path(f"/proc/self/fd/{descriptor}").resolve() == tmp_path
        done.append("folder" if is_folder else "file")
        flush(descriptor)

    def note_replace(self: Path, target: Path) -> Path:
        done.append("replace")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", note_flush)
    monkeypatch.setattr(Path, "replace", note_replace)
    tokens.revoke("me")
    assert done == ["file", "replace", "folder"]
    assert tokens.names() == []


def test_token_has_its_rights_and_its_end(tmp_path: Path) -> None:
    now_ms = 1_000
    tokens = Tokens(tmp_path / "tokens.json", lambda: now_ms)
    rights = Rights.parse(["produce:orders-*:billing"])
    token = tokens.create("me", rights, expires_ms=2_000)
    [record] = Tokens(tmp_path / "tokens.json").records()  # as another process reads it
    assert (record.name, record.rights) == ("me", rights)
    assert (record.created_ms, record.expires_ms) == (1_000, 2_000)
    now_ms = 1_999
    assert tokens.knows(token)
    now_ms = 2_000
    assert not tokens.knows(token)
    assert len(tokens) == 1, "the node still requires a token"
    with pytest.raises(InvalidInput, match="in the past"):
        tokens.create("late", expires_ms=2_000)


def test_token_of_an_older_file_has_all_rights(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    path.write_text(json.dumps({"old": hash_of("secret")}))
    tokens = Tokens(path)
    assert tokens.knows("secret")
    assert tokens.records()[0].rights == ALL_RIGHTS
    tokens.create("new")
    assert tokens.names() == ["new", "old"]
    assert tokens.knows("secret")


@pytest.mark.parametrize(
    "stored", ["[]", '{"a": {}}', '{"a": 1}', '{"a": {"hash": "h", "rights": ["fly"]}}', "{"]
)
def test_damaged_file_is_refused_with_a_hint(tmp_path: Path, stored: str) -> None:
    path = tmp_path / "tokens.json"
    path.write_text(stored)
    with pytest.raises(InvalidInput, match=r"tokens.json.* cannot be read.*chronoline token"):
        Tokens(path).names()


@pytest.mark.parametrize("name", ["", "a\nb", "a\x1b[2J", "\0"])
def test_name_of_a_token_can_be_printed(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidInput, match="the name of a token"):
        Tokens(tmp_path / "tokens.json").create(name)
