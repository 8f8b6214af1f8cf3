import pytest

from chronoline.core.errors import InvalidInput
from chronoline.core.units import parse_duration_ms, parse_size_bytes


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("0s", 0),
        ("250ms", 250),
        ("90s", 90_000),
        ("15m", 900_000),
        ("1.5h", 5_400_000),
        ("7d", 604_800_000),
        ("2w", 1_209_600_000),
        (" 1 H ", 3_600_000),
        ("0.0019s", 1),
    ],
)
def test_durations(text: str, ms: int) -> None:
    assert parse_duration_ms(text, "--max-age") == ms


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("0B", 0),
        ("4096B", 4096),
        ("64KiB", 65_536),
        ("8mib", 8_388_608),
        ("1.5GiB", 1_610_612_736),
        ("1TiB", 1 << 40),
        ("500MB", 500_000_000),
        ("0.3 kb", 300),
    ],
)
def test_sizes(text: str, size_bytes: int) -> None:
    assert parse_size_bytes(text, "--max-size") == size_bytes


@pytest.mark.parametrize(
    "text",
    ["", "7", "d", "7 x", "-1d", "1e3s", "1.s", "1h30m", "٣s", "9999999999d", "nan", "7d\n8"],
)
def test_invalid_duration_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"--max-age .* is not a duration: write .*90s"):
        parse_duration_ms(text, "--max-age")


@pytest.mark.parametrize("text", ["", "7", "MiB", "7M", "-1B", "9" * 30 + "TiB", "8 MiB 2"])
def test_invalid_size_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"--max-size .* is not a size: write .*8MiB"):
        parse_size_bytes(text, "--max-size")
