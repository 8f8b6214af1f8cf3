"""The console in a browser."""

from __future__ import annotations

import itertools
import json
import re
import time
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]  # it has no types
from playwright.sync_api import Browser, BrowserContext, Page, Route, expect

from chronoline.broker.degradation import Degradation, DegradationType
from chronoline.log.log import Log
from tests.broker.http.served import Served
from tests.console.browser.conftest import Beside

_PAGES = (
    "/",
    "/topics",
    "/topics/orders",
    "/topics/orders/messages",
    "/topics/orders/messages/u1",
    "/topics/orders/messages/dead1",
    "/topics/orders/send",
    "/topics/orders/messages/u1/reschedule",
    "/topics/orders/messages/u1/cancel",
    "/topics/orders/pause",
    "/topics/orders/dead",
    "/topics/orders/dead/dead1/redrive",
    "/schedules",
    "/schedules/report",
    "/pipes",
    "/logs",
    "/logs/0/events",
    "/logs/0/events/0",
    "/timers",
    "/nothing",
    "/sign-in",
)
_HOUR_MS = 3_600_000
_EVIL = "<script>alert(1)</script>"


async def _fill(served: Served, place: Path) -> None:
    """A topic with waiting, leased and dead messages, a schedule, and a log."""
    await served.create_topic("orders")
    for number in range(60):
        await served.put(f"u{number}", "orders", delay_ms=(number + 1) * 60_000, body=_EVIL)
    await served.put("dead1", "orders")
    polled = await served.receive("orders", consumer="worker")
    lease = polled["messages"][0]
    bury = {"id": lease["id"], "version": lease["version"], "reason": _EVIL}
    await served.settle("bury", "orders", consumer="worker", leases=[bury])
    schedule = {"name": "report", "topic": "orders", "cron": "0 9 * * MON-FRI"}
    made = await served.http.post("/v1/schedules", json=schedule)
    assert made.status_code == 200, made.text
    with Log((place / "log").as_uri()) as log:
        log.create_topic("events", partitions=1)
        log.append("events", value=b'{"n": 1}', key=b"k")


def _check_accessible(page: Page, where: str) -> None:
    found = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
    serious = [
        (each["id"], each["nodes"][0]["html"][:200])
        for each in found
        if each["impact"] in ("serious", "critical")
    ]
    assert serious == [], where


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_is_accessible_and_fits_a_phone(
    node: Beside, page: Page, tmp_path: Path, scheme: str
) -> None:
    node.run(_fill(node.served, tmp_path))
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    page.set_viewport_size({"width": 360, "height": 740})
    for path in _PAGES:
        page.goto(node.console + path)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, path
        _check_accessible(page, path)


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_labels_of_charts_lie_apart(node: Beside, page: Page, tmp_path: Path, width: int) -> None:
    node.run(_fill(node.served, tmp_path))
    page.set_viewport_size({"width": width, "height": 740})
    page.goto(f"{node.console}/topics/orders")
    expect(page.locator("[data-chart=forecast] rect.waiting").first).to_be_attached()
    _check_labels(page, "histogram")
    for _ in range(30):  # to some thousand years
        _check_labels(page, "forecast")
        page.get_by_role("button", name="Zoom out").click()


def _check_labels(page: Page, chart: str) -> None:
    # At once, since a chart that is drawn again has other labels.
    boxes = page.evaluate(
        """chart => [...document.querySelectorAll(`[data-chart=${chart}] text`)]
            .map(each => each.getBoundingClientRect())
            .map(each => [each.top, each.left, each.right])""",
        chart,
    )
    below = sorted(box[1:] for box in boxes if box[0] == max(each[0] for each in boxes))
    for (_, end), (start, _) in itertools.pairwise(below):
        assert end < start, chart


def test_empty_pages_are_accessible(node: Beside, page: Page) -> None:
    for path in ("/", "/topics", "/schedules", "/pipes", "/logs", "/timers"):
        page.goto(node.console + path)
        _check_accessible(page, path)


