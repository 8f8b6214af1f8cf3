"""The next step of a topic's creation or deletion, from what registry, store and claims show of its name.

```
             register      provision       open
   (free) ─► creating ───► creating ─────► open ─► clients come
             no storage    storage  │
                 │ abort            │ delete (the user), close (deleted in the store)
                 ▼                  ▼
             deleting ◄──────── deleting ──► drop ──► erase … erase ──► remove ──► (free)
```

A broker can die after any of these steps: the next one follows from what it left. Where registry and store
disagree the store is right: a topic that only the store has is adopted, and one that was deleted there is
closed. If the store has no row of a topic, only its entry is removed: there is nothing to erase, and the
topic may be that of another store, whose brokers adopt it again.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from chronoline.coordination.topics import RegisteredTopic, TopicState
from chronoline.core.topic import Topic


class Step(StrEnum):
    """A step for a name."""

    REST = "rest"
    """Nothing: registry and store agree."""
    WAIT = "wait"
    """Nothing: another broker has the claim. It vanishes with that broker's session."""
    CLAIM = "claim"
    GIVE_UP = "give up"
    """Everything is done: the claim is not needed any more."""
    ADOPT = "adopt"
    """Register the store's topic as open."""
    PROVISION = "provision"
    """Make the topic in the store."""
    OPEN = "open"
    """Let clients come."""
    ABORT = "abort"
    """Undo a creation that cannot be finished."""
    CLOSE = "close"
    """Register the deletion of a topic that was deleted in the store."""
    FORGET = "forget"
    """Remove the entry of a topic that the store does not know."""
    DROP = "drop"
    """Delete the topic in the store: from then on every command fails, at every process."""
    ERASE = "erase"
    """Remove some of its messages."""
    REMOVE = "remove"
    """Remove the entry: the name is free."""


class Holder(StrEnum):
    """The holder of the claim to a name."""

    NOBODY = "nobody"
    US = "us"
    ANOTHER = "another"


@dataclass(frozen=True, slots=True)
class StoredTopic:
    """A topic as the store has it: alive, or deleted and still being removed."""

    topic: Topic
    is_live: bool


_UNDER_CLAIM = frozenset(
    {Step.PROVISION, Step.OPEN, Step.ABORT, Step.DROP, Step.ERASE, Step.REMOVE}
)
"""Steps of one broker at a time. All others are one compare-and-swap each."""

FOLLOWS_STORE = frozenset({Step.ADOPT, Step.OPEN, Step.ABORT, Step.CLOSE, Step.FORGET, Step.REMOVE})
"""Steps that change the registry because of what the store shows, which must be durable there by then."""


def next_step(
    registered: RegisteredTopic | None, stored: StoredTopic | None, holder: Holder
) -> Step:
    """The next step for a name, whose topic is `registered` and `stored`."""
    step = _wanted_step(registered, stored)
    if step in _UNDER_CLAIM and holder is not Holder.US:
        return Step.CLAIM if holder is Holder.NOBODY else Step.WAIT
    if step is Step.REST and holder is Holder.US:
        return Step.GIVE_UP
    return step


def _wanted_step(registered: RegisteredTopic | None, stored: StoredTopic | None) -> Step:
    live_uid = stored.topic.uid if stored is not None and stored.is_live else None
    if registered is None:
        return Step.REST if live_uid is None else Step.ADOPT
    if registered.state is TopicState.CREATING:
        if stored is None:
            return Step.PROVISION
        return Step.ABORT if live_uid is None else Step.OPEN
    has_row = stored is not None and stored.topic.uid == registered.uid
    is_live = has_row and live_uid is not None
    if registered.state is TopicState.OPEN:
        known = Step.REST if is_live else Step.CLOSE
        return known if has_row else Step.FORGET
    known = Step.DROP if is_live else Step.ERASE
    return known if has_row else Step.REMOVE
