"""Values as people write them."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter, ValidationError

from chronoline.runtime.settings.types import (
    SizeBytes,
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
