"""Pages and their forms."""

from __future__ import annotations

import asyncio
import html
import json
import re
import time
from pathlib import Path
from urllib.parse import quote

import pytest

from chronoline.console import overview
from chronoline.console.messages import show_body
from chronoline.console.pages import show_duration
from chronoline.log.log import Log
from tests.console.visitor import Visitor, visiting
from tests.deadline import until


@pytest.mark.parametrize(
    ("duration_ms", "words"),
    [
        (0, "0 s"),
        (5, "5 ms"),
        (1_500, "1 s"),
        (90_000, "1 min 30 s"),
        (5_400_000, "1 h 30 min"),
        (86_400_000, "1 d"),
    ],
)
def test_durations_in_words(duration_ms: int, words: str) -> None:
    assert show_duration(duration_ms) == words


def test_bodies_in_each_form() -> None:
    both = show_body(b'{"a": "\xc3\xa4"}')
    assert both["json"] == '{\n  "a": "\u00e4"\n}'
    assert both["text"] == '{"a": "\u00e4"}'
    binary = show_body(b"\xff\x00A")
    assert (binary["json"], binary["text"]) == (None, None)
    assert binary["hex"].split() == ["00000000", "ff", "00", "41", "..A"]
    assert show_body(b"x" * 70_000)["is_cut"]
    cut = show_body(b"\xc3\xa4" * 32_768 + b"\xc3\xa4")
    assert cut["text"] == "\u00e4" * 32_768


@pytest.mark.parametrize(
    "value",
    [
        {},
        [],
        [[], {}],
        {"a": [1, {"b": None}], "c": '[{"x": 1},]'},
        'a " b',
        1,
        [True, "ü", "", "\\"],
    ],
)
def test_json_is_indented(value: object) -> None:
    words = json.dumps(value, ensure_ascii=False)
    assert show_body(words.encode())["json"] == json.dumps(value, ensure_ascii=False, indent=2)


def test_json_is_shown_as_it_was_written() -> None:
    """An operator reads no other amount than that of the message."""
    words = '[1.10,1e400,12345678901234567890.25,{"a":1,"a":2},' + "9" * 5_000 + "]"
    shown = str(show_body(words.encode())["json"])
    assert re.sub(r"\s", "", shown) == words


def test_deep_json_is_not_shown_larger_than_a_page() -> None:
    assert show_body(b"[" * 900 + b"1," * 30_000 + b"1" + b"]" * 900)["json"] is None
    assert show_body(b"[[1,2]]")["json"] == "[\n  [\n    1,\n    2\n  ]\n]"


def test_names_and_bodies_are_escaped(tmp_path: Path) -> None:
    evil = '<script>alert("1")</script>'

    async def play() -> None:
        async with visiting(tmp_path) as (served, visitor):
            await served.create_topic(evil)
            path = f"/topics/{quote(evil, safe='')}"
            sent = await served.http.put(
                f"/v1{path}/messages/{quote(evil, safe='')}",
                json={
                    "in": "1h",
                    "body": evil,
                    "key": evil,
                    "headers": {evil: evil},
                    "producer_group": evil,
                },
            )
            assert sent.status_code == 201
            pages = [
                await visitor.get(each)
                for each in (
                    "/",
                    "/topics",
                    path,
                    f"{path}/messages/{quote(evil, safe='')}",
                    f"{path}/messages/{quote(evil, safe='')}/cancel",
                    f"{path}/dead",
                    f"/topics?q={quote(evil)}",
                )
            ]
            for page in pages:
                assert "<script>alert" not in page
            assert "&lt;script&gt;alert" in pages[3]

    asyncio.run(play())


