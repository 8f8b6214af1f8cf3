"""The partition of an event, as Kafka's Java client computes it."""

from __future__ import annotations

from chronoline.core.errors import InvalidInput

_MASK = 0xFFFFFFFF
_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995


def murmur2(data: bytes) -> int:
    """Murmur2 with Kafka's seed, as an unsigned 32-bit number."""
    h = _SEED ^ len(data)
    whole = len(data) & ~3
    for place in range(0, whole, 4):
        k = int.from_bytes(data[place : place + 4], "little") * _MULTIPLIER & _MASK
        k = (k ^ (k >> 24)) * _MULTIPLIER & _MASK
        h = (h * _MULTIPLIER & _MASK) ^ k
    if len(data) > whole:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    h = (h ^ (h >> 13)) * _MULTIPLIER & _MASK
    return h ^ (h >> 15)


def partition_id(key: bytes, partitions: int) -> int:
    """The partition of a key. Raises `InvalidInput`."""
    if not isinstance(key, bytes):
        raise InvalidInput(f"a key is bytes, not {type(key).__name__}")
    if type(partitions) is not int or partitions < 1:
        raise InvalidInput(f"partitions must be a whole number from 1 on, not {partitions!r}")
    return (murmur2(key) & 0x7FFFFFFF) % partitions
