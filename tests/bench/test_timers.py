"""The bench `timers`: its parts, its rows, and a tiny run of two cases."""

import asyncio
from pathlib import Path

import pytest

from chronoline.core.errors import ChronolineError
from chronoline_bench.harness.passage import Arrivals
from chronoline_bench.report import Report, Row
from chronoline_bench.session import Session, run_bench
from chronoline_bench.timers import bench as timers
from chronoline_bench.timers.bench import Sizes, measure_sizes
from chronoline_bench.timers.full_node import WaitingSizes
from chronoline_bench.timers.kill import KillSizes
from chronoline_bench.timers.pops import SLEEPER, PopSizes, report_pops, share_within
from chronoline_bench.timers.references import serve_nothing
from chronoline_bench.timers.requests import (
    OPAQUE,
    Load,
    LoadSender,
    Receiver,
    SentTimer,
    When,
    read_sent,
    whole_message,
    write_sent,
)
from chronoline_bench.timers.scale_up import Joined, ScalingSizes, report_scaling
from chronoline_bench.timers.stage import Pops, TimerStage, skew_ms
from tests.bench.cases import choose_each, fail_one

TINY = Sizes(
    pops=PopSizes(rounds=1, rate=50, steady_s=0.4),
    kill=KillSizes(timers=20, rate=100, lead_s=1.5, span_s=0.5),
    waiting=WaitingSizes(waiting=300, rounds=1, each=100, connections=4),
    scaling=ScalingSizes(waiting=50, rate=20, quiet_s=0.5),
)


def test_every_case_can_be_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    choose_each(timers, tmp_path, monkeypatch)


def test_failed_case_leaves_the_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    session = fail_one(timers, ("pops", "kill"), tmp_path, monkeypatch)
    assert "agents ended 1 times" in session.notes


# Sent timers and arrivals


def passage(sent: list[SentTimer], came: list[tuple[int, int]]) -> Pops:
    arrivals = Arrivals()
    arrivals.add(came)
    return Pops(
        started_us=0,
        ended_us=10_000,
        steady_us=(4_000_000, 10_000),
        due_us={each.number: each.due_us for each in sent},
        arrivals=arrivals,
        sent=tuple(sent),
    )


def test_share_of_no_values_is_zero() -> None:
    assert share_within([], 10) == 0
    assert share_within([1, 10, 10.1, 300], 10) == 50


def test_notes_are_read_as_they_were_written(tmp_path: Path) -> None:
    sent = [SentTimer(1, (1 << 64) - 1, 5, 6), SentTimer(2, 0, -1, 0)]
    write_sent(tmp_path / "sent", sent)
    assert list(read_sent(tmp_path / "sent")) == sent


def test_second_replica_waits_as_planned() -> None:
    assert [skew_ms(each) for each in (1_000, 8_000, 100_000)] == [250, 2_000, 2_000]


def test_timers_are_spread_over_their_span() -> None:
    interval_ms = When(lead_ms=1_000, span_ms=100).intervals(10)
    due_ms = sorted(interval_ms(place, 400_000) for place in range(10))
    assert due_ms == [600 + 10 * place for place in range(10)]
    assert interval_ms(0, 5_000_000) == 0
    drawn_ms = When(shortest_ms=5, longest_ms=7).intervals(10)
    assert {drawn_ms(place, 0) for place in range(100)} == {5, 6, 7}


@pytest.mark.parametrize(
    ("data", "whole"),
    [
        (b"", None),
        (b"POST / HTTP/1.1\r\nA: b\r\n", None),
        (b"POST / HTTP/1.1\r\ncontent-length: 2\r\n\r\na", None),
        (b"H\r\nContent-Length: 2\r\n\r\nabX", (b"H\r\nContent-Length: 2", b"ab", b"X")),
        (b"H\r\nA: b\r\n\r\nX", (b"H\r\nA: b", b"", b"X")),
    ],
)
def test_messages_of_http_are_told_apart(
    data: bytes, whole: tuple[bytes, bytes, bytes] | None
) -> None:
    assert whole_message(data) == whole


def test_repeated_callback_is_noted_as_one_timer() -> None:
    receiver = Receiver()
    asyncio.run(call(receiver, 5, 5, 6))
    assert receiver.notes.untaken == 2
    assert [number for number, _ in receiver.notes.take()] == [5, 5, 6]
    assert receiver.notes.untaken == 0


