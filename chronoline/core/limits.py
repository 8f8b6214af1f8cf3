"""Bounds on input, and the checks that keep them. A check answers the problem in words, or None."""

from __future__ import annotations

from collections.abc import Sequence, Sized

from chronoline.core.message import NewMessage, SavedMessage

MIN_LEASE_MS = 10
"""A new end of a lease, or a new time from a consumer, lies at least this far ahead."""
CLOCK_BOUND_MS = 1_000
"""The most by which the clocks of processes that share a store may differ: the ε of the invariants.

A `now_ms` that reaches the store long after it was read is a clock that is behind, too.
"""
WRITE_BOUND_MS = 2_000
"""A create takes effect at most this long after the store was given its `now_ms`."""
TURN_BOUND_MS = 1_000
"""A create waits at most this long for its turn, then the store is busy: half of `WRITE_BOUND_MS`."""
SETTLED_AFTER_MS = CLOCK_BOUND_MS + WRITE_BOUND_MS
"""No create begins at a version that lies further back, whichever process makes it."""
MAX_RESERVE_AHEAD_MS = 60_000
"""A store reserves messages at most this long before they are due."""
MAX_TIME_MS = 253_402_300_799_999
"""The last millisecond of the year 9999."""
MAX_NAME_BYTES = 255
MAX_ID_BYTES = 512
"""128 characters, however many bytes each has."""
MAX_HEADERS = 256
MAX_HEADER_BYTES = 65_536
MAX_KEY_BYTES = 65_536
MAX_DIGEST_BYTES = 64
MAX_BODY_BYTES = 64 * 1024 * 1024
MAX_REASON_CHARACTERS = 1_000
MAX_ATTEMPTS = 2**31 - 1
MAX_BATCH = 10_000
"""Items of one call."""


def batch_problem(items: object, most: int = MAX_BATCH) -> str | None:
    """A batch is a list or a tuple of at most 10,000 items, or of `most`."""
    if isinstance(items, str | bytes) or not isinstance(items, Sized):
        return f"a batch must be a list or a tuple, not {type(items).__name__}"
    if len(items) > most:
        return f"a batch holds at most {most} items, not {len(items)}: split it"
    return None


def id_problem(value: object) -> str | None:
    """Ids are names of up to 512 bytes."""
    return name_problem("id", value, MAX_ID_BYTES)


def new_name_problem(what: str, value: object, most_bytes: int = MAX_NAME_BYTES) -> str | None:
    """The problem of a name that is given now, and becomes a segment of URLs.

    Clients and proxies resolve `.` and `..` in paths, however they are encoded: to delete `messages/..` would
    delete the topic. Stores of earlier releases can have such names, which stay usable.
    """
    if value in (".", ".."):
        return (
            f"{what} cannot be {value!r}: in the path of a URL it would be resolved to another name"
        )
    return name_problem(what, value, most_bytes)


MAX_SESSION_BYTES = 400


def session_problem(value: object) -> str | None:
    """The session of a lease (`core.session`): empty, or text of at most 400 bytes."""
    return None if value == "" else name_problem("session", value, MAX_SESSION_BYTES)


def name_problem(what: str, value: object, most_bytes: int = MAX_NAME_BYTES) -> str | None:
    """Producer groups, consumers and topics: text of 1 to 255 bytes in UTF-8, kept as given."""
    if not isinstance(value, str):
        return f"{what} must be text, not {type(value).__name__}"
    if not value:
        return f"{what} is empty"
    try:
        size_bytes = len(value.encode())
    except UnicodeEncodeError:
        return f"{what} is not valid UTF-8"
    if size_bytes > most_bytes:
        return f"{what} has {size_bytes} bytes; at most {most_bytes} are allowed"
    if "\0" in value:
        return f"{what} contains a NUL character"
    return None


def time_problem(what: str, value: object) -> str | None:
    """Whole milliseconds from 1970 to the end of the year 9999."""
    if not isinstance(value, int) or isinstance(value, bool):
        return f"{what} must be whole milliseconds since 1970, not {type(value).__name__}"
    if not 0 <= value <= MAX_TIME_MS:
        return f"{what} {value} is not between 1970 and the year 9999, in milliseconds"
    return None


def version_problem(value: object) -> str | None:
    """Versions begin at a moment and grow by one."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_TIME_MS:
        return f"version {value!r} is none that was ever given out; use the one of the lease"
    return None


def reason_problem(value: object) -> str | None:
    """Why a message is buried: text of at most 1,000 characters without NUL; it may be empty."""
    if value == "":
        return None
    if isinstance(value, str) and len(value) > MAX_REASON_CHARACTERS:
        return f"reason has {len(value)} characters; at most {MAX_REASON_CHARACTERS} are allowed"
    return name_problem("reason", value, 4 * MAX_REASON_CHARACTERS)


def message_problem(message: NewMessage, largest_body_bytes: int) -> str | None:
    """The problem of a message that is to be created."""
    return (
        new_name_problem("id", message.id, MAX_ID_BYTES)
        or time_problem("due", message.due)
        or name_problem("producer group", message.producer_group)
        or bytes_problem("body", message.body, largest_body_bytes)
        or (message.key is not None and bytes_problem("key", message.key, MAX_KEY_BYTES))
        or (message.headers != () and headers_problem(message.headers))
        or (message.expires is not None and expires_problem(message.expires, message.due))
        or (
            message.digest is not None and bytes_problem("digest", message.digest, MAX_DIGEST_BYTES)
        )
        or None
    )


def history_problem(saved: SavedMessage) -> str | None:
    """The problem of what a saved message has, and a new one has not."""
    attempts: object = saved.attempts
    if not isinstance(attempts, int) or not 0 <= attempts <= MAX_ATTEMPTS:
        return f"attempts must be a whole number from 0 to {MAX_ATTEMPTS}, not {attempts!r}"
    return (
        time_problem("due", saved.due)
        or time_problem("died", saved.died)
        or reason_problem(saved.reason)
    )


def expires_problem(expires: object, due: int) -> str | None:
    """A moment after the due."""
    problem = time_problem("expires", expires)
    if problem is None and isinstance(expires, int) and expires <= due:
        return "expires is not after due: the message could never be delivered"
    return problem


def bytes_problem(what: str, value: object, most_bytes: int) -> str | None:
    """Bytes of at most a size, or None."""
    if value is None:
        return None
    if not isinstance(value, bytes):
        return f"{what} must be bytes, not {type(value).__name__}"
    if len(value) > most_bytes:
        return f"{what} has {len(value)} bytes; at most {most_bytes} are allowed"
    return None


def headers_problem(headers: Sequence[object]) -> str | None:
    """At most 256 (name, value) pairs of at most 64 KiB."""
    if isinstance(headers, str | bytes) or not isinstance(headers, Sequence):
        return "headers must be a sequence of (name, value) pairs"
    if len(headers) > MAX_HEADERS:
        return f"there are {len(headers)} headers; at most {MAX_HEADERS} are allowed"
    total_bytes = 0
    for header in headers:
        if not isinstance(header, tuple) or len(header) != len(("name", "value")):
            return "headers must be (name, value) pairs"
        name, value = header
        problem = (name != "" and name_problem("header name", name)) or bytes_problem(
            f"header {name!r}", value, MAX_HEADER_BYTES
        )
        if problem:
            return problem
        total_bytes += len(name.encode()) + len(value or b"")
    if total_bytes > MAX_HEADER_BYTES:
        return f"the headers have {total_bytes} bytes; at most {MAX_HEADER_BYTES} are allowed"
    return None
