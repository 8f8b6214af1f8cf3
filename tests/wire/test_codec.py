"""Changes travel in one form for each operation, and come out as they went in."""

from __future__ import annotations

import pytest

from chronoline.client import outcomes as sdk
from chronoline.core.change import LEASE_OPERATIONS, Change
from chronoline.core.errors import InvalidInput
from chronoline.core.message import After
from chronoline.core.outcome import Outcome, Refusal
from chronoline.core.permissions import Operation
from chronoline.runtime.timestamps import from_ms
from chronoline.wire.codec import MESSAGE_FRAMES, read_changes, write_answer, write_changes
from chronoline.wire.v1 import chronoline_pb2 as pb

CHANGES = [
    Change(Operation.RESCHEDULE, "a", "me", to=1_000),
    Change(Operation.RESCHEDULE, "a", "me", to=After(5)),
    Change(Operation.RESCHEDULE, "a", "me", to=0),
    Change(Operation.CANCEL, "a", "me"),
    Change(Operation.ACK, "a", "me", 7),
    Change(Operation.EXTEND, "a", "me", 7, After(30_000)),
    Change(Operation.RELEASE, "a", "me", 7, 1_000),
    Change(Operation.RETRY, "a", "me", 7, After(0)),
    Change(Operation.BURY, "a", "me", 7, reason="broken"),
    Change(Operation.UNRESERVE, "a", "me", 7),
]


def frame_of(operation: Operation) -> pb.ProducerFrame | pb.ConsumerFrame:
    return pb.ConsumerFrame() if operation in LEASE_OPERATIONS else pb.ProducerFrame()


@pytest.mark.parametrize("change", CHANGES, ids=lambda each: f"{each.operation} to {each.to}")
def test_change_comes_out_as_it_went_in(change: Change) -> None:
    frame = frame_of(change.operation)
    other = change._replace(id="b")
    write_changes(frame, 3, [change, other], again=True)
    batch = read_changes(type(frame).FromString(frame.SerializeToString()))
    assert (batch.operation, batch.topic_uid, batch.again) == (change.operation, 3, True)
    assert batch.changes("me") == [change, other]


def test_changes_of_leases_name_the_session() -> None:
    frame = pb.ConsumerFrame()
    write_changes(frame, 3, [Change(Operation.ACK, "a", "me", 7)], again=False)
    (change,) = read_changes(frame).changes("me", "instance/")
    assert change.session == change.lease.session == "instance/"


@pytest.mark.parametrize(
    ("frame", "problem"),
    [
        (pb.ConsumerFrame(), "asks for nothing that this broker knows"),
        (pb.ProducerFrame(), "asks for nothing that this broker knows"),
        (pb.ConsumerFrame(move=pb.MoveBatch()), "a move has to be of a kind"),
        (pb.ConsumerFrame(ping=pb.Ping()), "asks for nothing that this broker knows"),
    ],
    ids=["empty consumer frame", "empty producer frame", "move of no kind", "ping"],
)
def test_frame_without_a_change_is_refused(
    frame: pb.ProducerFrame | pb.ConsumerFrame, problem: str
) -> None:
    with pytest.raises(InvalidInput, match=problem):
        read_changes(frame)


def test_answers_to_moves_say_from_when_they_hold() -> None:
    refused = Outcome(id="b", refusal=Refusal.STALE)
    moved, acked = pb.ConsumerReply(), pb.ConsumerReply()
    write_answer(moved, Operation.EXTEND, [Outcome(id="a", version=8, at=1_000), refused])
    write_answer(acked, Operation.ACK, [Outcome(id="a", version=8), refused])
    shown = sdk.Outcome(id="b", refusal=Refusal.STALE)
    assert sdk.read_answer(moved) == [sdk.Outcome(id="a", version=8, at=from_ms(1_000)), shown]
    assert sdk.read_answer(acked) == [sdk.Outcome(id="a", version=8), shown]


def test_all_frames_but_these_change_messages() -> None:
    """The broker counts a frame of messages with its topic, and each other frame by itself."""
    names = {
        field.name
        for frame in (pb.ProducerFrame, pb.ConsumerFrame)
        for field in frame.DESCRIPTOR.oneofs_by_name["what"].fields
    }
    assert names - MESSAGE_FRAMES == {"hello", "ping", "subscribe", "unsubscribe", "credit"}
    assert names > MESSAGE_FRAMES
