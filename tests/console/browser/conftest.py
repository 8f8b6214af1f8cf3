"""A real browser, and a node beside it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from chronoline.console.app import Console
from chronoline.core.errors import MissingExtra
from chronoline_bench.servers.chromium import find_browser
from tests.broker.http.served import Served, serving
from tests.conftest import miss

Result = TypeVar("Result")
TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class Beside:
    """A node in a thread of its own."""

    served: Served
    run: Callable[[Coroutine[Any, Any, Any]], Any]

    @property
    def console(self) -> str:
        return f"{self.served.url}/console"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One for a module and no longer: while it lives, this thread has a running event loop."""
    try:
        found = find_browser()
    except MissingExtra as error:
        miss("the console in a browser", error)
    expect.set_options(timeout=TIMEOUT_S * 1000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=found.program,
            args=list(found.arguments),
            env=dict(found.environment) or None,
        )
        yield browser
        browser.close()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Beside]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    exits = AsyncExitStack()

    def run(work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, loop).result(TIMEOUT_S)

    try:
        logs = [str(tmp_path / "log")]
        yield Beside(
            run(exits.enter_async_context(serving(tmp_path, console=partial(Console, logs=logs)))),
            run,
        )
    finally:
        run(exits.aclose())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(TIMEOUT_S * 1000)
    yield context
    context.close()


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    """A page that may have no errors: no failed script, nothing that the content policy refused."""
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on(
        "console",
        lambda message: (
            errors.append(message.text)
            if message.type == "error" and "the server responded" not in message.text
            else None
        ),
    )
    page.on("dialog", lambda dialog: errors.append(f"a dialog: {dialog.message}"))
    yield page
    assert not errors
