from chronoline.core.message import Lease, LeasedMessage, Message
from chronoline.core.outcome import Grant, Outcome, Refusal
from chronoline_bench.tally import Served, Tally


def leased(message_id: str, due: int) -> LeasedMessage:
    message = Message(
        id=message_id,
        ts=due + 1_000,
        due=due,
        bucket=0,
        producer_group="default",
        lock_consumer="bench",
        version=1,
        attempts=0,
        expires=None,
        key=None,
        headers=(),
    )
    lease = Lease(id=message_id, consumer="bench", version=1, until=message.ts)
    return LeasedMessage(lease=lease, message=message, body=b"", redelivered=False)


def done(*ids: str) -> list[Outcome]:
    return [Outcome(id=each, version=2) for each in ids]


def test_all_served_once_and_on_time_is_clean() -> None:
    tally = Tally()
    served = Served(tally)
    served.add(Grant(leased=(leased("a", 10), leased("b", 20))), done("a", "b"), now_ms=20)
    served.expect({"a", "b"})
    assert tally.clean


def test_each_kind_of_fault_is_counted() -> None:
    tally = Tally()
    served = Served(tally)
    served.add(Grant(leased=(leased("a", 10), leased("b", 21))), done("a", "b"), now_ms=20)
    served.add(Grant(leased=(leased("a", 10),)), done("a"), now_ms=21)
    served.expect({"a", "b", "c"})
    assert tally == Tally(lost=1, duplicated=1, early=1)
    assert not tally.clean


def test_refused_message_is_lost() -> None:
    tally = Tally()
    refused = Outcome(id="a", refusal=Refusal.DEAD)
    Served(tally).add(Grant(refused=(refused,)), [], now_ms=0)
    tally.expect_done([refused, *done("b")])
    assert tally == Tally(lost=2)


def test_missing_are_lost_and_surplus_are_duplicated() -> None:
    tally = Tally()
    tally.expect(10, 8)
    tally.expect(10, 11)
    tally.expect(10, 10)
    assert tally == Tally(lost=2, duplicated=1)