def test_message_is_sent_rescheduled_and_cancelled(tmp_path: Path) -> None:
    async def play() -> None:
        async with visiting(tmp_path) as (served, visitor):
            assert "was created" in await visitor.submit("/topics", name="orders")
            sent = await visitor.submit(
                "/topics/orders/send", id="u/1", when="+1h", body="hello", group="shop"
            )
            assert "was sent" in sent
            assert "hello" in sent
            message = (await served.http.get("/v1/topics/orders/messages/u%2F1")).json()
            assert (message["producer_group"], message["status"]) == ("shop", "waiting")

            again = await visitor.submit(
                "/topics/orders/send", id="u/1", when="+2h", body="\n<b>", group="shop"
            )
            assert "Refused" in again
            for kept in ('value="u/1"', 'value="+2h"', 'value="shop"', ">\n\n&lt;b&gt;</textarea>"):
                assert kept in again

            moved = await visitor.submit(
                "/topics/orders/messages/u%2F1/reschedule", when="2040-01-31 12:00:00.500 UTC"
            )
            assert "was rescheduled" in moved
            assert "2040-01-31 12:00:00.500 UTC" in moved
            assert "Refused" in await visitor.submit(
                "/topics/orders/messages/u%2F1/reschedule", when="tomorrow"
            )

            confirm = await visitor.get("/topics/orders/messages/u%2F1/cancel")
            assert "Cancel the message u/1" in confirm
            assert "was cancelled" in await visitor.post("/topics/orders/messages/u%2F1/cancel")
            gone = await visitor.get("/topics/orders/messages/u%2F1")
            assert "cancelled" in gone
            assert "then the id is free" in gone
            await visitor.get("/topics/orders/messages/nothing", 404)

            for word in ("send", "find"):
                await visitor.submit("/topics/orders/send", id=word, when="+1h", body=f"I {word}")
                assert f"I {word}" in await visitor.get(f"/topics/orders/messages/{word}")

    asyncio.run(play())


def test_messages_are_listed_by_each_condition(tmp_path: Path) -> None:
    async def play() -> None:
        async with visiting(tmp_path) as (served, visitor):
            await served.create_topic("orders")
            for number in range(60):
                group = "shop" if number < 3 else "default"
                await served.put(
                    f"u{number:02}", "orders", delay_ms=60_000 * (number + 1), producer_group=group
                )
            await served.put("now", "orders")
            await served.receive("orders", consumer="worker", lease="1m")

            async def found(query: str) -> set[str]:
                page = await visitor.get(f"/topics/orders/messages?{query}")
                return set(re.findall(r'messages/([^"/]+)">', page))

            first = await found("")
            assert len(first) == 50
            page = await visitor.get("/topics/orders/messages")
            link = re.search(r'href="\?([^"]+)">Next page', page)
            assert link is not None
            rest = await found(html.unescape(link[1]))
            assert len(first | rest) == 61
            assert await found("group=shop") == {"u00", "u01", "u02"}
            assert await found("consumer=worker") == {"now"}
            assert await found("status=processing") == {"now"}
            assert await found("prefix=u5") == {f"u{number}" for number in range(50, 60)}
            assert await found("from=%2B90s&to=%2B200s") == {"u01", "u02"}
            await visitor.get("/topics/orders/messages?status=x", 400)
            await visitor.get("/topics/orders/messages?from=x", 400)
            await visitor.get("/topics/orders/messages?after=x", 400)

    asyncio.run(play())


def test_leased_message_is_not_cancelled(tmp_path: Path) -> None:
    async def play() -> None:
        async with visiting(tmp_path) as (served, visitor):
            await served.create_topic("orders")
            await served.put("u1", "orders")
            await served.receive("orders", consumer="worker", lease="1m")
            page = await visitor.get("/topics/orders/messages/u1")
            assert "leased to" in page
            assert "worker" in page
            refused = await visitor.submit("/topics/orders/messages/u1/cancel")
            assert "Refused: &#39;u1&#39;: a consumer holds a live lease" in refused

    asyncio.run(play())


