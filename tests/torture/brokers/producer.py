"""A process that sends, moves, replaces and cancels messages, and records every call.

python -m tests.torture.brokers.producer '{"process": …}'
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence

from tests.torture.brokers.doors import (
    GrpcProducer,
    HttpProducer,
    IfExists,
    Letter,
    ProducerDoor,
    StoreProducer,
    now_ms,
)
from tests.torture.brokers.program import Program, play

_TIMEOUT_S = 6.0
_MOST_LIVES = 150
"""The messages that one producer handles at a time: the store may be away."""
_NATURAL_PER_S = 2
_TURN_S = 0.1
_REST_S = 0.5


class Producer:
    """A producer group at one door."""

    def __init__(self, program: Program, door: ProducerDoor, group: str) -> None:
        self._program = program
        self._recorder = program.recorder
        self._chance = random.Random(f"{program.given['seed']} {program.recorder.process} {group}")
        self._door = door
        self._group = group
        self._made = 0
        self._unavailable = False
        self._lives: set[asyncio.Task[None]] = set()

    async def produce(self) -> None:
        """Works until the faults are over."""
        rate: float = self._program.given["rate"]
        while not self._program.opened:
            await asyncio.sleep(_TURN_S)  # another process creates it
        while not self._program.calm:
            await self._rest()
            wanted = rate * _TURN_S
            count = int(wanted) + (self._chance.random() < wanted % 1)
            for _ in range(count):
                if len(self._lives) < _MOST_LIVES:
                    life = asyncio.create_task(self._life())
                    self._lives.add(life)
                    life.add_done_callback(self._lives.discard)
            await asyncio.sleep(_TURN_S)
        if self._lives:
            await asyncio.wait(self._lives, timeout=_TIMEOUT_S)

    async def _rest(self) -> None:
        """Waits after a refusal without a broker or a store."""
        if self._unavailable:
            self._unavailable = False
            await asyncio.sleep(_REST_S)

    async def _life(self) -> None:
        topic = self._chance.choices(self._program.given["topics"], (12, 1, 2))[0]
        if self._chance.random() < 0.1:
            await self.create(topic, [self._letter(self._natural_id())])
            return
        letters = [self._letter() for _ in range(self._chance.choice((1, 1, 1, 1, 5)))]
        await self.create(topic, letters)
        letter = self._chance.choice(letters)
        for step in self._steps():
            await self._pause(letter)
            if self._program.calm:
                return
            match step:
                case "create":  # a late duplicate, with another content
                    await self.create(topic, [self._letter(letter.id)])
                case "replace":
                    letter = self._letter(letter.id)
                    await self.create(topic, [letter], "replace")
                case "reschedule":
                    ahead_ms = int(self._chance.uniform(-200, 2_500))
                    await self.reschedule(topic, letter.id, ahead_ms)
                case "cancel":
                    await self.cancel(topic, letter.id)

    def _steps(self) -> tuple[str, ...]:
        ways: list[tuple[str, ...]] = [
            (),
            ("cancel",),
            ("cancel", "cancel"),
            ("cancel", "create"),
            ("reschedule",),
            ("reschedule", "reschedule", "cancel"),
            ("create",),
            ("replace",),
            ("replace", "cancel"),
        ]
        return self._chance.choices(ways, (60, 6, 3, 3, 12, 4, 4, 6, 2))[0]

    async def _pause(self, letter: Letter) -> None:
        """Waits; often so that the next step meets the message as it falls due."""
        if self._chance.random() < 0.4:
            ahead_s = letter.due_ms / 1000 - time.time() - self._chance.uniform(-0.05, 0.3)
            await asyncio.sleep(max(0.0, ahead_s))
        else:
            await asyncio.sleep(self._chance.choice((0.0, self._chance.uniform(0, 2))))

    def _natural_id(self) -> str:
        """Returns an id that all producers use at about the same time."""
        return f"natural-{int(time.time() * _NATURAL_PER_S)}-{self._chance.randrange(2)}"

    def _letter(self, id: str | None = None) -> Letter:
        self._made += 1
        name = f"{self._recorder.process}-{self._group}-{self._made}"
        ahead_ms = self._chance.choice((-500, 0, 5, 60, 400, 1_500, 3_000))
        due_ms = now_ms() + int(ahead_ms * self._chance.uniform(0.5, 1))
        padding = self._chance.randbytes(self._chance.choice((0, 10, 200, 20_000)))
        return Letter(
            id=id or name,
            due_ms=due_ms,
            body=name.encode() + b"|" + padding,
            key=self._chance.choice((None, b"", b"k\x00")),
            expires_ms=due_ms + 4_000 if self._chance.random() < 0.03 else None,
        )

    # Calls

    async def create(
        self, topic: str, letters: Sequence[Letter], if_exists: IfExists = "refuse"
    ) -> None:
        """Records a call and its outcome for each message."""
        calls = [
            self._recorder.call(
                "replace" if if_exists == "replace" else "create",
                topic=topic,
                id=each.id,
                group=self._group,
                due=each.due_ms,
                content=each.content,
            )
            for each in letters
        ]
        answers = await self._door.create(topic, letters, if_exists)
        for call, answer in zip(calls, answers, strict=True):
            self._recorder.outcome(call, answer.outcome, answer.reason, version=answer.version)
        self._unavailable |= any(answer.reason == "unavailable" for answer in answers)

    async def reschedule(self, topic: str, id: str, ahead_ms: int) -> None:
        """Records the call and its outcome."""
        due_ms = now_ms() + ahead_ms
        call = self._recorder.call("reschedule", topic=topic, id=id, group=self._group, due=due_ms)
        answer = await self._door.reschedule(topic, id, due_ms)
        self._recorder.outcome(call, answer.outcome, answer.reason, version=answer.version)

    async def cancel(self, topic: str, id: str) -> None:
        call = self._recorder.call("cancel", topic=topic, id=id, group=self._group)
        answer = await self._door.cancel(topic, id)
        self._recorder.outcome(call, answer.outcome, answer.reason, version=answer.version)


async def main(program: Program) -> None:
    """Runs producers at the requested doors, each with its own group."""
    given = program.given
    doors: dict[str, ProducerDoor] = {}
    for kind in given["doors"]:
        match kind:
            case "grpc":
                doors[kind] = GrpcProducer(given["grpc"], kind, timeout_s=_TIMEOUT_S)
            case "http":
                doors[kind] = HttpProducer(given["http"], kind, timeout_s=_TIMEOUT_S)
            case "store":
                doors[kind] = await asyncio.to_thread(StoreProducer, given["store"], kind)
    await asyncio.gather(*(Producer(program, door, kind).produce() for kind, door in doors.items()))
    for door in doors.values():
        await door.close()


if __name__ == "__main__":
    play(main)