def test_forecast_is_dragged_and_zoomed(node: Beside, page: Page, tmp_path: Path) -> None:
    node.run(_fill(node.served, tmp_path))
    page.goto(f"{node.console}/topics/orders")
    chart = page.locator("[data-chart=forecast]")
    expect(chart.locator("rect.waiting").first).to_be_visible()
    hour = _range(page)
    assert hour[1] - hour[0] == _HOUR_MS

    box = chart.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 600, box["y"] + 80)
    page.mouse.down()
    page.mouse.move(box["x"] + 300, box["y"] + 80, steps=5)
    page.mouse.up()
    moved = _range(page, after=hour)
    assert moved[1] - moved[0] == pytest.approx(_HOUR_MS, abs=2)
    assert moved[0] > hour[0] + 5 * 60_000

    page.mouse.wheel(0, -200)
    zoomed = _range(page, after=moved)
    assert zoomed[1] - zoomed[0] < moved[1] - moved[0]

    page.get_by_role("button", name="Next year").click()
    year = _range(page, after=zoomed)
    assert year[1] - year[0] == 365 * 24 * _HOUR_MS
    expect(page.get_by_role("button", name="Next year")).to_have_attribute("aria-pressed", "true")
    page.get_by_text("As a table").first.click()
    counts = page.locator("[data-role=table] tbody tr td:nth-child(2)")
    assert sum(int(each) for each in counts.all_text_contents()) == 60


def test_forecast_begins_with_a_range_that_has_messages(node: Beside, page: Page) -> None:
    async def fill(served: Served) -> None:
        await served.create_topic("later")
        await served.put("m", "later", delay_ms=6 * _HOUR_MS)
        await served.create_topic("empty")

    node.run(fill(node.served))
    page.goto(f"{node.console}/topics/later")
    expect(page.locator("[data-chart=forecast] rect.waiting")).to_have_count(1)
    expect(page.get_by_role("button", name="Next day")).to_have_attribute("aria-pressed", "true")
    page.goto(f"{node.console}/topics/empty")
    start, end = _range(page)
    assert end - start == _HOUR_MS
    expect(page.get_by_role("button", name="Next hour")).to_have_attribute("aria-pressed", "true")


def _range(page: Page, after: tuple[int, int] | None = None) -> tuple[int, int]:
    """The range of the counts that the chart shows, once it is another one."""
    before = "" if after is None else f"{after[0]}-{after[1]}"
    chart = page.locator("[data-chart=forecast]")
    expect(chart).to_have_attribute("data-loaded", re.compile(r"\d+-\d+"))
    page.wait_for_function(
        """before => {
            const loaded = document.querySelector('[data-chart=forecast]').dataset.loaded;
            const shown = document.querySelector('[data-forecast]').forecast;
            return loaded !== before && loaded === `${shown.from}-${shown.to}`;
        }""",
        arg=before,
    )
    start, _, end = str(chart.get_attribute("data-loaded")).partition("-")
    return int(start), int(end)


def test_counts_of_a_bar_by_mouse_and_by_keyboard(node: Beside, page: Page, tmp_path: Path) -> None:
    node.run(_fill(node.served, tmp_path))
    page.goto(f"{node.console}/topics/orders")
    chart = page.locator("[data-chart=forecast]")
    bar = chart.locator("rect.waiting").first
    expect(bar).to_be_visible()
    bar.hover(force=True)
    hover = page.locator("[data-role=hover]")
    expect(hover).to_contain_text("1 waiting")
    chart.focus()
    words = hover.text_content()
    page.keyboard.press("ArrowRight")
    expect(hover).not_to_have_text(str(words))
    before = _range(page)
    page.keyboard.press("+")
    zoomed = _range(page, after=before)
    assert zoomed[1] - zoomed[0] == _HOUR_MS / 2
    expect(hover).to_have_text(re.compile("^[-0-9: ]+ UTC to [-0-9: ]+ UTC$"))  # and no count


