"""Takes the pictures of the console in docs/pictures, of a node with made-up messages.

python -m scripts.console_pictures
"""

from __future__ import annotations

import json
import random
import tempfile
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

from playwright.sync_api import sync_playwright

from chronoline import Client, ToSend
from chronoline.runtime.child_process import free_ports
from chronoline.testing.cluster import BrokerPlan, BrokerProcess
from chronoline_bench.servers.chromium import find_browser

_PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
_TOPICS = ("reminders", "invoices", "retries")
_MESSAGES = 20_000
_BATCH = 1_000
_WATCHED_S = 45
_FIRST_DUE_S = 15
"""Seconds until messages fall due, so that the node delivers in peace."""
_SEED = 7


def main() -> None:
    grpc, http = (f"127.0.0.1:{port}" for port in free_ports(2))
    with tempfile.TemporaryDirectory() as folder:
        plan = BrokerPlan(
            name="b1",
            grpc=grpc,
            http=http,
            data=Path(folder),
            store=f"sqlite:///{folder}/timeline.db",
            coordination="embedded:",
        )
        with BrokerProcess(plan), Client(grpc) as client:
            _fill(client)
            ends = threading.Event()
            consumer = threading.Thread(target=_consume, args=(grpc, ends))
            consumer.start()
            try:
                _take(f"http://{http}/console")
            finally:
                ends.set()
                consumer.join()


def _fill(client: Client) -> None:
    random.seed(_SEED)
    now = datetime.now(UTC)
    for name in _TOPICS:
        client.create_topic(name)
        messages = [
            ToSend(
                id=f"{name}-{number}",
                body=json.dumps({"user": number, "kind": name}).encode(),
                due=now + timedelta(seconds=_FIRST_DUE_S + random.expovariate(1 / 3_000)),
            )
            for number in range(_MESSAGES)
        ]
        for place in range(0, _MESSAGES, _BATCH):
            client.send_many(name, messages[place : place + _BATCH]).raise_for_refused()


def _consume(address: str, ends: threading.Event) -> None:
    with Client(address) as client:
        for lease in client.consume(_TOPICS[0], consumer="worker-1"):
            lease.ack()
            if ends.is_set():
                return


def _take(console: str) -> None:
    found = find_browser()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=found.program,
            args=list(found.arguments),
            env=dict(found.environment) or None,
        )
        page = browser.new_page(viewport={"width": 1100, "height": 900})
        page.goto(f"{console}/")
        page.wait_for_timeout(_WATCHED_S * 1_000)
        page.screenshot(path=_PICTURES / "console-overview.png")
        page.goto(f"{console}/topics/{_TOPICS[0]}")
        page.locator("[data-chart=forecast] rect.waiting").first.wait_for()
        page.wait_for_function(
            "() => document.querySelector('[data-count=waiting]').textContent !== '…'"
        )
        page.screenshot(path=_PICTURES / "console-topic.png")
        page.set_viewport_size({"width": 1100, "height": 640})
        page.get_by_role("link", name="Messages", exact=True).click()
        page.screenshot(path=_PICTURES / "console-messages.png")
        page.locator("main table a").nth(3).click()
        page.screenshot(path=_PICTURES / "console-message.png")
        phone = browser.new_page(viewport={"width": 390, "height": 844}, color_scheme="dark")
        phone.goto(f"{console}/topics/{_TOPICS[0]}")
        phone.locator("[data-chart=forecast] rect.waiting").first.wait_for()
        phone.screenshot(path=_PICTURES / "console-phone.png")
        browser.close()


if __name__ == "__main__":
    main()
