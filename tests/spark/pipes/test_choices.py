"""Pipes with other settings than those of the contract, and pipes that are frozen, busy or fail to start.

The tests set private members of a pipe: no setting makes it look frozen or busy.
"""

from __future__ import annotations

import threading

import pytest
from pyspark.sql import SparkSession

from chronoline.pipe.intake import REASON_HEADER
from chronoline.pipe.spark.pipe import Pipe
from chronoline.stores.members import pipe_group
from tests.spark.pipes.places import PATIENCE_S, Embedded, Place, Record
from tests.spark.pipes.scene import (
    DEADLINE,
    HOUR_MS,
    ID,
    Scene,
    now_ms,
    over,
    rfc_3339,
    spread,
    until,
)

pytestmark = pytest.mark.timeout(300)

DELAY_MS = 1_500


def test_delay_header_names_and_dedupe_settings(place: Place, spark: SparkSession) -> None:
    with Scene(place, partitions=1) as scene:
        settings = scene.settings(
            delay=f"{DELAY_MS}ms",
            dedupe="1h",
            id_header="my-id",
            deadline_header="my-due",
            action_header="my-action",
            keep_headers=True,
            ranges=2,
        )
        with Pipe(settings, spark) as pipe:
            sent_ms = now_ms()
            foreign = ((ID, b"theirs"), (DEADLINE, b"never"))
            (plain,) = scene.send_all([Record(foreign, b"k", b"v")])
            scene.wait_out([plain])
            assert now_ms() >= sent_ms + DELAY_MS
            out = scene.fired_as(plain)
            assert (out.key, out.value) == (b"k", b"v")
            (kept_id, (kept_due, _), *others) = out.headers
            assert (kept_id, kept_due) == (("my-id", f"{scene.input}-0-0".encode()), "my-due")
            assert tuple(others) == scene.sent[plain].headers

            def mine(id: bytes, due_ms: int, *others: tuple[str, bytes]) -> Record:
                return Record((("my-id", id), ("my-due", rfc_3339(due_ms)), *others))

            first, gone, moved = scene.send_all(
                [mine(b"a", 0), mine(b"b", now_ms() + HOUR_MS), mine(b"c", now_ms() + HOUR_MS)]
            )
            (*controls, wrong) = scene.send_all(
                [
                    Record((("my-id", b"b"), ("my-action", b"cancel"))),
                    mine(b"c", 0, ("my-action", b"reschedule")),
                    Record((("my-id", b"d"),)),
                ]
            )
            scene.wait_out([first, moved])
            kept = (("my-id", b"a"), ("my-due", b"1970-01-01T00:00:00.000Z"))
            assert scene.fired_as(first).headers[:-1] == kept  # the last is its tag
            until(lambda: not scene.waiting(), "they are deleted")
            named = f"{scene.input}-0-0".encode()  # where the one without an id stood
            again = scene.send_all([mine(each, 0) for each in (b"a", b"b", named)])
            scene.ignored |= {*again}
            scene.cancelled.add(gone)
            scene.controls |= {*controls}
            assert not scene.account()
            (letter,) = scene.letters()
            reason = dict(letter.message.headers)[REASON_HEADER] or b""
            assert reason.startswith(b"header my-due is missing")
            assert scene.relayed() == {}
            assert ("tag", wrong.encode()) in letter.message.headers
            until(lambda: pipe.counters.served + pipe.counters.skipped > 0, "a window is counted")
            pipe.close()  # twice is fine
        # The first of them may have begun before. Two tasks share each, and it counts once.
        windows = (now_ms() - sent_ms) // settings.window_ms + settings.lanes + 1
        assert pipe.counters.served + pipe.counters.skipped <= windows
        assert scene.held() == 0
        assert scene.status().nodes == ()


def test_busy_supervisor_keeps_its_input(
    embedded: Embedded,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    busy, go_on = threading.Event(), threading.Event()

    def ask_slowly() -> list[int]:
        busy.set()
        go_on.wait(PATIENCE_S)
        return [0, 1]

    with Scene(embedded) as scene, Pipe(scene.settings(hold_ms=30_000), spark) as pipe:

        def fences() -> dict[int, int]:
            # That a claim is kept, and not taken again, is the rule.
            return {each: claim.fence for each, claim in pipe._input_claims.claims.items()}

        def alive_until_ms() -> int:
            (member,) = scene.store.members(pipe_group(pipe.topic))
            return member.until_ms

        until(lambda: len(fences()) == 2, "it takes in all partitions")
        held = fences()
        # An input that answers slowly.
        monkeypatch.setattr(pipe._input, "partitions", ask_slowly)
        # So that it asks now.
        pipe._look_at_partitions_s = 0.0
        assert busy.wait(PATIENCE_S)
        beat_ms = alive_until_ms()
        until(lambda: alive_until_ms() > beat_ms, "it shows life", patience_s=20)
        tags = scene.send_all(spread(scene, "m", over(500, 10)))
        scene.wait_out(tags)
        go_on.set()
        assert fences() == held
        assert "no heartbeat" not in caplog.text
        # Else it would show that it lives forever, where nobody finds it by its name.
        scene.store.delete_topic(pipe.topic.uid, now_ms=now_ms())
        until(pipe.stopped.is_set, "it ends")
        assert pipe.failed == f"its timeline {scene.name!r} was deleted"


def test_pipe_without_a_thread_leaves_nothing_behind(
    embedded: Embedded, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start

    def start_most(thread: threading.Thread) -> None:
        if thread.name == "chronoline-supervisor":
            raise RuntimeError("can't start new thread")
        start(thread)

    with Scene(embedded) as scene:
        monkeypatch.setattr(threading.Thread, "start", start_most)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            Pipe(scene.settings(), spark)
        assert scene.status().nodes == ()
        running = [query.name or "" for query in spark.streams.active]
        assert not [name for name in running if name.startswith(f"{scene.name}:")]
        names = {thread.name for thread in threading.enumerate()}
        assert names.isdisjoint({"chronoline-heartbeat", "chronoline-upkeep"})
