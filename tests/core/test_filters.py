"""Places in lists, as clients give them back."""

from __future__ import annotations

import base64

import pytest

from chronoline.core.errors import InvalidInput
from chronoline.core.filters import ListPlace, statuses_of
from chronoline.core.limits import MAX_ID_BYTES, MAX_NAME_BYTES, MAX_TIME_MS
from chronoline.core.status import Status


def test_longest_place_comes_back() -> None:
    place = ListPlace(MAX_TIME_MS, 2**31, "😀" * (MAX_ID_BYTES // 4), "é" * (MAX_NAME_BYTES // 2))
    assert ListPlace.from_text(place.to_text()) == place


@pytest.mark.parametrize("text", ["[" * 3_000, "[1,1,1]", "[" + "1," * 1_000_000 + "1]"])
def test_other_text_is_no_place(text: str) -> None:
    with pytest.raises(InvalidInput, match="is not the `next`"):
        ListPlace.from_text(base64.urlsafe_b64encode(text.encode()).decode())


def test_endless_list_of_statuses_is_refused() -> None:
    assert statuses_of(["waiting"] * 100) == {Status.WAITING}
    with pytest.raises(InvalidInput, match="101 statuses; there are 3"):
        statuses_of(["waiting"] * 101)
