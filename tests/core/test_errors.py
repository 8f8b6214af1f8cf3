"""Errors have one root, and their docstring is their default message."""

import pytest

from chronoline.core import errors
from chronoline.core.errors import ChronolineError, InvalidInput, StoreBusy, StoreUnavailable


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