def test_action_on_a_message_of_the_past_shows_its_fate(tmp_path: Path) -> None:
    """As in a second tab."""

    async def play() -> None:
        async with visiting(tmp_path) as (served, visitor):
            await served.create_topic("orders")
            await served.put("u1", "orders", delay_ms=3_600_000)
            place = "/topics/orders/messages/u1"
            assert "was cancelled" in await visitor.submit(f"{place}/cancel")
            for page in (
                await visitor.post(f"{place}/cancel"),
                await visitor.post(f"{place}/reschedule", when="+1h"),
                await visitor.get(f"{place}/reschedule"),
            ):
                assert "Refused: the message &#39;u1&#39; is not on the timeline" in page
                assert '<span class="state cancelled">' in page
            await visitor.get("/topics/orders/messages/u2/cancel", 404)

    asyncio.run(play())


def test_lines_of_a_body_end_as_they_were_written(tmp_path: Path) -> None:
    """Browsers send CR LF."""

    async def play() -> None:
        async with visiting(tmp_path) as (served, visitor):
            await served.create_topic("orders")
            await visitor.submit("/topics/orders/send", id="u1", when="+1h", body="a\r\nb\r\n")
            body = await served.http.get("/v1/topics/orders/messages/u1/body")
            assert body.content == b"a\nb\n"

    asyncio.run(play())


def test_refused_topic_is_said_beside_its_form(tmp_path: Path) -> None:
    async def play() -> None:
        async with visiting(tmp_path) as (_, visitor):
            page = await visitor.submit("/topics", name="a\x01b")
            assert "Refused: " in page
            assert "<h1>Topics</h1>" in page

    asyncio.run(play())


def test_schedule_links_to_the_messages_that_are_there(tmp_path: Path) -> None:
    async def play() -> None:
        async with visiting(tmp_path) as (served, visitor):
            await served.create_topic("orders")
            wanted = {"name": "report", "topic": "orders", "every": "40s"}
            made = await served.http.post("/v1/schedules", json=wanted)
            assert made.status_code == 200, made.text

            async def is_created() -> bool:
                return "/topics/orders/messages/report" in await visitor.get("/schedules/report")

            await until(is_created)
            page = await visitor.get("/schedules/report")
            linked = re.findall(r'href="/console(/topics/orders/messages/report[^"]+)"', page)
            for path in linked:
                await visitor.get(path)
            assert page.count("(not created yet)") == 10 - len(linked) > 0
            assert "one of the missed occurrences" in page

    asyncio.run(play())


def test_dead_letter_is_put_back_and_discarded(tmp_path: Path) -> None:
    async def play() -> None:
        async with visiting(tmp_path) as (served, visitor):
            await served.create_topic("orders", max_attempts=1)
            for name in ("a", "b"):
                await served.put(name, "orders")
                polled = await served.receive("orders", consumer="worker")
                lease = polled["messages"][0]
                bury = {"id": lease["id"], "version": lease["version"], "reason": "<i>broken</i>"}
                await served.settle("bury", "orders", consumer="worker", leases=[bury])
            page = await visitor.get("/topics/orders/dead")
            assert "&lt;i&gt;broken&lt;/i&gt;" in page
            assert "Put back a" in await visitor.get("/topics/orders/dead/a/redrive?group=default")
            assert "was put back" in await visitor.post(
                "/topics/orders/dead/a/redrive", group="default"
            )
            assert "was discarded" in await visitor.post(
                "/topics/orders/dead/b/discard", group="default"
            )
            assert "There are none" in await visitor.get("/topics/orders/dead")
            again = await visitor.post("/topics/orders/dead/b/discard", group="default")
            assert "Refused" in again

    asyncio.run(play())


def test_forecast_counts_what_waits(tmp_path: Path) -> None:
    async def play() -> None:
        async with visiting(tmp_path) as (served, visitor):
            await served.create_topic("orders")
            now_ms = 1_900_000_000_000
            for place, due_ms in enumerate((0, 1, 999, 1_000, 59_999, 60_000)):
                await served.put(f"u{place}", "orders", due_ms=now_ms + due_ms)
            url = (
                f"/console/topics/orders/forecast.json?from={now_ms}&to={now_ms + 60_000}&steps=60"
            )
            found = (await visitor.http.get(url)).json()
            assert found["step"] == 1_000
            assert len(found["starts"]) == 60
            assert (found["waiting"][0], found["waiting"][1], found["waiting"][59]) == (3, 1, 1)
            assert sum(found["waiting"]) == 5
            assert not found["counting"]
            for wrong in ("from=5&to=5", "from=-1&to=5", "from=a", "from=1&to=99999999999999999"):
                answer = await visitor.http.get(f"/console/topics/orders/forecast.json?{wrong}")
                assert answer.status_code == 400, wrong

    asyncio.run(play())


