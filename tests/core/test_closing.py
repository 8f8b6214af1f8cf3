"""Whatever holds something gives it back at the end of its block."""

import pytest

from chronoline.core.closing import Closing


class Door(Closing):
    closed = 0

    def close(self) -> None:
        self.closed += 1


def test_it_is_closed_at_the_end_of_its_block() -> None:
    with Door() as door:
        assert door.closed == 0
    assert door.closed == 1


def test_it_is_closed_when_the_block_fails_and_the_error_goes_on() -> None:
    door = Door()
    with pytest.raises(KeyError), door:
        raise KeyError
    assert door.closed == 1


def test_whoever_cannot_be_closed_cannot_be_made() -> None:
    with pytest.raises(TypeError, match="close"):
        Closing()  # type: ignore[abstract]  # that is what is tried
