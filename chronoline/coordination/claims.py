"""Claims: tasks that one broker of the cluster works on.

A claim is an entry `claims/TASK` under the session of its broker. It vanishes with the session, and then
another broker takes the task over. A broker that was stopped may still work when its claim is another's: a
task must bear being done twice, or be fenced by the claim's number in the store.
"""

from __future__ import annotations

from dataclasses import dataclass

from chronoline.coordination.contract import (
    Absent,
    BrokerSession,
    Coordination,
    Delete,
    HeldBy,
    KeyValue,
    Put,
    Unchanged,
    View,
    key_of,
    parts_of,
    prefix_of,
)
from chronoline.coordination.records import Record, records_of
from chronoline.coordination.settlement import commit_surely

CLAIMS = prefix_of("claims")


@dataclass(frozen=True)
class ClaimRecord(Record):
    """A claim, as others see it."""

    broker: str


@dataclass(frozen=True, slots=True)
class TaskClaim:
    """A task that is ours while our session lasts."""

    task: tuple[str, ...]
    session: BrokerSession
    number: int
    """Greater than that of every earlier claim to the task."""

    @property
    def key(self) -> str:
        return key_of("claims", *self.task)

    @property
    def is_trusted(self) -> bool:
        """Whether nobody else can have it: its session is trusted."""
        return self.session.is_trusted

    @property
    def condition(self) -> HeldBy:
        """For commits that only the holder may make."""
        return HeldBy(self.key, self.session)


def claims_of(view: View) -> dict[tuple[str, ...], str]:
    """The broker of each claimed task, from a view of `CLAIMS`."""
    return {parts_of(entry.key)[1:]: claim.broker for entry, claim in records_of(ClaimRecord, view)}


async def take(
    coordination: Coordination, session: BrokerSession, *task: str, broker: str
) -> TaskClaim | None:
    """Claims a task; None while another session has it. A task that is ours is claimed again.

    Raises `SessionLost` and the errors of a commit.
    """
    key = key_of("claims", *task)

    def is_ours(found: KeyValue | None) -> bool:
        return found is not None and found.session == session.id

    done = await commit_surely(
        coordination,
        [Put(key, ClaimRecord(broker).encode(), session)],
        when=[Absent(key)],
        is_ours=is_ours,
    )
    if done.is_made:
        return TaskClaim(task, session, done.revision)
    found = await coordination.get(key)
    return TaskClaim(task, session, found.version) if found and is_ours(found) else None


async def give_up(coordination: Coordination, claim: TaskClaim) -> None:
    """Gives a task up, for others to take. Nothing is done if it is another's already."""
    await commit_surely(
        coordination,
        [Delete(claim.key)],
        when=[Unchanged(claim.key, claim.number)],
        is_ours=lambda found: found is None,
    )
