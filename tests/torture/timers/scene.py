"""A cluster of timers under load: slow receivers, nodes that are killed, growth while nodes are away.

Clients create, replace and delete timers at all nodes that are up. Meanwhile, one after the other:

- more timers fall due at once than a slow receiver can take; most are deleted or replaced in the queue;
- a node is killed and started again;
- all nodes are killed, others join, and delete timers that only the dead ones have; then these return;
- timers are moved to the nodes that joined, and back.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import asdict, dataclass
from itertools import cycle
from pathlib import Path

import aiohttp

from chronoline.node.local_nodes import TimerNodes
from chronoline.runtime.child_process import free_addresses
from tests.torture.__main__ import Report
from tests.torture.environment import child_environment
from tests.torture.history import DONE, REFUSED, UNKNOWN, Recorder
from tests.torture.timers.judge import QUICK
from tests.torture.timers.receivers import DEAD, FLAKY, SLOW, Receivers

FACTOR = 2
CLIENTS = 4
PAUSE_S = 0.1
"""Between two requests of a client."""
FOR_EACH_HOST = 4
"""Calls of a node to one receiver at a time: few, so that they queue."""
INTERVALS_MS = (1_000, 2_000, 4_000)
FAR_MS = 3_600_000
BURST = 60
BATCH = 20
QUEUE_S = 4.0
"""The time in which the receiver of a burst takes the rest of it."""
DOWN_S = 2.0
DRAIN_S = 6.0
_WELL_S = 30.0
_LOOK_S = 0.1
_STALL_S = 0.25
_ANSWER_S = 5.0
_ID_DIGITS = 16
_UNCHANGED = ("nothing was changed", "is starting", "are under way")
"""A part of the reason of a 503 that refuses."""


@dataclass(frozen=True)
class TimerRequest:
    """A timer as its client requests it."""

    interval_ms: int
    pops: int = 1
    receiver: str = QUICK


@dataclass
class Known:
    """A timer that a client has created, and may change."""

    timer: str
    path: str


class Clients:
    """Requests to nodes, each recorded before it is sent and after it is answered."""

    def __init__(
        self, recorder: Recorder, receivers: Receivers, session: aiohttp.ClientSession
    ) -> None:
        self._recorder = recorder
        self._receivers = receivers
        self._session = session
        self._labels = 0

    async def create(self, node: str, request: TimerRequest) -> Known | None:
        """None if it may not exist."""
        self._labels += 1
        timer = f"t{self._labels}"
        path = await self._ask("create", node, Known(timer, "/timers"), request)
        return None if path is None else Known(timer, path)

    async def replace(self, node: str, known: Known, request: TimerRequest) -> None:
        known.path = await self._ask("replace", node, known, request) or known.path

    async def delete(self, node: str, known: Known) -> None:
        await self._ask("delete", node, known)

    async def _ask(
        self, op: str, node: str, known: Known, request: TimerRequest | None = None
    ) -> str | None:
        fields: dict[str, object] = {"timer": known.timer, "node": node}
        path, body = known.path, None
        if request is not None:
            self._labels += 1
            label = f"{known.timer}/{self._labels}"
            fields |= {"label": label, **asdict(request)}
            repeat_for_ms = request.interval_ms * request.pops
            uri = self._receivers.uri(request.receiver)
            body = {
                "timing": {"interval-ms": request.interval_ms, "repeat-for-ms": repeat_for_ms},
                "callback": {"http": {"uri": uri, "opaque": label}},
                "reliability": {"replication-factor": FACTOR},
            }
        method = {"create": "POST", "replace": "PUT", "delete": "DELETE"}[op]
        call = self._recorder.call(op, **fields)
        try:
            async with self._session.request(method, f"http://{node}{path}", json=body) as answer:
                text, status = await answer.text(), answer.status
        except aiohttp.ClientConnectorError:
            # aiohttp repeats idempotent requests: the first one may have arrived.
            outcome = REFUSED if op == "create" else UNKNOWN
            self._recorder.outcome(call, outcome, "no connection")
            return None
        except (aiohttp.ClientError, TimeoutError) as error:
            self._recorder.outcome(call, UNKNOWN, type(error).__name__)
            return None
        if status != 200:
            is_refused = any(words in text for words in _UNCHANGED)
            outcome = REFUSED if status < 500 or is_refused else UNKNOWN
            self._recorder.outcome(call, outcome, str(status))
            return None
        path = answer.headers.get("Location", path)
        copies, wanted = map(int, answer.headers["X-Copies"].split("/"))
        timer_id = path.rpartition("/")[2][:_ID_DIGITS]
        self._recorder.outcome(call, DONE, copies=copies, wanted=wanted, id=timer_id)
        return path


class Stage:
    """The cluster, its faults and its clients."""

    def __init__(
        self, folder: Path, recorder: Recorder, clients: Clients, rng: random.Random, report: Report
    ) -> None:
        self._recorder = recorder
        self._clients = clients
        self._rng = rng
        self._report = report
        self._nodes = TimerNodes(folder, keeps_logs=True, environment=child_environment())
        addresses = free_addresses(4)
        self._staying, self._others = addresses[:2], addresses[2:]
        self._members = list(self._staying)
        # Nodes that pop timers, and those among them that clients may use.
        self._running: set[str] = set()
        self._up: list[str] = []

    def close(self) -> None:
        self._nodes.close()

    async def begin(self) -> None:
        self._nodes.write(self._staying)
        await self._start(*self._staying)
        await self.become_well()

    # Faults

    async def _start(self, *nodes: str) -> None:
        self._fault("launch", nodes)  # they may pop before they are recorded as up
        settings = [f"callbacks.for_each_host={FOR_EACH_HOST}"]
        await asyncio.to_thread(self._nodes.start, *nodes, settings=settings)
        self._up += nodes
        self._running.update(nodes)
        self._fault("start", nodes)

    def _kill(self, *nodes: str) -> None:
        self._up = [each for each in self._up if each not in nodes]
        self._running.difference_update(nodes)
        self._fault("kill -9", nodes)
        self._nodes.kill(*nodes)

    def _fault(self, fault: str, nodes: Sequence[str]) -> None:
        down = len(set(self._members) - self._running)
        self._recorder.fault(fault, node=" ".join(nodes), down=down)

    async def become_well(self) -> None:
        """Waits until every node is up, knows the others, and is in sync with them."""
        async with asyncio.timeout(_WELL_S):
            for node in self._members:
                while not await asyncio.to_thread(self._is_well, node):
                    await asyncio.sleep(_LOOK_S)  # nodes send no signal for it
        self._recorder.record("well")

    def _is_well(self, node: str) -> bool:
        seen = self._nodes.ask(node, "/v1/nodes")
        others = seen["nodes"]
        return seen["ready"] and not any(each["is_away"] or each["behind"] for each in others)

    # Clients

    def _node(self) -> str:
        return self._rng.choice(self._up)

    async def work(self) -> None:
        """Runs one client until it is cancelled."""
        mine: list[Known] = []
        while True:
            await asyncio.sleep(PAUSE_S * self._rng.uniform(0.5, 1.5))
            if not self._up:
                continue
            action = self._rng.random()
            if mine and action < 0.2:
                await self._clients.delete(self._node(), mine.pop(self._rng.randrange(len(mine))))
            elif mine and action < 0.4:
                await self._clients.replace(
                    self._node(), self._rng.choice(mine), self._new_request()
                )
            elif known := await self._clients.create(self._node(), self._new_request()):
                mine = [*mine[-20:], known]

    def _new_request(self) -> TimerRequest:
        receiver = self._rng.choices((QUICK, FLAKY, SLOW, DEAD), (14, 4, 1, 1))[0]
        return TimerRequest(
            self._rng.choice(INTERVALS_MS), self._rng.choice((1, 1, 1, 2, 3)), receiver
        )

    async def watch_the_machine(self) -> None:
        """Records the stalls of this process, which the nodes on the same machine share."""
        loop = asyncio.get_running_loop()
        while True:
            due_s = loop.time() + _LOOK_S
            await asyncio.sleep(_LOOK_S)
            if (late_s := loop.time() - due_s) > _STALL_S:
                self._recorder.record("stall", stall_ms=round(late_s * 1000))

    async def _many(self, number: int, request: TimerRequest) -> list[Known]:
        nodes = cycle(self._up)
        made = [self._clients.create(next(nodes), request) for _ in range(number)]
        return [each for each in await asyncio.gather(*made) if each is not None]

    # Rounds

    async def slow_receiver(self) -> None:
        """Makes more timers due at once than the receiver can take; most are changed while they wait."""
        self._report("a burst for a slow receiver")
        await self._many(BATCH, TimerRequest(2_000))
        made = await self._many(BURST, TimerRequest(1_000, receiver=SLOW))
        await asyncio.sleep(1.5)  # until they are due, and queue
        changed = made[: BURST * 2 // 3]
        changes: list[Awaitable[None]] = [
            self._clients.delete(self._node(), each)
            if number % 2
            else self._clients.replace(self._node(), each, TimerRequest(FAR_MS))
            for number, each in enumerate(changed)
        ]
        await asyncio.gather(*changes)
        await asyncio.sleep(QUEUE_S)

    async def kill_one(self) -> None:
        node = self._rng.choice(self._members)
        self._report(f"kill -9 {node}")
        self._kill(node)
        await asyncio.sleep(DOWN_S)
        await self._start(node)
        await self.become_well()

    async def grow_while_away(self) -> None:
        """Lets joining nodes delete timers while all nodes with these timers are dead."""
        self._report("growing, with all old nodes dead")
        fated = await self._many(BATCH, TimerRequest(max(INTERVALS_MS) * 2))
        far = await self._many(BATCH, TimerRequest(FAR_MS))
        self._kill(*self._staying)
        self._nodes.write(self._staying, joining=self._others)
        self._members = [*self._staying, *self._others]
        await self._start(*self._others)
        await asyncio.gather(*(self._clients.delete(self._node(), each) for each in fated))
        await self._start(*self._staying)
        await self.become_well()
        await self._settle(self._members)
        await self.become_well()
        self._report("shrinking")
        self._nodes.write(self._staying, leaving=self._others)
        self._up = list(self._staying)  # leaving nodes are not used
        await asyncio.to_thread(self._nodes.reload, self._members)
        await self._settle(self._staying)
        leaving, self._members = self._others, list(self._staying)
        self._running.difference_update(leaving)
        self._nodes.kill(*leaving)
        self._others = free_addresses(len(leaving))  # a node that left does not join again
        self._fault("shrunk", leaving)
        await self.become_well()
        await asyncio.gather(*(self._clients.delete(self._node(), each) for each in far))

    async def _settle(self, nodes: Sequence[str]) -> None:
        """Moves timers to their new nodes, and records the holders."""
        self._fault("timers move", nodes)  # a timer may pop twice meanwhile
        await asyncio.to_thread(self._nodes.resync, nodes)
        self._nodes.write(nodes)
        await asyncio.to_thread(self._nodes.reload, nodes)
        holders = await asyncio.to_thread(self._holders, nodes)
        self._recorder.record("holders", holders=holders)

    def _holders(self, nodes: Sequence[str]) -> dict[str, list[tuple[str, int]]]:
        found: dict[str, list[tuple[str, int]]] = {}
        for node in nodes:
            seen: dict[str, int] = {}
            cursor: int | None = 0
            while cursor is not None:
                page = self._nodes.ask(node, f"/v1/timers?cursor={cursor}")
                seen |= {each["id"][:_ID_DIGITS]: each["level"] for each in page["timers"]}
                cursor = page["cursor"]
            for timer_id, level in seen.items():
                found.setdefault(timer_id, []).append((node, level))
        return found


async def _play(folder: Path, seconds: float, seed: int, report: Report) -> None:
    recorder = Recorder(folder, "clients")
    loop = asyncio.get_running_loop()
    async with AsyncExitStack() as exits:
        exits.callback(recorder.close)
        receivers = await exits.enter_async_context(Receivers(recorder))
        timeout = aiohttp.ClientTimeout(total=_ANSWER_S)
        session = await exits.enter_async_context(aiohttp.ClientSession(timeout=timeout))
        rng = random.Random(seed)
        clients = Clients(recorder, receivers, session)
        stage = Stage(folder, recorder, clients, rng, report)
        exits.callback(stage.close)
        await stage.begin()
        end_s = loop.time() + seconds
        workers = [asyncio.create_task(stage.work()) for _ in range(CLIENTS)]
        watching = asyncio.create_task(stage.watch_the_machine())
        rounds: list[Callable[[], Awaitable[None]]] = [
            stage.slow_receiver,
            stage.kill_one,
            stage.grow_while_away,
        ]
        for number, played in enumerate(cycle(rounds), 1):
            await played()
            if number >= len(rounds) and loop.time() >= end_s:  # each at least once
                break
        await _end(*workers)
        report("waiting for what is due")
        await asyncio.sleep(DRAIN_S)
        recorder.record("end")
        await _end(watching)


async def _end(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    for task in tasks:
        with suppress(asyncio.CancelledError):
            await task


def run(folder: Path, *, seconds: float, seed: int, report: Report) -> None:
    """Records a history of a cluster of timers."""
    asyncio.run(_play(folder, seconds, seed, report))
