"""A timer node: the shell of a replica, with journal, peers, callbacks and clock.

Everything happens on one event loop. The node acts on decisions at the end of the same turn of the loop: the
changes of all requests of that turn go to the journal together, and to each peer together.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from chronoline.callbacks.caller import Answer, Caller, Endpoint, Verdict, endpoint_of
from chronoline.core.callback_url import shown_url
from chronoline.core.errors import OutcomeUnknown, StoreError
from chronoline.runtime.alarm import PreciseAlarm
from chronoline.runtime.log_summary import LogSummary
from chronoline.runtime.tasks import TaskSet
from chronoline.timers.call_queue import CallQueue
from chronoline.timers.callbacks import Callbacks
from chronoline.timers.errors import Changed, Contended, Unstored
from chronoline.timers.hybrid_clock import DEFAULT_BOUND_MS
from chronoline.timers.ids import TimerName
from chronoline.timers.journal import Journal, Saved
from chronoline.timers.membership import Membership, filter_of, matching
from chronoline.timers.metrics import TimersMetrics
from chronoline.timers.peer_records import PeerRecords
from chronoline.timers.peers import Peer, PeerAnswer
from chronoline.timers.plan import TimerPlan
from chronoline.timers.queue_balancer import QueueBalancer
from chronoline.timers.replica import Attempts, Callback, Replica
from chronoline.timers.timer import Lives, Timer, Version
from chronoline.timers.turn_asker import TurnAsker

logger = logging.getLogger(__name__)
_summary = LogSummary(logger)

_MOST_CALLS_AT_ONCE = 200
_MOST_TRIES = 8
_STALL_MS = 250
"""A node that stood still for this long asks its peers for changes before it pops anything."""
_LINGER_MS = 100
"""A change that no client waits for is saved and sent together with those of the next milliseconds."""
_SAVE_AGAIN_MS = 1_000
_BACK_PATIENCE_S = 1.0
_LEAVING_PATIENCE_S = 1.0
_SOON_MS = 5_000
_HURRIED_AT_ONCE = 2_000


class TimerNode:
    """The timers of one process."""

    def __init__(
        self,
        me: str,
        membership: Membership,
        *,
        journal: Journal,
        calls: Callbacks,
        connect: Callable[[str, TimerNode], Peer],
        metrics: TimersMetrics,
        attempts: Attempts | None = None,
        least_copies: int = 1,
        clock_bound_ms: int = DEFAULT_BOUND_MS,
    ) -> None:
        """`connect` makes the peer of an address. A change is answered once `least_copies` nodes have it."""
        self.me = me
        self.replica = Replica(
            me,
            membership,
            # New at each start: this node may reuse numbers that it gave and did not keep.
            life=f"{journal.life}/{secrets.token_hex(4)}",
            attempts=attempts,
            jitter=random.random,
            is_owed=lambda timer_id: any(peer.owes(timer_id) for peer in self._peers.values()),
            may_ask=self._may_ask,
            clock_bound_ms=clock_bound_ms,
        )
        self.intake = PeerRecords(
            problem=self.replica.problem,
            now_ms=self.now_ms,
            wall_ms=self.wall_ms,
            refused=metrics.refused_records,
        )
        self.journal = journal
        self.metrics = metrics
        self.is_loaded = False
        self.is_ready = False
        self.callbacks = calls
        self._connect = connect
        self._least_copies = least_copies
        self._peers: dict[str, Peer] = {}
        self._confirmed: dict[int, Lives] = {}
        self._lives: dict[tuple[tuple[str, str], ...], Lives] = {}
        self._saving: asyncio.Future[None] | None = None
        self._lingering: asyncio.TimerHandle | None = None
        # The last save that was begun.
        self._under_way: asyncio.Future[None] | None = None
        self._telling: set[asyncio.Future[PeerAnswer | None]] = set()
        self._alarm = PreciseAlarm(self._ring)
        # The moment of the alarm; None if it is not set.
        self._alarm_ms: int | None = None
        self._tasks = TaskSet()
        # Timers that wait for a free place at their host.
        self._queue = CallQueue(calls.limits)
        self._balancer = QueueBalancer(self.replica, self._queue, self._peers, self.now_ms)
        self._turns = TurnAsker(
            self.replica,
            self._peers,
            self.intake,
            now_ms=self.now_ms,
            receive=self.receive,
            start=self.start_work,
            answered=self._set_alarm,
        )
        # Calls that have a place: those about to begin, since others use the host too, and the running ones.
        self._beginning: dict[asyncio.Task[None], Callback] = {}
        self._begun: dict[asyncio.Task[None], Callback] = {}
        self._is_stopping = False

    # Clocks

    def now_ms(self) -> int:
        """The monotonic clock, rounded down: nothing is early."""
        return time.monotonic_ns() // 1_000_000

    @staticmethod
    def wall_ms() -> int:
        return time.time_ns() // 1_000_000

    # Peers

    @property
    def peers(self) -> dict[str, Peer]:
        """Every other node of the membership."""
        return self._peers

    async def see(self, membership: Membership) -> None:
        """Takes a new list of nodes. Nodes that are no longer in it get no more records."""
        self.replica.see(membership)
        others = set(membership.everybody) - {self.me}
        gone = [self._peers.pop(address) for address in set(self._peers) - others]
        for address in others - set(self._peers):
            self._peers[address] = self._connect(address, self)
        for peer in gone:
            await peer.stop()

    def _may_ask(self, node: str) -> bool:
        """Whether a node can answer a question: as far as is known it runs and can be reached."""
        peer = self._peers.get(node)
        return peer is not None and not peer.is_away and not peer.has_left

    def load(self, saved: Saved) -> None:
        """Takes a saved timer of the journal."""
        timer = self.replica.at_home(saved.timer) if saved.was_kept else saved.timer
        self.replica.put_back(timer, self.now_ms(), was_kept=saved.was_kept)
        self.replica.take_changes()
        if saved.confirmed:
            self._confirmed[saved.timer.id] = self._lives.setdefault(
                saved.confirmed, saved.confirmed
            )

    # Requests of clients

    async def change(self, name: TimerName, plan: TimerPlan | None, *, factor: int) -> Changed:
        """Creates, replaces or deletes a timer; returns once it is on the disks of all reachable replicas."""
        known = self.replica.membership.everybody
        at = matching(name.replicas_filter, known) if name.replicas_filter is not None else ()
        is_taken = False  # by another change, in an earlier try
        above = 0
        for _ in range(_MOST_TRIES):
            # Rounded up to whole milliseconds: the timer is never early.
            change = self.replica.change(
                name.id,
                plan,
                factor=factor,
                at=at,
                now_ms=self.now_ms() + 1,
                wall_ms=self.wall_ms(),
                above=above,
            )
            timer = change.timer
            telling = asyncio.create_task(self._send_record(change.keepers, timer))
            is_ours = self.me in timer.replicas
            unsaved: StoreError | None = None
            if is_ours:
                self.receive(timer)
                try:
                    await self.saved()
                except StoreError as error:
                    unsaved = error
            answers = await telling
            _check_taken(answers)
            told = {node: each for node, each in answers.items() if each.life}
            copies = len(told) + (is_ours and unsaved is None)
            if unsaved is not None and not copies:
                raise OutcomeUnknown(
                    "the journal could not be written to: it is on no disk yet, and may pop"
                ) from unsaved
            if not copies and (answers or is_taken):
                raise OutcomeUnknown(
                    "the nodes that are to keep the timer do not answer; it may pop"
                )
            if not copies:
                raise Unstored
            newest = _newest(told)
            others: dict[str, PeerAnswer] = {}
            if newest is None:
                others = await self._send_record(change.others, timer)
                _check_taken(others)
                newest = _newest(others)
            if newest is not None:
                self.replica.saw(newest)
                above = newest.number
            elif timer.view == self.replica.membership.view:
                break
            # Otherwise the list of nodes changed meanwhile, and its resync may have missed the timer.
            is_taken = True
        else:
            raise Contended(f"{name} is being changed by too many at once")
        confirmed = tuple((node, each.life) for node, each in told.items())
        wanted = {*timer.replicas, *(each for each in change.others if each in self._peers)}
        heard = sum(bool(each.life) for each in others.values())
        self._note(timer, confirmed, is_whole=copies + heard == len(wanted))
        if copies < min(self._least_copies, len(timer.replicas)):
            have = "have the timer" if plan else "know that the timer was deleted"
            raise OutcomeUnknown(
                f"only {copies} of {len(timer.replicas)} nodes {have}, and {self._least_copies} are wanted; "
                "it may pop"
            )
        return Changed(
            TimerName(name.id, replicas_filter=filter_of(timer.replicas), factor=factor),
            copies,
            len(timer.replicas),
        )

    async def _send_record(self, nodes: Iterable[str], timer: Timer) -> dict[str, PeerAnswer]:
        """Sends a record to these nodes; returns the answers of the reachable ones."""
        peers = [peer for node in nodes if (peer := self._peers.get(node))]
        told = await asyncio.gather(*(peer.send(timer) for peer in peers))
        return {peer.address: each for peer, each in zip(peers, told, strict=True) if each}

    def _note(self, timer: Timer, confirmed: Lives, *, is_whole: bool) -> None:
        """Notes which nodes have the record; the others get it later from any node that has it."""
        ours = ((self.me, self.journal.life),) if self.me in timer.replicas else ()
        for address, _ in confirmed:
            if peer := self._peers.get(address):
                peer.confirm(timer, (*confirmed, *ours))
        if self.me in timer.replicas:
            self.confirm(timer.id, timer.version, confirmed)
        elif not is_whole or self.replica.get(timer.id) is not None:
            self.receive(timer)

    def confirm(self, timer_id: int, version: Version, lives: Lives) -> None:
        """Notes that these nodes have that version of a timer; every node that knows it tells the others."""
        timer = self.replica.get(timer_id)
        if timer is not None and timer.version == version:
            others = tuple(each for each in lives if each[0] != self.me)
            self.replica.inform_others(timer_id, {node for node, _ in others})
            if self._confirmed.get(timer_id, ()) != others:
                self._confirmed[timer_id] = self._lives.setdefault(others, others)
                self.replica.touch(timer_id)
            self.act(within_ms=_LINGER_MS)

    def receive(self, timer: Timer) -> Timer:
        """Takes in a record; its consequences are acted on at the end of this turn of the loop."""
        before = self.replica.get(timer.id)
        held = self.replica.receive(timer, self.now_ms())
        if before is not None and before.version != held.version:
            self._confirmed.pop(timer.id, None)  # the nodes that have this one are not known yet
        self.act()
        return held

    # Decisions

    def act(self, *, within_ms: int = 0) -> None:
        """Schedules the acting on decisions: at the end of this turn, or a little later in a batch."""
        loop = asyncio.get_running_loop()
        if self._saving is None:
            self._saving = loop.create_future()
        elif self._lingering is None:
            return
        if self._lingering is not None:
            if within_ms and self._lingering.when() <= loop.time() + within_ms / 1000:
                return
            self._lingering.cancel()
            self._lingering = None
        if within_ms:
            self._lingering = loop.call_later(within_ms / 1000, self._act)
        else:
            loop.call_soon(self._act)

    async def saved(self) -> None:
        """Waits until all decisions so far are on disk."""
        if self._saving is not None:
            self.act()
            await asyncio.shield(self._saving)
        elif self._under_way is not None and not self._under_way.done():
            await asyncio.shield(self._under_way)

    async def told(self) -> None:
        """Waits until the reachable peers have all decisions so far."""
        await self.saved()
        if self._telling:
            await asyncio.wait(list(self._telling))

    def _act(self) -> None:
        done, self._saving, self._lingering = self._saving, None, None
        assert done is not None
        changes = [
            (timer_id, timer, self._confirmed.get(timer_id, ()))
            for timer_id, timer in self.replica.take_changes()
        ]
        for timer_id, timer, _ in changes:
            if timer is None:
                self._confirmed.pop(timer_id, None)
        for address, timers in self.replica.take_messages().items():
            if peer := self._peers.get(address):
                for timer in timers:
                    telling = peer.send(timer)
                    self._telling.add(telling)
                    telling.add_done_callback(self._telling.discard)
        self._set_alarm()
        if changes:
            self._save(changes, done)
        elif self._under_way is not None and not self._under_way.done():
            # A record that is known already may still be on its way to the disk.
            self._under_way.add_done_callback(lambda saved: _pass_on(saved, done))
        else:
            done.set_result(None)

    def _save(
        self, changes: list[tuple[int, Timer | None, Lives]], done: asyncio.Future[None]
    ) -> None:
        self._under_way = done
        done.add_done_callback(lambda _: self._look_at(done, [each[0] for each in changes]))
        try:
            saving = self.journal.save(
                changes,
                has_kept=self.replica.has_kept,
                now_ms=self.now_ms(),
                wall_ms=self.wall_ms(),
            )
        except StoreError as error:
            done.set_exception(error)
            return
        asyncio.wrap_future(saving).add_done_callback(lambda saved: _pass_on(saved, done))

    def _look_at(self, done: asyncio.Future[None], ids: list[int]) -> None:
        """A failed save is repeated later: waiting clients got the error, and the journal has logged it.

        A record that can never be saved is left out: it would keep the others from the disk.
        """
        if done.exception() is None or self._is_stopping:
            return
        for timer_id in ids:
            if timer_id not in self.journal.unreadable:
                self.replica.touch(timer_id)
        self.act(within_ms=_SAVE_AGAIN_MS)

    # Due timers

    def start_popping(self) -> None:
        """Lets timers pop from now on."""
        self.replica.started(self.now_ms())
        self.is_ready = True
        self._set_alarm()

    def _set_alarm(self) -> None:
        at_ms = self.replica.wake_at()
        if not self.is_ready or at_ms is None:
            return
        if self._alarm_ms is not None and self._alarm_ms <= at_ms:
            return
        self._alarm_ms = max(at_ms, self.now_ms())  # an overdue timer rings now
        self._alarm.set(at_ms / 1000 - time.monotonic())

    def _ring(self) -> None:
        due_ms, self._alarm_ms = self._alarm_ms, None
        assert due_ms is not None
        stood_ms = self.now_ms() - due_ms
        if self._peers and stood_ms > _STALL_MS and self.replica.wake_at() is not None:
            self.start_work(self._come_back(stood_ms))
        else:
            self._pop()

    def _pop(self) -> None:
        for timer in self.replica.take_due(self.now_ms(), _MOST_CALLS_AT_ONCE):
            assert timer.plan is not None
            with self._own_failure(timer.id):
                self._queue.put(endpoint_of(timer.plan.uri), timer.id)
        self._turns.ask()
        self._begin_calls()
        self._set_alarm()
        self.act(within_ms=0 if self.replica.has_news else _LINGER_MS)

    def _begin_calls(self) -> None:
        """Begins queued calls that may be made, a bounded number in one turn of the loop."""
        for _ in range(_MOST_CALLS_AT_ONCE):
            turn = self._queue.take() if self.is_ready else None
            if turn is None:
                break
            place, timer_id = turn
            call = None
            with self._own_failure(timer_id):
                call = self.replica.begin(timer_id, self.now_ms())
            if call is None:
                self._queue.end(place)
            else:
                self.start_work(self._call(place, call))
        else:
            asyncio.get_running_loop().call_soon(self._begin_calls)
        if self.is_ready and self._balancer.is_due:
            self.start_work(self._balance())
        self._note_missed()
        self._note_set_aside()

    async def _balance(self) -> None:
        await self._balancer.run()
        self._begin_calls()
        self._set_alarm()
        self.act()

    def take_ceded(self, place: Endpoint, waiting: int, timers: Sequence[Timer]) -> list[int]:
        """Takes over queued calls of another node, which has `waiting` for that host; returns the ids.

        Their records have been received.
        """
        taken = self._balancer.take(place, waiting, timers) if self.is_ready else []
        self._begin_calls()
        self._set_alarm()
        self.act()
        return taken

    def waiting_at(self, place: Endpoint) -> int:
        """How many calls are queued for a host."""
        return self._queue.waiting(place)

    @contextmanager
    def _own_failure(self, timer_id: int) -> Iterator[None]:
        """An error that a timer raises is its own: it is set aside, and the loop goes on."""
        try:
            yield
        except Exception as error:
            self.replica.set_aside(timer_id, error)

    def _note_set_aside(self) -> None:
        for timer_id, error in self.replica.take_set_aside():
            name = f"{timer_id:016x}"
            self._queue.remove(timer_id)
            self.metrics.set_aside()
            logger.debug("timer %s failed", name, exc_info=error)
            _summary.log(
                logging.ERROR,
                "timer_set_aside",
                "timer %s raised an error, and is not called here until it is changed: %r",
                name,
                error,
                timer=name,
            )

    def _note_missed(self) -> None:
        missed = self.replica.take_missed()
        self.metrics.missed(sum(each.last - each.first + 1 for each in missed))
        for each in missed:
            _summary.info(
                "pops_missed",
                "timer %016x: it is too late for pops %d to %d, which are not called",
                each.timer.id,
                each.first,
                each.last,
                timer=f"{each.timer.id:016x}",
            )

    async def _come_back(self, stood_ms: int) -> None:
        """Asks the peers after a standstill: they may have popped or deleted what is overdue here."""
        self.is_ready = False
        logger.warning(
            "the node stood still for %d ms; asking the others first",
            stood_ms,
            extra={"action": "stalled"},
        )
        asking = [
            peer.link.ask("POST", "/cluster/back", {"from": self.me})
            for peer in self._peers.values()
        ]
        with suppress(TimeoutError):
            async with asyncio.timeout(_BACK_PATIENCE_S):
                await asyncio.gather(*asking, return_exceptions=True)
        if not self._is_stopping:
            self.replica.awake(self.now_ms())
            self.is_ready = True
            self._pop()

    def start_work(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Starts a background task; `stop` waits for it, with a time-out."""
        return self._tasks.start(work)

    async def _call(self, place: Endpoint, call: Callback) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._beginning[task] = call

        def begin() -> bool:
            if self._is_stopping or not self.replica.is_wanted(call, self.now_ms()):
                return False
            if task not in self._begun:  # otherwise it begins again, after a shortage
                self._note_begun(task, call)
            return True

        try:
            answer = await self.callbacks.make(call, may_begin=begin)
        except Exception as error:
            answer = Caller.failure(error, call.plan.uri)
        finally:
            is_begun = self._begun.pop(task, None) is not None
            self._beginning.pop(task, None)
            self._queue.end(place)
        with self._own_failure(call.timer.id):
            if answer.verdict is Verdict.no_turn:
                self.replica.withdraw(call, self.now_ms())
            else:
                if not is_begun:  # nowhere to call
                    self._count_pop(call)
                self._conclude(call, answer)
        self._begin_calls()
        self._set_alarm()
        step_ms = call.plan.skew_ms(1, len(call.timer.replicas))
        self.act(within_ms=min(_LINGER_MS, step_ms // 4))  # well before the others' turn

    def _note_begun(self, task: asyncio.Task[None], call: Callback) -> None:
        self._begun[task] = call
        self._beginning.pop(task, None)
        self._count_pop(call)

    def _count_pop(self, call: Callback) -> None:
        self.metrics.popped(self.now_ms() - call.due_ms, is_first=not call.timer.attempts)

    def _conclude(self, call: Callback, answer: Answer) -> None:
        self.metrics.called(answer.verdict)
        after = self.replica.called(call, self.now_ms(), succeeded=answer.succeeded)
        if not answer.succeeded:
            self._log_failure(call, answer, after)

    def _still_calling(self, call: Callback) -> None:
        if len(call.timer.replicas) > 1:
            self.replica.still_calling(call, self.now_ms())
            self.act()

    def _log_failure(self, call: Callback, answer: Answer, after: Timer | None) -> None:
        given_up = after is not None and after.popped > call.timer.popped
        uri = shown_url(call.plan.uri)
        told: dict[str, Any] = {
            "timer": call.name,
            "uri": uri,
            "sequence": call.sequence,
            "attempt": call.timer.attempts + 1,
        }
        if not given_up:
            then = "the timer was changed meanwhile" if after is None else "it is tried again"
            words = "timer %s: the callback to %s failed, %s: %s"
            action = "callback_failed"
            _summary.info(action, words, call.name, uri, then, answer.reason, **told)
            return
        self.metrics.given_up()
        words = "timer %s: the callback to %s failed for good: %s"
        action = "callback_given_up"
        # a line for each: it is the only record of this pop where no dead letters are set
        logger.error(words, call.name, uri, answer.reason, extra={**told, "action": action})
        if self.callbacks.dead_letters is not None:
            self.start_work(self.callbacks.report(call, answer.reason))

    async def stop(self) -> None:
        """Stops popping, so that the others take over at once. Waits for calls that have begun and their
        consequences; queued calls are left to the others. May be called twice.
        """
        self._is_stopping, self.is_ready = True, False
        self._alarm.close()
        self._alarm_ms = None
        for task in self._beginning:
            task.cancel()
        unbegun = [call.timer.id for call in self._beginning.values()]
        self.replica.leave_to_others([*self._queue.clear(), *unbegun], self.now_ms())
        for call in self._begun.values():
            self._still_calling(call)  # before the others learn that they need not wait
        with suppress(StoreError, TimeoutError):
            async with asyncio.timeout(_LEAVING_PATIENCE_S):
                await self.told()
        for peer in self._peers.values():
            peer.leave()
        # The longest time of a call and of the dead letter that may follow it.
        await self._tasks.end(2 * self.replica.attempts.timeout_ms / 1000)
        self.act()
        with suppress(StoreError):  # the journal has logged it
            await self.saved()
        await asyncio.gather(
            *(peer.stop(patience_s=_LEAVING_PATIENCE_S) for peer in self._peers.values())
        )

    # Other nodes that stop and come back

    def hear_of(self, address: str, *, pops: bool) -> None:
        """Notes that another node is reachable; it says itself whether it pops."""
        peer = self._peers.get(address)
        if pops:
            self.replica.here(address)
            if peer is not None:
                peer.seen()
        elif peer is not None and not self.replica.is_absent(address):
            peer.has_left = True
            self.start_work(self._take_over(address))

    async def _take_over(self, address: str) -> None:
        """Pops the timers of a stopped node without waiting for it, those that are due soon first."""
        ids = self.replica.farewell(address, self.now_ms() + _SOON_MS)
        told = {"action": "peer_left", "peer": address}
        logger.info("%s stops, and hands over", address, extra=told)
        for at in range(0, len(ids), _HURRIED_AT_ONCE):
            self.replica.hurry(ids[at : at + _HURRIED_AT_ONCE])
            self._set_alarm()
            await asyncio.sleep(0)  # a million of them take seconds, and timers are due meanwhile


def _check_taken(told: dict[str, PeerAnswer]) -> None:
    """Raises `OutcomeUnknown` if a reachable node did not take the change: it may still pop."""
    for node, each in told.items():
        if each.problem:
            raise OutcomeUnknown(
                f"{node} did not take the change, and the timer may pop: {each.problem}"
            )


def _newest(told: dict[str, PeerAnswer]) -> Version | None:
    return max((each.newer.version for each in told.values() if each.newer), default=None)


def _pass_on(saved: asyncio.Future[Any], done: asyncio.Future[None]) -> None:
    if done.done():
        return
    if (error := saved.exception()) is not None:
        done.set_exception(error)
        done.exception()  # retrieved: waiting clients get it, and none need wait
    else:
        done.set_result(None)
