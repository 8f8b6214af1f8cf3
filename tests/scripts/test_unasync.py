"""The blocking client is what the asynchronous one makes."""

from __future__ import annotations

from scripts.unasync import TARGET, formatted


def test_the_blocking_client_is_made_from_the_asynchronous_one() -> None:
    made = TARGET.read_text("utf-8")
    assert made == formatted(), "run `python -m scripts.unasync`"
