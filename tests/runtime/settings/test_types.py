"""Values as people write them."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter, ValidationError

from chronoline.runtime.settings.types import (
    SizeBytes,
    check_address,
)

SIZE = TypeAdapter(SizeBytes)


@pytest.mark.parametrize(
    ("text", "size"), [(4096, 4096), ("8192", 8192), ("64KiB", 65_536), ("1.5MiB", 1_572_864)]
)
def test_sizes(text: object, size: int) -> None:
    assert SIZE.validate_python(text) == size


@pytest.mark.parametrize("text", ["", "many", "12 parsecs", "-1", True, 1.5, None])
def test_invalid_size_is_refused(text: object) -> None:
    with pytest.raises(ValidationError, match="is not a size; write 4096, 64KiB or 16MiB"):
        SIZE.validate_python(text)


@pytest.mark.parametrize("text", ["127.0.0.1:7400", "[::1]:7400", "host-1.example:65535"])
def test_addresses(text: str) -> None:
    assert check_address(text, example="x:1") == text


@pytest.mark.parametrize(
    "text", ["", "host", "host:", ":1", "host:0", "host:65536", "::1:80", "a b:1"]
)
def test_invalid_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no address; write host:port, such as x:1"):
        check_address(text, example="x:1")


def test_port_0_is_allowed_for_listeners() -> None:
    assert check_address("host:0", example="x:1", least_port=0) == "host:0"
