"""The same partitions as Kafka's Java client."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronoline.core.errors import InvalidInput
from chronoline.log.partitioner import murmur2, partition_id

# From the tests of Kafka's Java client, as signed numbers.
KNOWN = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("key", "hashed"), KNOWN.items())
def test_the_hash_of_kafka(key: bytes, hashed: int) -> None:
    assert murmur2(key) == hashed & 0xFFFFFFFF


def test_the_sign_is_dropped_before_the_remainder() -> None:
    assert partition_id(b"21", 10) == (-973932308 & 0x7FFFFFFF) % 10


@pytest.mark.parametrize(
    ("key", "partitions", "said"),
    [
        ("text", 8, "a key is bytes, not str"),
        ([117, 1], 8, "a key is bytes, not list"),
        (None, 8, "a key is bytes, not NoneType"),
        (b"x", 0, "from 1 on, not 0"),
        (b"x", -3, "from 1 on, not -3"),
        (b"x", 2.0, "from 1 on, not 2.0"),
    ],
)
def test_invalid_arguments_are_refused(key: Any, partitions: Any, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        partition_id(key, partitions)


@given(st.binary(max_size=40), st.integers(1, 4_096))
def test_every_key_has_a_partition(key: bytes, partitions: int) -> None:
    assert partition_id(key, partitions) in range(partitions)
