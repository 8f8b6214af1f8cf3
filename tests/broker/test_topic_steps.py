"""Which step a topic's creation or deletion takes next."""

from __future__ import annotations

import itertools

import pytest

from chronoline.broker.topic_steps import Holder, Step, StoredTopic, next_step
from chronoline.coordination.topics import RegisteredTopic, TopicState
from chronoline.core.topic import Topic

LIVE = StoredTopic(Topic(uid=7, name="t"), is_live=True)
DROPPED = StoredTopic(Topic(uid=7, name="t"), is_live=False)
OTHER = StoredTopic(Topic(uid=8, name="t"), is_live=True)
OTHER_DROPPED = StoredTopic(Topic(uid=8, name="t"), is_live=False)
STORED = (None, LIVE, DROPPED, OTHER, OTHER_DROPPED)


def entry(state: TopicState, uid: int | None = 7) -> RegisteredTopic:
    return RegisteredTopic("t", state, "r", uid)


CREATING = entry(TopicState.CREATING, None)
OPEN = entry(TopicState.OPEN)
DELETING = entry(TopicState.DELETING)
UNDONE = entry(TopicState.DELETING, None)
REGISTERED = (None, CREATING, OPEN, DELETING, UNDONE)


@pytest.mark.parametrize(
    ("registered", "stored", "step"),
    [
        (None, None, Step.GIVE_UP),
        (None, LIVE, Step.ADOPT),
        (None, DROPPED, Step.GIVE_UP),
        (CREATING, None, Step.PROVISION),
        (CREATING, LIVE, Step.OPEN),
        (CREATING, DROPPED, Step.ABORT),
        (OPEN, LIVE, Step.GIVE_UP),
        (OPEN, None, Step.FORGET),
        (OPEN, DROPPED, Step.CLOSE),
        (OPEN, OTHER, Step.FORGET),
        (OPEN, OTHER_DROPPED, Step.FORGET),
        (DELETING, LIVE, Step.DROP),
        (DELETING, DROPPED, Step.ERASE),
        (DELETING, None, Step.REMOVE),
        (DELETING, OTHER, Step.REMOVE),
        (DELETING, OTHER_DROPPED, Step.REMOVE),
        (UNDONE, None, Step.REMOVE),
        (UNDONE, LIVE, Step.REMOVE),
    ],
)
def test_step_of_the_holder(
    registered: RegisteredTopic | None, stored: StoredTopic | None, step: Step
) -> None:
    assert next_step(registered, stored, Holder.US) is step


@pytest.mark.parametrize(
    ("registered", "stored"),
    [(CREATING, None), (CREATING, LIVE), (DELETING, LIVE), (DELETING, None)],
)
def test_unfinished_work_is_claimed_first(
    registered: RegisteredTopic, stored: StoredTopic | None
) -> None:
    assert next_step(registered, stored, Holder.NOBODY) is Step.CLAIM
    assert next_step(registered, stored, Holder.ANOTHER) is Step.WAIT


def test_agreement_needs_no_step_and_no_claim() -> None:
    for holder in (Holder.NOBODY, Holder.ANOTHER):
        assert next_step(OPEN, LIVE, holder) is Step.REST
        assert next_step(None, None, holder) is Step.REST


def after(
    step: Step, registered: RegisteredTopic | None, stored: StoredTopic | None
) -> tuple[RegisteredTopic | None, StoredTopic | None]:
    """Registry and store after a step."""
    uid = None if stored is None else stored.topic.uid
    left: dict[Step, tuple[RegisteredTopic | None, StoredTopic | None]] = {
        Step.ADOPT: (entry(TopicState.OPEN, uid), stored),
        Step.OPEN: (entry(TopicState.OPEN, uid), stored),
        Step.PROVISION: (registered, LIVE),
        Step.ABORT: (UNDONE, stored),
        Step.CLOSE: (DELETING, stored),
        Step.FORGET: (None, stored),
        Step.DROP: (registered, DROPPED),
        Step.ERASE: (registered, None),
        Step.REMOVE: (None, stored),
    }
    return left[step]


@pytest.mark.parametrize(("registered", "stored"), list(itertools.product(REGISTERED, STORED)))
def test_steps_lead_to_agreement_from_everywhere(
    registered: RegisteredTopic | None, stored: StoredTopic | None
) -> None:
    for _ in range(8):
        step = next_step(registered, stored, Holder.US)
        if step is Step.GIVE_UP:
            break
        registered, stored = after(step, registered, stored)
    assert registered is None or registered.state is TopicState.OPEN
    live_uid = stored.topic.uid if stored is not None and stored.is_live else None
    assert (None if registered is None else registered.uid) == live_uid
