"""A node with a local shortage: no peer counts as away, and peers are updated later."""

from __future__ import annotations

import logging
from pathlib import Path

import aiohttp
import pytest

from chronoline.runtime.admission import Admission
from chronoline.timers.peers import Link, OutOfResources, Peer
from tests.deadline import run_scene, until
from tests.descriptors import no_descriptors
from tests.timers.scene import HOUR_MS, NOWHERE, cluster, timer


def test_local_shortage_does_not_mark_a_peer_away(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def scene() -> None:
        async with cluster(tmp_path, 2) as nodes, aiohttp.ClientSession() as session:
            one, other = nodes.node(0), nodes.node(1)
            asked = timer(NOWHERE, interval_ms=HOUR_MS)
            await nodes.ask("PUT", f"/timers/{nodes.kept_by(0):016x}-1", asked)
            record = one.replica.get(nodes.kept_by(0))
            assert record is not None
            link = Link(nodes.names[1], session, scheme="http", timeout_ms=200)
            peer = Peer(
                link,
                me=one.me,
                now_ms=one.now_ms,
                get=one.replica.get,
                heard=one.receive,
                intake=one.intake,
            )
            with no_descriptors():
                assert await peer.send(record) is None  # nothing was sent, and nothing waits
                assert peer.is_short
                with pytest.raises(OutOfResources, match="short of descriptors"):
                    await link.ask("GET", "/v1/nodes")
            await until(lambda: not peer.is_away)
            assert not peer.is_short
            assert other.replica.get(record.id) is not None
            actions = {getattr(each, "action", "") for each in caplog.records}
            assert not {"peer_away", "peer_back"} & actions
            await peer.stop()

    run_scene(scene)


def test_requests_of_a_full_node_are_refused_and_counted(tmp_path: Path) -> None:
    admission = Admission(most_bytes=1_000, most_requests=1, largest_bytes=100, patience_s=0.05)

    async def scene() -> None:
        async with cluster(tmp_path, 1, admission=admission) as nodes:
            asked = timer(NOWHERE, interval_ms=HOUR_MS)
            under_way = await admission.admit("somebody", 1_000)
            refused = await nodes.ask("POST", "/timers", asked)
            assert refused.status == 503
            assert b"nothing was changed" in refused.body
            assert refused.headers["Retry-After"] == "1"
            assert (await nodes.ask("GET", "/ping")).status == 200
            under_way.end()
            assert (await nodes.ask("POST", "/timers", asked)).status == 200
            shown = (await nodes.ask("GET", "/metrics")).body.decode()
            assert 'chronoline_timers_refused_total{reason="node_busy"} 1.0' in shown

    run_scene(scene)
