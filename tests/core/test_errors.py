"""Errors have one root, and their docstring is their default message."""

import pickle

import pytest

from chronoline.core import errors
from chronoline.core.errors import (
    ChronolineError,
    InvalidInput,
    Refused,
    StoreBusy,
    StoreUnavailable,
)
from chronoline.core.outcome import Outcome, Refusal


def test_every_error_has_the_one_root() -> None:
    defined = [each for each in vars(errors).values() if isinstance(each, type)]
    own = [each for each in defined if each.__module__ == errors.__name__]
    assert len(own) > 5
    assert all(issubclass(each, ChronolineError) for each in own)


def test_the_docstring_is_the_default_message() -> None:
    assert str(StoreBusy()) == StoreBusy.__doc__
    assert str(StoreBusy("locked")) == "locked"


def test_errors_that_the_standard_library_knows_too() -> None:
    with pytest.raises(ValueError, match="bad"):
        raise InvalidInput("bad")
    assert issubclass(StoreBusy, StoreUnavailable)


def test_a_refusal_travels_between_processes() -> None:
    refused = Refused([Outcome(id="a", refusal=Refusal.EXISTS)])
    again = pickle.loads(pickle.dumps(refused))
    assert (str(again), again.outcomes) == (str(refused), refused.outcomes)
