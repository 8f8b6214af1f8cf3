"""Options: their values, and the errors for invalid ones."""

import pytest

from chronoline.core.errors import InvalidInput
from chronoline.core.limits import MAX_TIME_MS
from chronoline.spark.options import Options

NOW = 1_700_000_000_000


def options(**given: str) -> Options:
    return Options("f", given)


def test_names_in_any_case() -> None:
    given = options(PageRows="5")
    assert (given.whole("pageRows", 1), given.whole("PAGEROWS", 1)) == (5, 5)


def test_missing_or_empty_option_has_its_default() -> None:
    given = options(empty="")
    assert given.optional("empty") is None
    assert given.optional("empty", "d") == "d"
    assert given.choice("empty", ("a", "b"), "b") == "b"
    assert given.boolean("empty", True) is True
    assert given.whole("empty", 7) == 7
    assert given.duration_ms("empty", None) is None
    assert given.moment_ms("empty", 9, now_ms=NOW) == 9


def test_required() -> None:
    assert options(store="x").required("store", "y") == "x"
    with pytest.raises(InvalidInput, match=r"format f needs the option 'store', such as \.option"):
        options().required("store", "y")


def test_choices_in_any_case() -> None:
    assert (
        options(view="FORECAST").choice("view", ("messages", "forecast"), "messages") == "forecast"
    )


def test_booleans() -> None:
    assert options(a="TRUE").boolean("a", False) is True
    assert options(a="false").boolean("a", True) is False


@pytest.mark.parametrize(
    ("text", "found"),
    [("250ms", 250), ("90s", 90_000), ("1.5h", 5_400_000), ("2 W", 1_209_600_000), ("0s", 0)],
)
def test_durations(text: str, found: int) -> None:
    assert options(a=text).duration_ms("a", None) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("now", NOW),
        ("NOW", NOW),
        ("+1h", NOW + 3_600_000),
        ("-10m", NOW - 600_000),
        ("-99999d", 0),
        ("+418000w", MAX_TIME_MS),
        ("2026-01-31T12:00:00Z", 1_769_860_800_000),
        ("2026-01-31 13:00:00.0001+01:00", 1_769_860_800_001),
    ],
)
def test_moments(text: str, found: int) -> None:
    assert options(a=text).moment_ms("a", None, now_ms=NOW) == found


@pytest.mark.parametrize("text", ["", "1", "1 year", "-1s", "s", f"{MAX_TIME_MS}s"])
def test_no_durations(text: str) -> None:
    with pytest.raises(InvalidInput, match="option 'a' of format f cannot be"):
        options(a=text or "x").duration_ms("a", None)


@pytest.mark.parametrize(
    "text",
    ["12:00", "2026-01-31T12:00:00", "2026-02-30T12:00:00Z", "+", "+x"],
)
def test_no_moments(text: str) -> None:
    with pytest.raises(InvalidInput, match="a time with its zone, 2026"):
        options(a=text).moment_ms("a", None, now_ms=NOW)


@pytest.mark.parametrize("text", ["-1", "1.0", "one", "4", "9" * 30, "1_0"])
def test_no_whole_numbers(text: str) -> None:
    with pytest.raises(InvalidInput, match="write a whole number from 1 to 3"):
        options(a=text).whole("a", 1, low=1, high=3)


def test_no_choice_and_no_boolean() -> None:
    with pytest.raises(InvalidInput, match="cannot be 'c': write one of: a, b"):
        options(x="c").choice("x", ("a", "b"), "a")
    with pytest.raises(InvalidInput, match="write true or false"):
        options(x="yes").boolean("x", True)


def test_an_option_that_nobody_asked_for_is_refused() -> None:
    given = options(store="x", stoer="y")
    given.optional("store")
    with pytest.raises(InvalidInput, match="no option 'stoer' here; it has: path, store"):
        given.finish("path")
    given = options(store="x", path="y")
    given.optional("store")
    given.finish("path")
