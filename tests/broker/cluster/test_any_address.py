"""One address of a cluster is enough: every call and command finds a broker with the role that it needs."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from chronoline.client import TopicSettings
from chronoline.client.administration import ALL_MESSAGES
from chronoline.client.aio import AsyncClient, ToSend
from chronoline.client.event_loop import run_in, shared_loop
from chronoline.core.errors import WrongBroker
from tests.broker.cluster.scene import Cluster, cluster
from tests.cli.command import Command
from tests.cli.test_help import OF_A_BROKER
from tests.coordination.engines import EmbeddedEngine
from tests.deadline import run_scene, until

_ROLES = {"o1": "overseer", "o2": "overseer", "c1": "carrier", "c2": "carrier"}
_NOW = datetime.now(UTC)
_NOT_ASKED = {"close", "subscribe", "unsubscribe"}
"""`consume` subscribes."""


async def _consume(client: AsyncClient, name: str) -> None:
    leases = client.consume(name)
    await (await anext(leases)).ack()
    await leases.aclose()


Call = Callable[[AsyncClient, str], Awaitable[Any]]
CALLS: dict[str, Call] = {
    "body": lambda client, name: client.body(name, "far"),
    "cancel": lambda client, name: client.cancel(name, "far"),
    "cancel_many": lambda client, name: client.cancel_many(name, ["far"]),
    "change_matching": lambda client, name: client.change_matching(name, "cancel", ALL_MESSAGES),
    "change_topic": lambda client, name: client.change_topic(name, max_attempts=3),
    "cluster": lambda client, _: client.cluster(),
    "consume": _consume,
    "count": lambda client, name: client.count(name),
    "create_schedule": lambda client, name: client.create_schedule(
        f"{name} more", name, every=3_600
    ),
    "create_topic": lambda client, name: client.create_topic(f"{name} more"),
    "dead_letters": lambda client, name: client.dead_letters(name),
    "delete_schedule": lambda client, name: client.delete_schedule(name),
    "delete_topic": lambda client, name: client.delete_topic(name),
    "discard": lambda client, name: client.discard(name, ["none"]),
    "export_page": lambda client, name: client.export_page(name),
    "forecast": lambda client, name: client.forecast(
        name, _NOW, _NOW + timedelta(hours=1), timedelta(hours=1)
    ),
    "import_messages": lambda client, name: client.import_messages(name, []),
    "info": lambda client, _: client.info(),
    "list_messages": lambda client, name: client.list_messages(name),
    "lookup": lambda client, name: client.lookup(name, "far"),
    "pause_schedule": lambda client, name: client.pause_schedule(name),
    "pause_topic": lambda client, name: client.pause_topic(name),
    "preferred_brokers": lambda client, name: client.preferred_brokers(name),
    "purge_topic": lambda client, name: client.purge_topic(name),
    "redrive": lambda client, name: client.redrive(name, ["none"]),
    "reschedule": lambda client, name: client.reschedule(name, "far", delay=60),
    "reschedule_many": lambda client, name: client.reschedule_many(name, ["far"], delay=60),
    "resume_schedule": lambda client, name: client.resume_schedule(name),
    "resume_topic": lambda client, name: client.resume_topic(name),
    "schedule": lambda client, name: client.schedule(name),
    "schedules": lambda client, name: client.schedules(name),
    "send": lambda client, name: client.send(name),
    "send_many": lambda client, name: client.send_many(name, [ToSend()]),
    "state": lambda client, name: client.state(name, "far"),
    "topic": lambda client, name: client.topic(name),
    "topics": lambda client, _: client.topics(),
}
"""Each call of the SDK, with a topic of its own that has a schedule of its name."""

_FAR = "--due=2999-01-01T00:00:00Z"
COMMANDS: dict[tuple[str, ...], tuple[str, ...]] = {
    ("bulk", "cancel"): ("--prefix=none",),
    ("bulk", "discard"): ("--prefix=none",),
    ("bulk", "redrive"): ("--prefix=none",),
    ("bulk", "reschedule"): ("--prefix=none", _FAR),
    ("cancel",): ("far",),
    ("cluster",): (),
    ("dead", "discard"): ("none",),
    ("dead", "list"): (),
    ("dead", "redrive"): ("none",),
    ("export",): ("-",),
    ("forecast",): (),
    ("import",): ("-", "--format=jsonl"),
    ("list",): (),
    ("receive",): (),
    ("reschedule",): ("far", _FAR),
    ("schedule", "create"): ("--every=1h",),
    ("schedule", "delete"): ("--yes",),
    ("schedule", "list"): (),
    ("schedule", "next"): (),
    ("schedule", "pause"): (),
    ("schedule", "resume"): (),
    ("schedule", "show"): (),
    ("send",): ("--body=hello",),
    ("show",): ("far", "--body"),
    ("status",): (),
    ("topic", "create"): (),
    ("topic", "delete"): ("--yes",),
    ("topic", "list"): (),
    ("topic", "pause"): (),
    ("topic", "purge"): ("--yes",),
    ("topic", "resume"): (),
    ("topic", "set"): ("--max-attempts=3",),
    ("topic", "show"): (),
}
"""The arguments of each command, after the name of its topic or schedule."""
_WITHOUT_NAME = {("cluster",), ("status",), ("schedule", "list"), ("topic", "list")}
_REFUSED = {("dead", "discard"), ("dead", "redrive")}
"""There are no such dead letters: the broker that has the role says so."""


def test_every_call_and_command_is_walked() -> None:
    functions = {name for name, _ in inspect.getmembers(AsyncClient, inspect.isfunction)}
    assert {name for name in functions if not name.startswith("_")} - _NOT_ASKED == set(CALLS)
    assert set(COMMANDS) == OF_A_BROKER


@asynccontextmanager
async def _with_topics(names: list[str]) -> AsyncIterator[Cluster]:
    """Two overseers and two carriers that know each other, and topics with messages and schedules."""
    async with cluster(EmbeddedEngine()) as brokers:
        for name, role in _ROLES.items():
            await brokers.add_broker(name, roles=(role,))
        for name in _ROLES:
            for other in _ROLES:
                await until(lambda: brokers.sees(name, other))  # noqa: B023 - awaited here
        addresses = [broker.address for broker in brokers.brokers.values()]
        async with AsyncClient(addresses) as client:
            for name in names:
                await client.create_topic(name, TopicSettings(buckets=1, window=0.4))
                await client.send_many(name, [ToSend(id="far", delay=3_600), ToSend(id="now")])
                await client.create_schedule(name, name, every=3_600)
        yield brokers


@pytest.mark.parametrize("given", ["o1", "c1"])
def test_every_call_of_the_sdk_needs_one_address(given: str) -> None:
    """The first call of each client goes to one broker. The second comes when this broker is gone."""

    async def scene() -> None:
        names = [f"{method} {turn}" for method in CALLS for turn in (1, 2)]
        async with _with_topics(names) as brokers:
            first = brokers.brokers[given]
            clients = {method: first.client() for method in CALLS}
            failures = await _walk(clients, 1)
            await first.node.stop()
            failures += await _walk(clients, 2)
            for client in clients.values():
                await client.close()
            assert failures == []

    run_scene(scene)


async def _walk(clients: dict[str, AsyncClient], turn: int) -> list[str]:
    async def call(method: str) -> str | None:
        try:
            await CALLS[method](clients[method], f"{method} {turn}")
        except Exception as error:
            return f"{method}, {turn}: {error!r}"
        return None

    return [found for each in CALLS if (found := await call(each)) is not None]


@pytest.mark.parametrize("given", ["o1", "c1"])
def test_every_command_needs_one_address(given: str) -> None:
    # In a thread of its own: commands handle signals, which the main thread alone may do.
    loop, scene = shared_loop(), _with_topics([" ".join(each) for each in COMMANDS])
    brokers = run_in(loop, scene.__aenter__())
    try:
        command = Command(brokers.brokers[given].address)
        failures = [
            f"{' '.join(words)}: {problem}"
            for words, options in COMMANDS.items()
            if (problem := _problem(command, words, options))
        ]
    finally:
        run_in(loop, scene.__aexit__(None, None, None))
    assert failures == []


def _problem(command: Command, words: tuple[str, ...], options: tuple[str, ...]) -> str:
    try:
        _run(command, words, options)
    except AssertionError as error:
        return str(error)
    return ""


def _run(command: Command, words: tuple[str, ...], options: tuple[str, ...]) -> None:
    name = " ".join(words)
    if words == ("topic", "create"):
        name = "another"
    named = [] if words in _WITHOUT_NAME else [name]
    if words == ("schedule", "create"):
        named = ["another", name]
    if words in _REFUSED:
        assert "none" in command.unhappy(*words, *named, *options).output
    else:
        command.result(*words, *named, *options, input="")


def test_call_is_refused_when_no_broker_has_the_role() -> None:
    async def scene() -> None:
        async with cluster(EmbeddedEngine()) as brokers:
            await brokers.add_broker("o1", roles=("overseer",))
            await brokers.add_broker("o2", roles=("overseer",))
            await until(lambda: brokers.sees("o1", "o2"))
            client = await brokers.client("o1")
            await client.create_topic("jobs")
            with pytest.raises(WrongBroker, match="has no carrier now"):
                await client.count("jobs")

    run_scene(scene)