def test_fingers_point_at_bars_and_scroll_the_page(
    node: Beside, browser: Browser, tmp_path: Path
) -> None:
    node.run(_fill(node.served, tmp_path))
    phone = browser.new_context(
        viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True
    )
    page = phone.new_page()
    page.goto(f"{node.console}/topics/orders")
    chart = page.locator("[data-chart=forecast]")
    bar = chart.locator("rect.waiting").nth(5)
    bar.scroll_into_view_if_needed()
    box = bar.bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.touchscreen.tap(x, y)
    expect(page.locator("[data-role=hover]")).to_contain_text(" waiting")

    before = _range(page)
    scrolled = page.evaluate("scrollY")
    screen = phone.new_cdp_session(page)
    for kind, places in (("touchStart", [y]), ("touchMove", [y - 40]), ("touchMove", [y - 80])):
        points = [{"x": x, "y": place} for place in places]
        screen.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    screen.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    page.wait_for_function("scrolled => scrollY > scrolled", arg=scrolled)
    assert _range(page) == before

    page.goto(f"{node.console}/")
    rates = page.locator("[data-chart=rates]")
    expect(rates.locator("path.in")).to_have_count(1)
    rates.tap()
    expect(page.get_by_text(re.compile(r" UTC: in [\d.,]+, out [\d.,]+$"))).to_be_visible()
    phone.close()


