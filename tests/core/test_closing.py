"""A block closes its object at the end."""

import pytest

from chronoline.core.closing import Closing


class Door(Closing):
    closed = 0

    def close(self) -> None:
        self.closed += 1


def test_block_closes_at_its_end() -> None:
    with Door() as door:
        assert door.closed == 0
    assert door.closed == 1


def test_failing_block_closes_and_raises() -> None:
    door = Door()
    with pytest.raises(KeyError), door:
        raise KeyError
    assert door.closed == 1


def test_class_without_close_cannot_be_instantiated() -> None:
    with pytest.raises(TypeError, match="close"):
        Closing()  # type: ignore[abstract]  # that is what is tried
