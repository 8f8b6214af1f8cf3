"""Values as people write them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError

from chronoline.runtime.settings.types import (
    SizeBytes,
    lasting_store,
    scheme_of,
    without_password,
)
from chronoline.stores.factory import open_store

SIZE = TypeAdapter(SizeBytes)


@pytest.mark.parametrize(
    ("text", "size"), [(4096, 4096), ("8192", 8192), ("64KiB", 65_536), ("1.5MiB", 1_572_864)]
)
def test_sizes(text: object, size: int) -> None:
    assert SIZE.validate_python(text) == size


@pytest.mark.parametrize("text", ["", "many", "12 parsecs", "-1", True, 1.5, None])
def test_what_is_no_size_is_said(text: object) -> None:
    with pytest.raises(ValidationError, match="is not a size; write 4096, 64KiB or 16MiB"):
        SIZE.validate_python(text)


def test_a_file_is_made_absolute_whatever_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert lasting_store("sqlite:///a/b.db") == f"sqlite:///{tmp_path}/a/b.db"
    url = lasting_store("sqlite:///100%2525/b c.db")
    assert lasting_store(url) == url
    open_store(url).close()
    assert (tmp_path / "100%25" / "b c.db").is_file()


@pytest.mark.parametrize("url", ["", "x", "mysql://u:secret@h", "sqlite://x", "sqlite:///:memory:"])
def test_what_is_no_store_is_said_without_it(url: str) -> None:
    with pytest.raises(ValueError, match=r"write sqlite:///folder/file\.db") as refused:
        lasting_store(url)
    assert "secret" not in str(refused.value)


def test_the_scheme_of_anything() -> None:
    schemes = [scheme_of(url) for url in ("memory:", "sqlite:///x", "x", "", "http://[")]
    assert schemes == ["memory", "sqlite", "", "", "http"]


def test_no_password_is_shown() -> None:
    assert (
        without_password("postgresql://u:p@h/d?password=x&a=b")
        == "postgresql://…@h/d?password=…&a=b"
    )
    assert without_password("sqlite:////a/b.db") == "sqlite:////a/b.db"