def test_times_are_in_utc_with_24_hours(node: Beside, browser: Browser, tmp_path: Path) -> None:
    node.run(_fill(node.served, tmp_path))
    context = browser.new_context(locale="en-US", timezone_id="America/New_York")
    page = context.new_page()
    page.goto(f"{node.console}/topics/orders")
    chart = page.locator("[data-chart=forecast]")
    expect(chart.locator("rect.waiting").first).to_be_visible()
    chart.focus()
    page.keyboard.press("ArrowRight")
    hover = page.locator("[data-role=hover]")
    expect(hover).to_contain_text(re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"))
    start = datetime.strptime((hover.text_content() or "")[:23], "%Y-%m-%d %H:%M:%S %Z")
    assert abs(start.replace(tzinfo=UTC) - datetime.now(UTC)) < timedelta(hours=1)
    assert "UTC" in (chart.text_content() or "")
    assert not re.search(r"\b[AP]M\b", page.locator("main").text_content() or "")
    context.close()


def test_labels_of_the_histogram_stand_apart_on_a_phone(
    node: Beside, page: Page, tmp_path: Path
) -> None:
    node.run(_fill(node.served, tmp_path))
    page.set_viewport_size({"width": 360, "height": 740})
    page.goto(f"{node.console}/topics/orders")
    labels = page.locator("[data-chart=histogram] text[text-anchor=middle]")
    expect(labels.first).to_be_visible()
    sides = "all => all.map(each => each.getBoundingClientRect()).map(box => [box.left, box.right])"
    boxes = labels.evaluate_all(sides)
    assert len(boxes) > 2
    for (_, end), (begin, _) in pairwise(boxes):
        assert end < begin


def test_buttons_of_a_topic_stand_in_a_row(node: Beside, page: Page) -> None:
    node.run(node.served.create_topic("orders"))
    page.goto(f"{node.console}/topics/orders")
    buttons = (
        page.get_by_role("button", name="Show"),
        page.get_by_role("link", name="Messages", exact=True),
        page.get_by_role("link", name="Dead letters"),
    )
    boxes = [each.bounding_box() for each in buttons]
    middles = {round(box["y"] + box["height"] / 2) for box in boxes if box}
    assert max(middles) - min(middles) <= 1


def test_message_is_rescheduled_and_cancelled_by_keyboard_alone(
    node: Beside, page: Page, tmp_path: Path
) -> None:
    node.run(_fill(node.served, tmp_path))
    page.goto(f"{node.console}/topics/orders/messages/u1")
    _press_until(page, "Reschedule")
    expect(page.get_by_label("New due")).to_be_focused()
    page.keyboard.type("2040-01-31T12:00:00Z")
    page.keyboard.press("Enter")
    expect(page.get_by_role("status").filter(has_text="was rescheduled")).to_be_visible()
    expect(page.locator("main")).to_contain_text("2040-01-31 12:00:00.000 UTC")
    _press_until(page, "Cancel")
    expect(page.get_by_role("heading", name="Cancel u1?")).to_be_visible()
    _press_until(page, "Cancel the message u1")
    expect(page.locator("main")).to_contain_text("was cancelled")
    gone = node.run(node.served.http.get("/v1/topics/orders/messages/u1"))
    assert gone.status_code == 404


def _press_until(page: Page, name: str) -> None:
    """Moves the focus by Tab to the link or button of this name, and presses Enter."""
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent.trim()") == name:
            page.keyboard.press("Enter")
            return
    raise AssertionError(f"the keyboard does not reach {name!r}")


def test_script_in_a_body_is_shown_and_not_run(node: Beside, page: Page, tmp_path: Path) -> None:
    node.run(_fill(node.served, tmp_path))
    page.goto(f"{node.console}/topics/orders/messages/u1")
    expect(page.locator("pre").first).to_have_text(_EVIL)
    page.goto(f"{node.console}/topics/orders/dead")
    expect(page.locator("tbody")).to_contain_text(_EVIL)


def test_overview_follows_the_node_without_reload(node: Beside, page: Page) -> None:
    node.run(node.served.create_topic("orders"))
    page.goto(f"{node.console}/")
    value = page.locator("[data-live-value=in]")
    expect(value).to_have_text("0")
    until_s = time.monotonic() + 30
    number = 0
    while value.text_content() == "0" and time.monotonic() < until_s:
        number += 1
        node.run(node.served.put(f"u{number}", "orders", delay_ms=_HOUR_MS))
    expect(value).not_to_have_text("0")
    rates = page.locator("[data-chart=rates]")
    assert rates.locator("path.in").get_attribute("d")
    rates.hover()
    said = page.get_by_text(
        re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC: in [\d.,]+, out [\d.,]+$")
    )
    expect(said).to_be_visible()


def test_degraded_node_says_why(node: Beside, page: Page) -> None:
    found: list[Degradation] = []
    parts = node.served.node.parts
    assert parts is not None
    parts.degradation.watch(lambda: tuple(found))
    page.goto(f"{node.console}/")
    expect(page.locator("#problems p")).to_have_count(0)
    found.append(Degradation(DegradationType.PEERS, "the broker b2 vanished", "a broker vanished"))
    expect(page.locator("#problems")).to_contain_text("Degraded (peers): the broker b2 vanished")
    # The row of the broker says so too, without a reload.
    expect(page.locator("#brokers tbody")).to_contain_text("the broker b2 vanished")
    page.reload()
    expect(page.locator("#problems")).to_contain_text("the broker b2 vanished")
    found.clear()
    expect(page.locator("#problems p")).to_have_count(0)


def test_problem_of_the_first_event_is_shown_everywhere(node: Beside, page: Page) -> None:
    """A problem may arise between the making of the page and its first event."""
    found: list[Degradation] = []
    parts = node.served.node.parts
    assert parts is not None
    parts.degradation.watch(lambda: tuple(found))

    def follow(route: Route) -> None:
        found.append(
            Degradation(DegradationType.PEERS, "the broker b2 vanished", "a broker vanished")
        )
        route.continue_()

    page.route("**/console/live", follow)
    page.clock.set_fixed_time(datetime.now(UTC))  # so that no part is refreshed for its age
    page.goto(f"{node.console}/")
    expect(page.locator("#problems")).to_contain_text("the broker b2 vanished")
    expect(page.locator("#brokers tbody")).to_contain_text("the broker b2 vanished")


def test_table_with_the_focus_follows_the_node(node: Beside, page: Page) -> None:
    found: list[Degradation] = []
    parts = node.served.node.parts
    assert parts is not None
    parts.degradation.watch(lambda: tuple(found))
    page.goto(f"{node.console}/")
    page.locator("#brokers").click()
    expect(page.locator("#brokers")).to_be_focused()
    found.append(Degradation(DegradationType.PEERS, "the broker b2 vanished", "a broker vanished"))
    expect(page.locator("#brokers tbody")).to_contain_text("the broker b2 vanished")
    expect(page.locator("#brokers")).to_be_focused()


def test_topic_follows_the_node_without_reload(node: Beside, page: Page) -> None:
    node.run(node.served.create_topic("orders"))
    page.goto(f"{node.console}/topics/orders")
    waiting = page.locator("[data-count=waiting]")
    expect(waiting).to_have_text("0")
    node.run(node.served.put("u1", "orders", delay_ms=_HOUR_MS // 2))
    expect(waiting).to_have_text("1")
    expect(page.locator("[data-chart=forecast] rect.waiting")).to_have_count(1)
    node.run(node.served.http.delete("/v1/topics/orders"))
    expect(page.get_by_role("heading", name="Not Found")).to_be_visible()


def test_chart_has_the_seconds_for_which_the_page_was_hidden(
    node: Beside, context: BrowserContext, page: Page
) -> None:
    page.goto(f"{node.console}/")
    other = context.new_page()
    other.goto(f"{node.console}/")
    _hide(page, hidden=True)
    other.wait_for_function("() => document.body.dataset.seen !== undefined")
    before = other.evaluate("document.body.dataset.seen")
    other.wait_for_function(
        "before => Number(document.body.dataset.seen) > before + 2500", arg=int(before)
    )
    _hide(page, hidden=False)
    until_s = time.monotonic() + 30
    while time.monotonic() < until_s and _drawn(page) != _drawn(other):
        pass
    assert _drawn(page) == _drawn(other)


def _drawn(page: Page) -> object:
    """The last second that the page has seen, and the number of seconds in its chart."""
    return page.evaluate(
        """[
            document.body.dataset.seen,
            document.querySelector("path.control")?.getAttribute("d").match(/[ML]/g).length,
        ]"""
    )


def _hide(page: Page, *, hidden: bool) -> None:
    page.evaluate(
        """hidden => {
            Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
            document.dispatchEvent(new Event("visibilitychange"));
        }""",
        hidden,
    )


def test_lateness_of_hours_stays_in_its_chart(node: Beside, page: Page) -> None:
    sample = {
        "in": 0,
        "out": 0,
        "late": dict.fromkeys(("p50", "p99", "p999"), _HOUR_MS),
        "control": 1,
    }
    samples = json.dumps([{"at": number * 1_000, **sample} for number in range(60)])

    def answer(route: Route) -> None:
        found = route.fetch()
        words = re.sub(r'(?<=id="samples">)[^<]*', samples, found.text())
        route.fulfill(response=found, body=words)

    page.route("**/console/", answer)
    page.route("**/console/live", lambda route: route.fulfill(status=503))
    page.goto(f"{node.console}/")
    line = page.locator("[data-chart=lateness] path.p50")
    expect(line).to_have_count(1)
    assert line.evaluate("path => path.getBBox().y") >= 0
    expect(page.locator("[data-chart=lateness]")).to_contain_text("10,000 s")


def test_page_follows_again_after_an_answer_without_a_stream(node: Beside, page: Page) -> None:
    """A node that starts, or a load balancer without one, answers with an error."""
    refusals = iter([503, 429])

    def answer(route: Route) -> None:
        if (status := next(refusals, None)) is None:
            route.continue_()
        else:
            route.fulfill(status=status)

    page.route("**/console/live", answer)
    page.goto(f"{node.console}/")
    expect(page.locator("#offline")).to_be_visible()
    expect(page.locator("#offline")).to_be_hidden(timeout=30_000)
    assert next(refusals, None) is None


def test_page_says_when_the_node_is_gone(node: Beside, context: BrowserContext, page: Page) -> None:
    page.goto(f"{node.console}/")
    expect(page.locator("[data-live-value=in]")).to_have_text("0")
    expect(page.locator("#offline")).to_be_hidden()
    assert node.served.node.http is not None
    node.run(node.served.node.http.stop())
    expect(page.locator("#offline")).to_be_visible()


def test_page_says_when_the_node_is_silent(node: Beside, page: Page) -> None:
    """A node that stands still closes no connection."""
    page.clock.install()
    page.route("**/console/live", lambda _: None)
    page.goto(f"{node.console}/")
    expect(page.locator("#offline")).to_be_hidden()
    page.clock.fast_forward(11_000)
    expect(page.locator("#offline")).to_be_visible()
    page.unroute("**/console/live")
    page.clock.fast_forward(11_000)
    expect(page.locator("[data-live-value=in]")).to_have_text("0")
    expect(page.locator("#offline")).to_be_hidden()
