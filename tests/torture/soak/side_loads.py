"""The load beside the stream of messages: schedules, long work, dead letters, operators and browsers."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import aiohttp

from chronoline.client import AsyncClient, AsyncLease, TopicSettings
from chronoline.core.errors import ChronolineError
from chronoline.runtime.tasks import TaskSet

Client = Callable[[str], AsyncClient]
"""Makes a client with the token of this name."""

SCHEDULED, WORK = "soak-schedules", "soak-work"
_SCHEDULES = 10
_EVERY_MS = 5_000
_SCHEDULED_FOR = "chronolineScheduledFor"
_WORK_LEASE_S, _WORK_EXTENSIONS = 10, 6
_BURIED_OF = 5
"""One of this number of works is buried."""
_OPERATOR_EVERY_S = 5.0
_AGAIN_S = 1.0
_FORM_SECRET = re.compile(r'name="form_secret" value="([^"]+)"')


class Schedules:
    """Schedules, and the consumer of their occurrences, none of which may be missing."""

    def __init__(self, client: Client, counts: Counter[str]) -> None:
        self._client, self._counts = client, counts
        self._nominal_ms: dict[str, set[int]] = {}

    async def create(self) -> None:
        async with self._client("operator") as client:
            await client.create_topic(SCHEDULED, TopicSettings(dedupe=60, default_lease=10))
            for number in range(_SCHEDULES):
                every = _EVERY_MS / 1000
                await client.create_schedule(
                    f"soak-{number}", SCHEDULED, every=every, catch_up="all"
                )
            await client.create_schedule("soak-cron", SCHEDULED, cron="*/5 * * * * *")

    @property
    def missing(self) -> int:
        """The number of occurrences that did not come although a later one did."""
        return sum(
            (max(times) - min(times)) // _EVERY_MS + 1 - len(times)
            for times in self._nominal_ms.values()
        )

    async def consume(self) -> None:
        async with self._client("consumer") as client:
            while True:
                try:
                    async for lease in client.consume(SCHEDULED, consumer="scheduled"):
                        self._take(lease)
                        await lease.ack()
                except ChronolineError as error:
                    self._counts[type(error).__name__] += 1

    def _take(self, lease: AsyncLease) -> None:
        at = datetime.fromisoformat((lease.header(_SCHEDULED_FOR) or b"").decode())
        name = lease.id.partition("@")[0]
        self._nominal_ms.setdefault(name, set()).add(round(at.timestamp() * 1000))
        self._counts["occurrences"] += 1


class LongWork:
    """Messages that a worker holds for longer than a lease, and of which it buries some."""

    def __init__(self, client: Client, counts: Counter[str]) -> None:
        self._client, self._counts = client, counts
        self._tasks = TaskSet()

    async def create(self) -> None:
        async with self._client("operator") as client:
            await client.create_topic(
                WORK, TopicSettings(dedupe=60, default_lease=_WORK_LEASE_S, most_in_flight=200)
            )

    async def send(self) -> None:
        async with self._client("sender") as client:
            while True:
                try:
                    await client.send(WORK, b"work", delay=1)
                except ChronolineError as error:
                    self._counts[type(error).__name__] += 1
                await asyncio.sleep(1)  # the pace of the load

    async def consume(self) -> None:
        async with self._client("consumer") as client:
            while True:
                try:
                    async for lease in client.consume(WORK, consumer="worker"):
                        self._tasks.start(self._work(lease))
                except ChronolineError as error:
                    self._counts[type(error).__name__] += 1

    async def _work(self, lease: AsyncLease) -> None:
        try:
            for _ in range(_WORK_EXTENSIONS):
                await asyncio.sleep(_WORK_LEASE_S / 4)  # the work
                await lease.extend()
            self._counts["worked"] += 1
            if self._counts["worked"] % _BURIED_OF:
                await lease.ack()
            else:
                await lease.bury("too hard")
        except ChronolineError as error:
            self._counts[type(error).__name__] += 1


async def operate(client: Client, counts: Counter[str], topics: list[str]) -> None:
    """Looks at everything, as operators and dashboards do, and discards dead letters."""
    async with client("operator") as operator:
        while True:
            now = datetime.now(UTC)
            try:
                await operator.info()
                for topic in topics:
                    await operator.count(topic)
                    await operator.forecast(
                        topic, now, now + timedelta(minutes=1), timedelta(seconds=5)
                    )
                    await operator.list_messages(topic, limit=100)
                await operator.schedules()
                letters = await operator.dead_letters(WORK)
                discarded = await operator.discard(WORK, [each.message.id for each in letters])
                counts["discarded"] += sum(each.refusal is None for each in discarded)
            except ChronolineError as error:
                counts[type(error).__name__] += 1
            await asyncio.sleep(_OPERATOR_EVERY_S)  # the pace of the load


async def watch_console(http: str, token: str, counts: Counter[str]) -> None:
    """Signs in at the console and follows its live page, again when that ends."""
    console = f"http://{http}/console"
    jar = aiohttp.CookieJar(unsafe=True)  # the host is an address
    timeout = aiohttp.ClientTimeout(sock_read=30)
    async with aiohttp.ClientSession(timeout=timeout, cookie_jar=jar) as session:
        while True:
            with suppress(aiohttp.ClientError, TimeoutError):
                async with session.get(f"{console}/sign-in") as page:
                    secret = _FORM_SECRET.search(await page.text())
                if secret is not None:
                    form = {"form_secret": secret[1], "token": token}
                    async with session.post(f"{console}/sign-in", data=form) as page:
                        page.raise_for_status()
                async with session.get(f"{console}/live") as answer:
                    async for line in answer.content:
                        counts["console"] += line.startswith(b"data: {")
            await asyncio.sleep(_AGAIN_S)  # as a browser does
