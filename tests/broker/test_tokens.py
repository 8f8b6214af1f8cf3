"""Tokens: what is written is there after a power loss."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from chronoline.broker.auth import Tokens


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
