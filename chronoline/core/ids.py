"""Ids: sortable ones made by us, and the bucket that any id belongs to."""

from __future__ import annotations

import hashlib

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Crockford's base 32: no I, L, O, U
_PAIRS = [first + second for first in _ALPHABET for second in _ALPHABET]  # ten bits at a time
_ID_CHARACTERS = 26
ID_ENTROPY_BYTES = 10
_UID_ENTROPY_BITS = 21
UID_ENTROPY_BYTES = 3
MAX_UID = (1 << 63) - 1
_UID_TIMES = 1 << (63 - _UID_ENTROPY_BITS)
HASH_VALUES = 1 << 16


def make_id(now_ms: int, entropy: bytes) -> str:
    """A 26-character id that sorts by its time; `entropy` is 10 random bytes."""
    number = (now_ms << 80) | int.from_bytes(entropy[:ID_ENTROPY_BYTES], "big")
    return "".join([_PAIRS[(number >> shift) & 1023] for shift in range(120, -10, -10)])


def id_time(message_id: str) -> int | None:
    """When an id of ours was made, or None for a natural id."""
    if len(message_id) != _ID_CHARACTERS or any(c not in _ALPHABET for c in message_id):
        return None
    number = 0
    for character in message_id:
        number = number * 32 + _ALPHABET.index(character)
    return number >> 80


def make_topic_uid(now_ms: int, entropy: bytes) -> int:
    """A positive 63-bit number that sorts by its time until 2109; `entropy` is 3 random bytes."""
    random_bits = int.from_bytes(entropy[:UID_ENTROPY_BYTES], "big") & (
        (1 << _UID_ENTROPY_BITS) - 1
    )
    return ((now_ms % _UID_TIMES) << _UID_ENTROPY_BITS) | random_bits


def bucket_of(message_id: str, buckets: int) -> int:
    """The bucket of an id: the first 16 bits of its SHA-256, modulo the topic's buckets.

    The same for every create of one id, and computable inside a database.
    """
    digest = hashlib.sha256(message_id.encode(), usedforsecurity=False).digest()
    return ((digest[0] << 8) | digest[1]) % buckets


def spread_of(message_id: str, span_ms: int) -> int:
    """A number from 0 up to, but not including, a span: the same for every use of one id.

    It comes from other bits of the id's hash than the bucket, so that each bucket is spread evenly.
    """
    digest = hashlib.sha256(message_id.encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest[2:9], "big") % span_ms