def test_topics_come_in_pages(tmp_path: Path) -> None:
    async def play() -> None:
        async with visiting(tmp_path) as (served, visitor):
            for number in range(51):
                await served.create_topic(f"orders-{number:02}")
            first, second = await visitor.get("/topics"), await visitor.get("/topics?page=2")
            assert "51 topics" in first
            assert "orders-49" in first
            assert "orders-50" not in first
            assert "orders-50" in second
            found = await visitor.get("/topics?q=ORDERS-07")
            assert "1 topic" in found
            await visitor.get("/topics?page=x", 400)

    asyncio.run(play())


def test_consumer_is_shown_with_its_buckets(tmp_path: Path) -> None:
    async def play() -> None:
        async with visiting(tmp_path) as (served, visitor):
            await served.create_topic("orders", buckets=8)
            async with served.client() as client:
                await client.send("orders", b"x", id="u1")
                async for lease in client.consume("orders", consumer="worker-1"):
                    page = await visitor.get("/topics/orders")
                    assert "worker-1" in page
                    assert "0–7" in page
                    await lease.ack()
                    break
            overview = await visitor.get("/")
            assert "orders" in overview

    asyncio.run(play())


def test_lateness_of_one_message_is_its_own(tmp_path: Path) -> None:
    async def play() -> None:
        async with visiting(tmp_path) as (served, visitor):
            await served.create_topic("orders")
            assert "has delivered no message" in await visitor.get("/topics/orders")
            now_ms = int(time.time() * 1000)
            await served.put("u1", "orders", due_ms=now_ms - 5_000_000)
            await served.receive("orders", consumer="worker")
            page = await visitor.get("/topics/orders")
            late_s = re.search(
                r"has delivered one message since its start, (5,\d+(?:\.\d)?) s late", page
            )
            assert late_s is not None
            assert f"≤ {late_s[1]} s" in await visitor.get("/topics")

    asyncio.run(play())


def test_overview_counts_dead_letters(tmp_path: Path) -> None:
    async def play() -> None:
        async with visiting(tmp_path) as (served, visitor):
            for topic in ("orders", "mails"):
                await served.create_topic(topic)
            for name in ("a", "b"):
                await served.put(name, "orders")
                (lease,) = (await served.receive("orders", consumer="worker"))["messages"]
                bury = {"id": lease["id"], "version": lease["version"], "reason": "broken"}
                await served.settle("bury", "orders", consumer="worker", leases=[bury])
            async with visitor.http.stream("GET", "/console/live") as stream:
                found = (
                    json.loads(line.removeprefix("data: "))["dead"]
                    async for line in stream.aiter_lines()
                    if line.startswith("data: ")
                )
                counted = await anext(each async for each in found if each is not None)
            assert counted == 2
            page = await visitor.get("/")
            assert 'data-live-value="dead">2<' in page
            assert "of 1 topic<" in page
            assert 'href="/console/topics/orders/dead"' in page

    asyncio.run(play())


