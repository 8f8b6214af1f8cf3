"""The examples of the SDK run unchanged against a broker, and print the output in their comments."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from chronoline.core.errors import BrokerUnavailable, MissingExtra
from chronoline.stores.memory import MemoryStore
from chronoline.testing import assert_not_scheduled, assert_scheduled, scheduled
from tests.conftest import miss
from tests.examples.test_examples import EXAMPLES, run

pytestmark = pytest.mark.usefixtures("chronoline_broker")


def test_every_example_of_the_broker_has_a_test() -> None:
    source = Path(__file__).read_text("utf-8")
    for path in EXAMPLES.glob("broker_*.py"):
        assert f'"{path.name}"' in source or f'"{path.stem}:app"' in source, path.name


def test_first_program_of_the_readme(tmp_path: Path) -> None:
    readme = (EXAMPLES.parent / "README.md").read_text("utf-8")
    (program,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    (tmp_path / "first.py").write_text(program)
    (line,) = run(str(tmp_path / "first.py"), tmp_path)
    assert re.fullmatch(r"The tea is ready\. Due \d\d:\d\d:\d\d\.\d{6}, \d+\.\d ms late\.", line)


def test_reminders_come_on_time_and_moved_one_once(tmp_path: Path) -> None:
    for _ in range(2):
        lines = run("broker_reminders.py", tmp_path)
        # On a slow machine messages that are overdue at the start of the worker are handled concurrently.
        assert sorted(re.sub(r", \d+\.\d ms late$", "", line) for line in lines) == [
            "ada: the tea is ready",
            "ben: call the bank",
            "cem: stand up",
        ]


def test_retries_back_off_and_a_final_error_is_buried(
    tmp_path: Path, chronoline_store: MemoryStore
) -> None:
    assert run("broker_retries.py", tmp_path) == [
        *(f"order 1, attempt {attempt}: the bank does not answer" for attempt in (1, 2, 3)),
        "order 1, attempt 4: paid",
        "CardExpired: 2",
    ]
    assert_not_scheduled(chronoline_store, "payments")


def test_not_now_releases_the_message(tmp_path: Path, chronoline_store: MemoryStore) -> None:
    assert run("broker_not_now.py", tmp_path) == [
        "97% busy: not now",
        "92% busy: not now",
        "31% busy: sent, after 0 failed attempts",
    ]
    assert_not_scheduled(chronoline_store, "mails")


def test_long_job_keeps_its_lease(tmp_path: Path, chronoline_store: MemoryStore) -> None:
    lines = run("broker_long_job.py", tmp_path)
    assert lines == [*(f"part {part} of 5 is converted" for part in range(1, 6)), "done"]
    assert_not_scheduled(chronoline_store, "videos")


def test_cancelled_message_does_not_come(tmp_path: Path, chronoline_store: MemoryStore) -> None:
    for _ in range(2):
        assert run("broker_cancel.py", tmp_path) == [
            "cart-1: no reminder",
            "cart-1: no reminder",
            "cart-2: too late, leased",
        ]
        assert_not_scheduled(chronoline_store, "carts")


def test_exactly_once_prints_its_comments(tmp_path: Path) -> None:
    for _ in range(2):
        assert run("broker_exactly_once.py", tmp_path) == [
            "first begins: True",
            "second begins: True",
            "second finishes: True",
            "first finishes: False",
            "first acks: refused",
            "500",
        ]


@contextmanager
def _served(app: str) -> Iterator[httpx.Client]:
    """Runs an app behind uvicorn, with a client. SIGTERM ends it."""
    command = [sys.executable, "-m", "uvicorn", "--app-dir", str(EXAMPLES), "--port", "0", app]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            for line in server.stderr:
                if found := re.search(r"running on (http://\S+)", line):
                    with httpx.Client(base_url=found[1]) as client:
                        yield client
                    break
            server.send_signal(signal.SIGTERM)
            rest = server.stderr.read()
            assert "Application shutdown complete" in rest
            assert "Traceback" not in rest
        finally:
            server.kill()


def test_fastapi_app_schedules_messages(chronoline_store: MemoryStore) -> None:
    at = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    with _served("broker_fastapi:app") as client:
        for hours in (1, 2):
            later = at + timedelta(hours=hours)
            body = {"text": "the tea is ready", "at": later.isoformat()}
            answer = client.put("/reminders/tea", json=body)
            assert (answer.status_code, answer.json()) == (201, {"id": "tea"})
            assert_scheduled(
                chronoline_store, "web-reminders", id="tea", due=later, body=b'"the tea is ready"'
            )
        assert len(scheduled(chronoline_store, "web-reminders")) == 1
        naive = {"text": "x", "at": "2030-01-01T12:00:00"}
        assert client.put("/reminders/x", json=naive).status_code == 422
        assert client.delete("/reminders/tea").status_code == 204
        assert client.delete("/reminders/never-was").status_code == 404
        assert_not_scheduled(chronoline_store, "web-reminders")


def test_fastapi_app_keeps_the_reasons_of_errors_to_itself(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Away:
        async def cancel(self, *_: object) -> None:
            raise BrokerUnavailable("no broker at 127.0.0.1:7400; start one: chronoline up")

    monkeypatch.syspath_prepend(str(EXAMPLES))
    app = importlib.import_module("broker_fastapi").app
    app.state.client = Away()

    async def delete() -> httpx.Response:
        transport = httpx.ASGITransport(app)  # without the app's start
        async with httpx.AsyncClient(transport=transport, base_url="http://app") as client:
            return await client.delete("/reminders/tea")

    answer = asyncio.run(delete())
    assert (answer.status_code, answer.json()) == (503, {"detail": "try again in a moment"})
    assert "start one: chronoline up" in caplog.text


def test_django_hook_sends_after_the_commit(tmp_path: Path) -> None:
    if importlib.util.find_spec("django") is None:
        miss("broker_django.py", MissingExtra("Django is not installed: pip install django"))
    for _ in range(2):
        assert run("broker_django.py", tmp_path) == [
            "before the commit: None",
            "after the commit: welcome-ada",
            "rolled back: the payment was declined",
            "None",
        ]