async def call(receiver: Receiver, *numbers: int) -> None:
    port = await receiver.open()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for number in numbers:
        body = OPAQUE % number
        writer.write(b"POST /pop HTTP/1.1\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
    for _ in numbers:
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
    writer.close()
    await writer.wait_closed()
    receiver.close()


def load_on(address: str, **more: int) -> Load:
    when = When(shortest_ms=1, longest_ms=1)
    return Load(nodes=[address], uri="", first=10, timers=5, when=when, connections=2, **more)


@pytest.mark.parametrize("rate", [None, 1_000])
def test_timers_are_sent_at_a_rate_or_fast(rate: int | None, tmp_path: Path) -> None:
    path = tmp_path / "sent"

    async def ask() -> dict[str, float]:
        runner = await serve_nothing()
        host, port = runner.addresses[0]
        more = {} if rate is None else {"rate": rate}
        try:
            return await LoadSender(load_on(f"{host}:{port}", **more), path).run()
        finally:
            await runner.cleanup()

    assert asyncio.run(ask())["taken"] == 5
    assert sorted(each.number for each in read_sent(path)) == [10, 11, 12, 13, 14]


def test_refused_timer_fails_the_load() -> None:
    ended = asyncio.Semaphore(0)

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(10_000):
            writer.write(b"HTTP/1.1 503 Busy\r\nContent-Length: 5\r\n\r\nlater")
        writer.close()
        await writer.wait_closed()
        ended.release()

    async def ask() -> None:
        async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            try:
                await LoadSender(load_on(f"127.0.0.1:{port}")).run()
            finally:
                for _ in range(2):  # connections
                    await ended.acquire()

    with pytest.raises(ChronolineError, match=r"5 timers were refused: HTTP/1\.1 503 Busy later"):
        asyncio.run(ask())


# Rows


def rows_of(session: Session) -> dict[str, Row]:
    rows = {row.metric: row for row in session.rows}
    assert len(rows) == len(session.rows)
    return rows


def test_pops_are_judged_by_their_share_in_time(tmp_path: Path) -> None:
    stage = TimerStage(Session(folder=tmp_path))
    found = {"ours": [[1.0] * 99 + [11.0]], SLEEPER: [[0.5] * 100]}
    report_pops(stage, "ours", TINY.pops, found)
    rows = rows_of(stage.session)
    on_time = rows["at most 10 ms late"]
    assert (on_time.value, on_time.reference_value, on_time.holds) == (99, 100, True)
    assert {name: row.ratio for name, row in rows.items() if name.startswith("late, ")} == {
        "late, p50": 2,
        "late, p99": 2,
        "late, p99.9": 22,
        "late, max": 22,
    }


def test_scale_up_is_compared_with_the_time_before(tmp_path: Path) -> None:
    stage = TimerStage(Session(folder=tmp_path))
    before = [SentTimer(number, 0, 5_000_000 + number, 1) for number in range(10)]
    meanwhile = [SentTimer(number, 0, 8_000_000 + number, 1) for number in range(10, 20)]
    came = [(each.number, each.due_us + 4_000) for each in before]
    came += [(each.number, each.due_us + 9_000) for each in meanwhile]
    joined = Joined(begun_us=7_000_000, ended_us=9_000_000, offered=100)
    report_scaling(stage, TINY.scaling, passage([*before, *meanwhile], came), joined)
    rows = rows_of(stage.session)
    assert rows["the scale-up took"].value == 2
    assert rows["timers that nodes were offered"].value == 50
    p99 = rows["late meanwhile, p99"]
    assert (p99.value, p99.reference_value, p99.holds) == (9, 4, False)
    assert rows["lost, early or popped twice"].holds


# Two of the cases on real nodes; `chronoline bench timers --quick` runs them all.


@pytest.fixture(scope="module")
def report() -> Report:
    def measure(session: Session) -> None:
        session.quick = True
        session.cases = ("kill", "waiting")
        measure_sizes(session, TINY)

    return run_bench("tiny", measure)


@pytest.mark.timeout(300)
def test_nothing_is_lost_or_early(report: Report) -> None:
    assert report.failures == ()
    assert report.tally.lost == 0
    assert report.tally.early == 0
    rows = {(row.case, row.metric): row for row in report.rows}
    assert len(rows) == len(report.rows)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("case", "metrics", "judged"),
    [
        ("one of 3 nodes killed, 40 pops/s", 7, 2),
        ("one node, timers asked for over 4 connections, each waits", 3, 2),
        ("one node, 300 timers waiting", 3, 0),
    ],
)
def test_every_case_has_its_rows(report: Report, case: str, metrics: int, judged: int) -> None:
    rows = [row for row in report.rows if row.case == case]
    assert len(rows) == metrics
    assert sum(row.holds is not None for row in rows) == judged
