"""Outcomes: done or a named refusal, with a reason in words."""

import pytest

from chronoline.core.errors import ChronolineError, Refused
from chronoline.core.outcome import REASONS, Outcome, Refusal, raise_for_refused


def test_done_has_a_version_and_no_reason() -> None:
    outcome = Outcome(id="a", version=7)
    assert outcome.done
    assert outcome.reason == ""


@pytest.mark.parametrize("refusal", Refusal)
def test_every_refusal_has_a_reason_in_words(refusal: Refusal) -> None:
    outcome = Outcome(id="a", refusal=refusal)
    assert not outcome.done
    assert outcome.reason == REASONS[refusal] != ""


def test_a_detail_stands_for_the_reason() -> None:
    outcome = Outcome(id="a", refusal=Refusal.INVALID, detail="id is empty")
    assert outcome.reason == "id is empty"


def test_nothing_is_raised_when_all_is_done() -> None:
    raise_for_refused([Outcome(id="a"), Outcome(id="b")])


def test_refused_names_the_first_three_and_keeps_all() -> None:
    outcomes = [Outcome(id=each, refusal=Refusal.EXISTS) for each in "abcde"]
    with pytest.raises(Refused, match=r"^refused: 'a': .*; 'c': .*; and 2 more$") as raised:
        raise_for_refused([Outcome(id="good"), *outcomes])
    assert raised.value.outcomes == tuple(outcomes)
    assert isinstance(raised.value, ChronolineError)
