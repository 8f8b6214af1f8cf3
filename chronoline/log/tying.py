"""Objects and their index belong together: one that does not know some objects takes them for orphans."""

from __future__ import annotations

from chronoline.core.errors import StoreError
from chronoline.log.contract import Index, Objects


def tie(objects: Objects, index: Index, new_id: str) -> None:
    """Ties objects and index by an id that both keep, the first time; later it checks it.

    An index that was never tied may take over what is empty, or what it has topics for. The objects are
    marked first, so that a first opening that dies in between can be done again: nothing was appended yet.
    """
    marked = objects.mark(new_id)
    known = index.log_id()
    if known is None:
        if not index.list_topics() and next(iter(objects.list()), None) is not None:
            raise StoreError(
                "there are objects of a log here, and the index is new: was the old one lost, or is another "
                "named? Name the index of these objects, or another place for new ones"
            )
        known = index.tie(marked)
    if known != marked:
        raise StoreError(
            "this index belongs to the objects of another log; name the place of those, or an index of its "
            "own for this one"
        )
