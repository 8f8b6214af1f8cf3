"""Ids sort by their time, uids fit a database's integer, and a bucket depends on the id alone."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronoline.core.ids import HASH_VALUES, bucket_of, id_time, make_id, make_topic_uid
from chronoline.core.limits import MAX_TIME_MS, name_problem

times = st.integers(0, MAX_TIME_MS)
entropies = st.binary(min_size=10, max_size=10)


@given(times, entropies)
def test_an_id_tells_when_it_was_made(now_ms: int, entropy: bytes) -> None:
    made = make_id(now_ms, entropy)
    assert len(made) == 26
    assert id_time(made) == now_ms
    assert name_problem("id", made) is None


@given(times, times, entropies, entropies)
def test_ids_sort_by_time_then_by_entropy(
    first_ms: int, second_ms: int, first: bytes, second: bytes
) -> None:
    ids_in_order = make_id(first_ms, first) < make_id(second_ms, second)
    assert ids_in_order == ((first_ms, first) < (second_ms, second))


@pytest.mark.parametrize(
    "natural", ["", "order-7", "i" * 26, "U" * 26, "é" * 26, "0" * 25, "0" * 27]
)
def test_a_natural_id_has_no_time(natural: str) -> None:
    assert id_time(natural) is None


@given(times, st.binary(min_size=3, max_size=3))
def test_a_topic_uid_fits_a_signed_64_bit_column(now_ms: int, entropy: bytes) -> None:
    assert 0 <= make_topic_uid(now_ms, entropy) < 2**63


def test_topic_uids_sort_by_time() -> None:
    now_ms = 1_800_000_000_000
    assert make_topic_uid(now_ms, b"\xff\xff\xff") < make_topic_uid(now_ms + 1, b"\0\0\0")


def test_topic_uids_of_one_millisecond_differ_by_their_entropy() -> None:
    assert make_topic_uid(5, b"\0\0\1") != make_topic_uid(5, b"\0\0\2")


@pytest.mark.parametrize("message_id", ["a", "order-7", "größe", "📅"])
def test_bucket_uses_the_first_16_bits_of_the_hash(message_id: str) -> None:
    first_16_bits = int(hashlib.sha256(message_id.encode()).hexdigest()[:4], 16)
    assert bucket_of(message_id, HASH_VALUES) == first_16_bits
    assert bucket_of(message_id, 64) == first_16_bits % 64
    assert bucket_of(message_id, 1) == 0


def test_buckets_are_filled_evenly() -> None:
    filled = [0] * 16
    for number in range(16_000):
        filled[bucket_of(f"message {number}", 16)] += 1
    assert min(filled) > 850
    assert max(filled) < 1_150
