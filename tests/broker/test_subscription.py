"""A subscribing consumer learns its live leases before it gets more."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from chronoline.client import TopicSettings
from chronoline.core.message import NewMessage
from chronoline.stores.factory import open_store
from chronoline.testing.postgres import PostgresServer
from tests.broker.clocks import Recorded
from tests.broker.http.served import serving

_A_MOMENT_S = 0.5


def test_live_leases_are_known_before_any_reservation(
    postgres_server: PostgresServer,
) -> None:
    """On an engine whose writers run beside each other: it could not tell one from the other."""
    reserving = threading.Event()
    in_order: list[bool] = []

    def after(asked: str, _: object) -> None:
        if asked == "reserve":
            reserving.set()
        elif asked == "resume":
            in_order.append(not reserving.wait(_A_MOMENT_S))

    async def play() -> None:
        with open_store(postgres_server.create_database("subscribing")) as store:
            recorded: Any = Recorded(store)
            recorded.after = after
            async with serving(recorded) as served, served.client() as client:
                topic = await client.create_topic("jobs", TopicSettings(window=0.1))
                assert served.node.parts is not None
                await served.node.parts.carrier.create(topic.uid, [NewMessage(id="a", due=1)])
                leases = client.consume("jobs", lease=600)
                lease = await anext(leases)
                assert (lease.id, lease.redelivered) == ("a", False)
                assert in_order == [True]
                await lease.ack()
                await leases.aclose()

    asyncio.run(play())
