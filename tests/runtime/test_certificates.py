"""The spans of certificates, as another library reads them."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography import x509

from chronoline.core.errors import InvalidInput
from chronoline.runtime.certificates import valid_spans
from tests.certificates import make_certificate


def test_spans_are_those_of_another_reader(tmp_path: Path) -> None:
    path, _ = make_certificate(tmp_path, "b1.example")
    known = x509.load_pem_x509_certificate(path.read_bytes())
    span = known.not_valid_before_utc, known.not_valid_after_utc
    chain = tmp_path / "chain.pem"
    chain.write_bytes(path.read_bytes() * 2)
    assert valid_spans(path) == [span]
    assert valid_spans(chain) == [span, span]


@pytest.mark.parametrize(
    "content",
    [b"", b"nothing", b"-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n"],
)
def test_file_without_a_certificate_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "node.pem"
    path.write_bytes(content)
    with pytest.raises(InvalidInput, match=r"node\.pem"):
        valid_spans(path)
