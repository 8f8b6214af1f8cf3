"""A simulated shell around an agenda, with a simulated store and clock.

Messages appear at random moments. The shell does what the agenda's docstring tells it, and sleeps
until `wake_at` or until a notice comes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from chronoline.core.agenda import Agenda
from chronoline.core.message import LeasedMessage
from tests.core.leased import leased

AHEAD = 100
NOTICE_HORIZON = 1_000
LEASE = 10**9


@dataclass(frozen=True)
class Plan:
    """A message that appears at `created` and is meant to fire at `due`."""

    created: int
    due: int

    @property
    def earliest(self) -> int:
        return max(self.created, self.due)


@dataclass
class Timeline:
    """As much of a store as an agenda needs."""

    waiting: dict[str, int] = field(default_factory=dict)
    reservations: list[int] = field(default_factory=list)

    def reserve(self, limit: int, now_ms: int) -> list[LeasedMessage]:
        self.reservations.append(now_ms)
        in_reach = [(due, each) for each, due in self.waiting.items() if due <= now_ms + AHEAD]
        taken = [each for _, each in sorted(in_reach)[:limit]]
        return [leased(each, due=self.waiting.pop(each), until=now_ms + LEASE) for each in taken]

    def next_ts(self) -> int | None:
        return min(self.waiting.values(), default=None)


@dataclass
class Shell:
    """Runs an agenda until everything is delivered; records the time of each delivery."""

    agenda: Agenda
    oversleeps_ms: Sequence[int] = (0,)
    timeline: Timeline = field(default_factory=Timeline)
    delivered: list[tuple[str, int]] = field(default_factory=list)
    rounds: int = 0

    def run(self, plans: Sequence[Plan]) -> None:
        names = {f"m{number}": plan for number, plan in enumerate(plans)}
        moments = sorted({plan.created for plan in plans})
        now_ms = 0
        while moments or self.timeline.waiting or len(self.agenda):
            while moments and moments[0] <= now_ms:
                self._appear(names, moments.pop(0))
            self._act(now_ms)
            wake = self.agenda.wake_at(now_ms)
            # It also looks when something is created; without a notice it then finds nothing to do.
            now_ms = min([t for t in (wake, *moments[:1]) if t is not None], default=now_ms)
            if now_ms == wake:
                self.rounds += 1
                now_ms += self.oversleeps_ms[self.rounds % len(self.oversleeps_ms)]

    def _appear(self, names: dict[str, Plan], moment: int) -> None:
        for name, plan in names.items():
            if plan.created == moment:
                self.timeline.waiting[name] = plan.due
                if plan.due <= moment + NOTICE_HORIZON:
                    self.agenda.noticed(plan.due)

    def _act(self, now_ms: int) -> None:
        for _ in range(1_000):
            reserve_at = self.agenda.reserve_at(now_ms)
            if reserve_at is not None and reserve_at <= now_ms:
                room = self.agenda.room()
                got = self.timeline.reserve(room, now_ms)
                next_ts = self.timeline.next_ts()
                self.agenda.reserved(got, next_ts=next_ts, more=len(got) == room, now_ms=now_ms)
            ready = self.agenda.deliver(now_ms)
            self.delivered += [(each.lease.id, now_ms) for each in ready]
            wake = self.agenda.wake_at(now_ms)
            if wake is None or wake > now_ms:
                return
        raise AssertionError("the agenda always finds something more to do at the same moment")


def agenda(capacity: int = 10_000) -> Agenda:
    return Agenda(capacity=capacity, reserve_ahead_ms=AHEAD, max_sleep_ms=NOTICE_HORIZON)


plans_strategy = st.lists(
    st.builds(
        lambda created, delay: Plan(created, max(0, created + delay)),
        st.integers(0, 5_000),
        st.integers(-200, 400) | st.integers(0, 4_000),
    ),
    max_size=40,
)


@given(plans_strategy)
def test_messages_known_in_time_are_delivered_at_due(plans: list[Plan]) -> None:
    shell = Shell(agenda())
    shell.run(plans)
    expected = {f"m{number}": plan.earliest for number, plan in enumerate(plans)}
    assert dict(shell.delivered) == expected
    assert len(shell.delivered) == len(plans)


@given(plans_strategy, st.integers(1, 5), st.lists(st.integers(0, 150), min_size=1, max_size=5))
def test_small_agenda_loses_nothing_and_is_never_early(
    plans: list[Plan], capacity: int, oversleeps_ms: list[int]
) -> None:
    shell = Shell(agenda(capacity), oversleeps_ms)
    shell.run(plans)
    assert sorted(name for name, _ in shell.delivered) == sorted(
        f"m{number}" for number in range(len(plans))
    )
    early = [name for name, at in shell.delivered if at < plans[int(name[1:])].earliest]
    assert early == []


def test_dense_traffic_is_reserved_at_the_tick_only() -> None:
    shell = Shell(agenda())
    shell.run([Plan(created, created + AHEAD + 2) for created in range(1, 1_001)])
    assert len(shell.timeline.reservations) <= 2 + 1_200 // (AHEAD // 2)
