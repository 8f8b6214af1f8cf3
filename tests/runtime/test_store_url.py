"""URLs of stores: schemes, SQLite files, parts, and URLs without their passwords."""

from __future__ import annotations

from pathlib import Path

import pytest

from chronoline.core.errors import InvalidInput
from chronoline.runtime.store_url import (
    file_store,
    join_url,
    lasting_store,
    scheme_of,
    split_url,
    sqlite_path,
    without_password,
)
from chronoline.stores.factory import open_store


def test_relative_file_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert lasting_store("sqlite:///a/b.db") == f"sqlite:///{tmp_path}/a/b.db"
    url = lasting_store("sqlite:///100%2525/b c.db")
    assert lasting_store(url) == url
    open_store(url).close()
    assert (tmp_path / "100%25" / "b c.db").is_file()


@pytest.mark.parametrize("url", ["", "x", "mysql://u:secret@h", "sqlite://x", "sqlite:///:memory:"])
def test_refusal_does_not_repeat_the_url(url: str) -> None:
    with pytest.raises(ValueError, match=r"write sqlite:///folder/file\.db") as refused:
        lasting_store(url)
    assert "secret" not in str(refused.value)


def test_scheme_of_any_text() -> None:
    schemes = [scheme_of(url) for url in ("memory:", "sqlite:///x", "x", "", "http://[")]
    assert schemes == ["memory", "sqlite", "", "", "http"]


def test_password_is_not_shown() -> None:
    assert (
        without_password("postgresql://u:p@h/d?password=x&a=b")
        == "postgresql://…@h/d?password=…&a=b"
    )
    assert without_password("sqlite:////a/b.db") == "sqlite:////a/b.db"
    assert without_password("user:secret@h") == "user://…@h"


@pytest.mark.parametrize("name", ["plain.db", "100%.db", "why?.db", "a b.db"])
def test_url_of_a_file_names_that_file(tmp_path: Path, name: str) -> None:
    assert sqlite_path(file_store(tmp_path / name)) == str(tmp_path / name)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("sqlite:", "names no file"),
        ("sqlite:///", "names no file"),
        ("sqlite://host/x", "names no file"),
        ("sqlite:///:memory:", "write memory:"),
        ("sqlite:///a.db?mode=ro", "has parameters"),
    ],
)
def test_sqlite_url_without_a_file_is_refused(url: str, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        sqlite_path(url)


def test_joined_url_splits_into_its_parts() -> None:
    url = join_url("s3", "bucket", "/a b", {"index": "x://y?z=1", "region": None})
    assert url == "s3://bucket/a%20b?index=x%3A%2F%2Fy%3Fz%3D1"
    assert split_url(url) == ("s3", "bucket", "/a b", {"index": "x://y?z=1"})


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("s3://bucket?index", "cannot be read"),
        ("s3://key:secret@bucket", "has credentials"),
        ("s3://bucket/#x", "has a #"),
        ("s3://bucket?a=1&a=2", "gives a twice"),
    ],
)
def test_unreadable_url_is_refused_without_its_secrets(url: str, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem) as refused:
        split_url(url)
    assert "secret" not in str(refused.value)