def test_log_is_shown_down_to_its_events(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "chronoline.audit")
    place = str(tmp_path / "log")

    async def play() -> None:
        with Log((tmp_path / "log").as_uri()) as log:
            log.create_topic("orders", partitions=2)
            log.append("orders", value=b'{"n": 1}', key=b"k", partition=1)
            log.append("orders", value=b"<b>two</b>", partition=1)
            log.append("orders", value=b"x" * 70_000, partition=0)
            list(log.read("orders", group="billing", follow=False, limit=1))
        async with visiting(tmp_path, console={"logs": [place]}) as (_, visitor):
            assert "orders" in await visitor.get("/logs")
            topic = await visitor.get("/logs/0/orders")
            assert "billing" in topic
            events = await visitor.get("/logs/0/orders/1")
            assert "&lt;b&gt;two&lt;/b&gt;" in events
            assert events.index("two") < events.index("&#34;n&#34;: 1")
            assert "70,000 bytes; the first 64 KiB" in await visitor.get("/logs/0/orders/0")
            assert "70,000 bytes" not in events
            assert "peek_events, topic 'orders'" in caplog.text
            earlier = await visitor.get("/logs/0/orders/1?before=1")
            assert "two" not in earlier
            await visitor.get("/logs/7/orders", 404)
            await visitor.get("/logs/0/nothing", 404)

    asyncio.run(play())


def test_missing_log_is_said_where_it_would_be(tmp_path: Path) -> None:
    async def play() -> None:
        async with visiting(tmp_path, console={"logs": [str(tmp_path / "nothing")]}) as (
            _,
            visitor,
        ):
            assert "there is no log in the folder" in await visitor.get("/logs")

    asyncio.run(play())


def test_empty_node_says_what_to_do(tmp_path: Path) -> None:
    async def play() -> None:
        async with visiting(tmp_path) as (_, visitor):
            assert "There is no topic yet" in await visitor.get("/topics")
            assert "No pipe uses this store" in await visitor.get("/pipes")
            assert "name no log" in await visitor.get("/logs")
            assert "has no timers" in await visitor.get("/timers")
            assert "no topic" in await visitor.get("/topics/nothing", 404)
            assert "Back to the overview" in await visitor.get("/nothing", 404)

    asyncio.run(play())


def test_root_leads_to_the_console(tmp_path: Path) -> None:
    async def play() -> None:
        async with visiting(tmp_path) as (_, visitor):
            page = await visitor.http.get("/")
            assert str(page.url).endswith("/console/")

    asyncio.run(play())


def test_events_follow_the_traffic_and_end_with_the_node(tmp_path: Path) -> None:
    async def play() -> None:
        async with visiting(tmp_path) as (served, visitor):
            await served.create_topic("orders")
            seen: list[str] = []
            async with visitor.http.stream("GET", "/console/live") as stream:
                assert stream.headers["content-type"].startswith("text/event-stream")
                await served.put("u1", "orders", delay_ms=3_600_000)
                async for line in stream.aiter_lines():
                    seen.append(line)
                    if '"in": ' in line and '"in": 0.0' not in line:
                        break
            assert any(each.startswith("data: ") for each in seen)
            assert served.node.http is not None
            await asyncio.wait_for(served.node.http.stop(), 30)

    asyncio.run(play())


def test_number_of_streams_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # No setting: it would take a hundred streams.
    monkeypatch.setattr(overview, "_MOST_STREAMS", 1)

    async def play() -> None:
        async with visiting(tmp_path) as (_, visitor):
            async with visitor.http.stream("GET", "/console/live") as stream:
                lines = stream.aiter_lines()
                assert await anext(lines) == "retry: 2000"
                assert "follow this node already" in await visitor.get("/live", 429)
            await until(lambda: _follows(visitor))

    asyncio.run(play())


def test_streams_that_begin_at_once_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview, "_MOST_STREAMS", 1)

    async def play() -> None:
        async with visiting(tmp_path) as (_, visitor):
            http = visitor.http
            asked = [http.build_request("GET", "/console/live") for _ in range(40)]
            answers = await asyncio.gather(*(http.send(each, stream=True) for each in asked))
            for each in answers:
                await each.aclose()
            assert sorted({each.status_code for each in answers}) == [200, 429]
            assert [each.status_code for each in answers].count(200) == 1
            await until(lambda: _follows(visitor))

    asyncio.run(play())


async def _follows(visitor: Visitor) -> bool:
    async with visitor.http.stream("GET", "/console/live") as stream:
        return stream.status_code == 200
