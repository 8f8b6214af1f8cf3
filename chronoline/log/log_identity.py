"""The tie between objects and their index: another index would take the objects for orphans.

Both keep the id of their log. The index chooses it and keeps it first; then the objects are marked with it,
if they have no mark yet. So at most one index is ever tied to some objects: an index that finds another
mark is refused, also while there are no events. An id names the place in which it was chosen. So a first
opening that died between the two steps can be repeated there, while any other place refuses the same index.

Every process reads the mark before the id. A process that sees a mark sees the id too, so two that open a new
log at the same time recognize each other.
"""

from __future__ import annotations

from hashlib import sha256

from chronoline.core.errors import StoreError
from chronoline.log.contract import MARK, Index, Objects
from chronoline.log.objects.address import path_of

_DIGEST_CHARACTERS = 16
_NEW_INDEX = (
    "there are objects of a log here, and the index is new: was the old one lost, or is another named? Name "
    "the index of these objects, or another place for new ones. If there never was one, because a first "
    f"opening died, delete {path_of(MARK)!r}"
)
_OTHER_LOG = (
    "this index belongs to the objects of another log, and an index (a SQLite file, a PostgreSQL database, a "
    "DynamoDB table) holds one log; name the place of those, or an index of its own for this one"
)


def tie(objects: Objects, index: Index, *, place: str, random_id: str) -> None:
    """Ties objects and index by an id that both keep, the first time; later it checks it."""
    if is_tied(objects, index, place=place):
        return
    known = index.tie(f"{random_id}-{_digest(place)}")
    if not _is_chosen_at(place, known) and objects.marked() != known:
        raise StoreError(_OTHER_LOG)  # it was tied elsewhere meanwhile
    if objects.mark(known) != known:
        raise StoreError(_NEW_INDEX)  # another index was faster


def is_tied(objects: Objects | None, index: Index | None, *, place: str) -> bool:
    """Whether both are tied already; false if they may be. Raises `StoreError` if they may not.

    None stands for a missing part. Nothing is changed, so it can be called before anything is made.
    """
    known, has_events, has_topics = None, False, False
    marked = _mark_of(objects)
    if marked is None:
        has_events = objects is not None and next(iter(objects.list()), None) is not None
        if index is not None:
            known, has_topics = index.log_id(), bool(index.list_topics())
        marked = _mark_of(objects)  # a concurrent first opening may have come this far
    if marked is not None:
        known = None if index is None else index.log_id()
        if known is None:
            raise StoreError(_NEW_INDEX)
        if known != marked:
            raise StoreError(_OTHER_LOG)
        return True
    if known is None:
        if has_events and not has_topics:
            raise StoreError(_NEW_INDEX)
    elif not _is_chosen_at(place, known):
        raise StoreError(_OTHER_LOG)
    elif has_events or has_topics:
        raise StoreError(
            f"the objects of this index's log are gone from here, or their mark is, {path_of(MARK)!r}: bring "
            "them back, or name the place where they are"
        )
    return False


def _mark_of(objects: Objects | None) -> str | None:
    return None if objects is None else objects.marked()


def _is_chosen_at(place: str, log_id: str) -> bool:
    return log_id.endswith(f"-{_digest(place)}")


def _digest(place: str) -> str:
    return sha256(place.encode(errors="surrogateescape")).hexdigest()[:_DIGEST_CHARACTERS]
