"""Stores that are there already, for commands that look at a pipe."""

from __future__ import annotations

from chronoline.core.errors import InvalidInput, TopicNotFound
from chronoline.core.topic import Topic
from chronoline.pipe.local_files import missing_file
from chronoline.pipe.settings import PipeSettings
from chronoline.runtime.store_url import without_password
from chronoline.stores.contract import Store
from chronoline.stores.factory import open_store

NOT_IN_THE_STORE = ("input", "output", "dead_letters", "spark")
"""Tables that a command has no use for when all it looks at is the store."""


def open_known_store(settings: PipeSettings) -> Store:
    """Opens a store that exists. A file that does not is not made by looking at it."""
    missing = missing_file(settings.store)
    if missing is not None:
        raise InvalidInput(
            f"there is no store {str(missing)!r}: `chronoline pipe run` makes it, --store or --config names "
            "another"
        )
    return open_store(settings.store)


def timeline_of(settings: PipeSettings, store: Store) -> Topic:
    """The timeline of a pipe that has run."""
    topic = store.find_topic(settings.name)
    if topic is None:
        raise TopicNotFound(
            f"no pipe named {settings.name!r} has ever run with the store {shown_store(settings)}: "
            "`chronoline pipe run` starts one. --name and --store name another"
        )
    return topic


def shown_store(settings: PipeSettings) -> str:
    """Its URL, without what may be secret."""
    return without_password(settings.store)
