"""A pipe with other settings than the contract's: a plain delay, other headers, ids that stay taken."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from chronoline.pipe.intake import REASON_HEADER
from chronoline.spark.pipe import Pipe
from tests.spark.pipes.places import Embedded, Place, Record
from tests.spark.pipes.scene import DEADLINE, HOUR_MS, ID, Scene, now_ms, rfc_3339, until

pytestmark = pytest.mark.timeout(300)

DELAY_MS = 1_500


def test_a_plain_delay_other_headers_and_ids_that_stay_taken(
    place: Place, spark: SparkSession
) -> None:
    with Scene(place, partitions=1) as scene:
        settings = scene.settings(
            delay=f"{DELAY_MS}ms",
            dedupe="1h",
            id_header="my-id",
            deadline_header="my-due",
            action_header="my-action",
        )
        with Pipe(settings, spark) as pipe:
            sent_ms = now_ms()
            foreign = ((ID, b"theirs"), (DEADLINE, b"never"))
            (plain,) = scene.send_all([Record(foreign, b"k", b"v")])
            scene.wait_out([plain])
            assert now_ms() >= sent_ms + DELAY_MS
            out = scene.fired_as(plain)
            assert (out.key, out.value) == (b"k", b"v")
            assert out.headers == scene.sent[plain].headers

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
            assert len(scene.fired_as(first).headers) == 1  # its tag
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
            pipe.close()  # twice is fine
        assert scene.held() == 0
        assert scene.status().nodes == ()


def test_a_pipe_that_stands_still_leaves_its_input_to_others_and_hears_of_a_stop(
    embedded: Embedded, spark: SparkSession
) -> None:
    with Scene(embedded) as scene:

        def holders() -> set[str | None]:
            return {each.account.holder for each in scene.status().partitions}

        with Pipe(scene.settings(), spark) as pipe:
            until(lambda: holders() == {pipe.node}, "it takes in all partitions")
            longest_s, pipe._longest_still_s = pipe._longest_still_s, -1.0
            until(lambda: holders() == {None}, "it lets them go")
            until(lambda: not any(each.alive for each in scene.status().nodes), "it shows no life")
            pipe._longest_still_s = longest_s
            until(lambda: holders() == {pipe.node}, "it takes them back")
            pipe._longest_still_s = -1.0
            scene.store.ask_to_stop(scene.name, pipe.node)
            until(pipe.stopped.is_set, "it stops")
        assert pipe.failed is None
