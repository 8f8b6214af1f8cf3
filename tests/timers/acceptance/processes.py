"""A cluster of timers as processes, with links that can be cut, asked without holding up the test's loop."""

from __future__ import annotations

import asyncio
import json
import secrets
import signal
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import aiohttp

from chronoline.core.errors import ChronolineError
from chronoline.node.local_nodes import TimerNodes
from chronoline.timers.membership import replicas_of
from tests.timers.acceptance.links import Links
from tests.timers.scene import Answered, Popped, Receiver, timer

FAR_MS = 3_600_000
_LOOK_EVERY_S = 0.02
_TOKEN = "CHRONOLINE_NODE_REPLICATION__TOKEN"


class ProcessCluster:
    """Nodes that tests kill, freeze and cut off. `mend` makes the cluster whole for the next one."""

    def __init__(self, folder: Path, size: int, *, spare: int = 0) -> None:
        """`spare` nodes have a name and are not in the list."""
        self.processes = TimerNodes(folder)
        self.links = Links(size + spare)
        self.names = self.links.names[:size]
        self.spare = self.links.names[size:]

    def __enter__(self) -> Self:
        self.processes.__enter__()
        self.links.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.processes.close()
        self.links.__exit__()

    def mend(self) -> None:
        """Every node of the list runs, and reaches the others."""
        self.links.heal()
        self.processes.kill(*filter(self.processes.is_running, self.spare))
        self.processes.write(self.names)
        running = [name for name in self.names if self.processes.is_running(name)]
        for name in running:
            self.processes.signal(signal.SIGCONT, name)
        self._start(*set(self.names) - set(running))
        self.processes.reload(self.names)
        while any(self._sees_away(name) for name in self.names):
            time.sleep(_LOOK_EVERY_S)  # no signal tells when all have found each other

    def _sees_away(self, name: str) -> bool:
        seen = self.processes.ask(name, "/v1/nodes")["nodes"]
        return any(each["is_away"] for each in seen)

    def _start(self, *names: str) -> None:
        for name in names:
            token = {_TOKEN: self.links.token(name)}
            self.processes.launch(name, at=self.links.at[name], environment=token)
        self.processes.await_ready(*names)

    async def start(self, *names: str) -> None:
        await asyncio.to_thread(self._start, *names)

    async def stop(self, name: str) -> int:
        return await asyncio.to_thread(self.processes.stop, name)

    async def reload(self, names: Sequence[str]) -> None:
        await asyncio.to_thread(self.processes.reload, names)

    async def resync(self, names: Sequence[str]) -> int:
        """Resyncs these nodes; returns the number of timers that they received."""
        while True:
            try:
                return await asyncio.to_thread(self.processes.resync, names)
            except ChronolineError:
                continue  # a node did not answer in time on a busy machine: operators try again, too


@dataclass(frozen=True)
class Made:
    """A timer whose creation was confirmed to a client."""

    opaque: str
    location: str
    copies: str
    asked_s: float
    interval_ms: int
    pops: int

    @property
    def id(self) -> int:
        return int(self.location.removeprefix("/timers/")[:16], 16)

    @property
    def due_s(self) -> float:
        """The earliest moment of its first pop."""
        return self.asked_s + self.interval_ms / 1000

    @property
    def in_later_form(self) -> str:
        return f"/timers/{self.id:016x}-2"


def ids_kept_by(replicas: Sequence[str], names: Sequence[str]) -> Iterator[int]:
    """Ids of timers of which these are the replicas, in this order."""
    while True:
        timer_id = secrets.randbits(64)
        if replicas_of(timer_id, len(replicas), names) == tuple(replicas):
            yield timer_id


class Clients:
    """Sends requests to the nodes and keeps the answers."""

    def __init__(self, session: aiohttp.ClientSession, uri: str) -> None:
        self._session = session
        self._uri = uri

    async def ask(self, node: str, method: str, path: str, body: Any = None) -> Answered:
        data = None if body is None else json.dumps(body).encode()
        async with self._session.request(method, f"http://{node}{path}", data=data) as response:
            return Answered(response.status, dict(response.headers), await response.read())

    async def make(
        self,
        nodes: Sequence[str],
        opaques: Iterable[str],
        *,
        interval_ms: int,
        pops: int = 1,
        ids: Iterator[int] | None = None,
    ) -> list[Made]:
        """Timers, asked of the nodes in turn; `ids` are chosen by the client."""
        asking = []
        for number, opaque in enumerate(opaques):
            path = "/timers" if ids is None else f"/timers/{next(ids):016x}-2"
            node = nodes[number % len(nodes)]
            asking.append(self.put(node, path, opaque, interval_ms=interval_ms, pops=pops))
        return list(await asyncio.gather(*asking))

    async def put(
        self, node: str, path: str, opaque: str, *, interval_ms: int, pops: int = 1
    ) -> Made:
        """Replaces a timer, or makes one."""
        repeat_for_ms = interval_ms * pops
        body = timer(self._uri, interval_ms=interval_ms, repeat_for_ms=repeat_for_ms, opaque=opaque)
        asked_s = time.monotonic()
        answer = await self.ask(node, "POST" if path == "/timers" else "PUT", path, body)
        assert answer.status == 200, answer
        copies = answer.headers["X-Copies"]
        return Made(opaque, answer.location, copies, asked_s, interval_ms, pops)

    async def delete(self, nodes: Sequence[str], paths: Iterable[str]) -> list[str]:
        """Returns the number of copies reached of each; the nodes are asked in turn."""
        asking = [
            self.ask(nodes[number % len(nodes)], "DELETE", path)
            for number, path in enumerate(paths)
        ]
        answers = await asyncio.gather(*asking)
        assert {answer.status for answer in answers} == {200}
        return [answer.headers["X-Copies"] for answer in answers]

    async def shown(self, node: str, made: Made) -> dict[str, Any] | None:
        """Returns a node's view of a timer."""
        answer = await self.ask(node, "GET", f"/v1{made.location}")
        return answer.json if answer.status == 200 else None

    async def held(self, node: str) -> set[int]:
        """The ids of the timers that wait on a node."""
        found: set[int] = set()
        cursor = 0
        while cursor is not None:
            page = (await self.ask(node, "GET", f"/v1/timers?cursor={cursor}")).json
            found |= {int(each["id"][:16], 16) for each in page["timers"]}
            cursor = page["cursor"]
        return found


@asynccontextmanager
async def clients_of(receiver: Receiver) -> AsyncIterator[Clients]:
    """Clients whose timers call a receiver."""
    async with aiohttp.ClientSession() as session:
        yield Clients(session, receiver.uri)


async def until_popped(receiver: Receiver, made: Iterable[Made]) -> None:
    """Waits for the last pop of some timers: those before may be missed, on a machine that is busy.

    None was early, and whatever came twice can be recognised.
    """
    by_opaque = {each.opaque: each for each in made}
    wanted = {(each.opaque, each.pops) for each in by_opaque.values()}
    await receiver.until(lambda popped: wanted <= _seen(popped))
    for pop in receiver.popped:
        each = by_opaque.get(pop.body)
        if each is not None:
            assert 1 <= pop.sequence <= each.pops
            assert pop.at_s >= each.asked_s + pop.sequence * each.interval_ms / 1000


def _seen(popped: Iterable[Popped]) -> set[tuple[str, int]]:
    return {(pop.body, pop.sequence) for pop in popped}


def doubles(popped: Iterable[Popped]) -> int:
    """Returns the number of repeated pops."""
    pops = [(pop.body, pop.sequence) for pop in popped]
    return len(pops) - len(set(pops))
