"""The guide: its examples work; the reference has every request and every error."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from chronoline.broker.http.problems import CODE_OF_STATUS, STATUS_OF_CODE, STATUS_OF_REFUSAL
from chronoline.wire.codes import CODES
from tests.broker.http.served import serving, serving_beside

DOCS = Path(__file__).parents[3] / "docs"
GUIDE = (DOCS / "http.md").read_text("utf-8")
REFERENCE = (DOCS / "reference" / "http.md").read_text("utf-8")


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
def test_the_examples_work(tmp_path: Path) -> None:
    blocks = re.findall(r"^```sh\n(.*?)^```", GUIDE, re.M | re.S)
    assert len(blocks) >= 4
    with serving_beside(tmp_path) as url:
        script = "\n".join(blocks).replace("http://127.0.0.1:7480", url)
        script = re.sub(r"^curl ", "curl -sS --fail-with-body ", script, flags=re.M)
        done = subprocess.run(
            ["bash", "-e", "-c", script], capture_output=True, text=True, check=False, timeout=60
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert '"body":"hello"' in done.stdout


def test_reference_explains_every_request(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path) as served:
            described = (await served.http.get("/openapi.json")).json()
            for path, methods in described["paths"].items():
                for method in methods:
                    section = REFERENCE.partition(f"\n## {method.upper()} {path}\n\n")[2]
                    assert re.match(r"[A-Z].*\.\n", section), f"{method} {path}"

    asyncio.run(play())


def test_every_error_is_in_the_tables() -> None:
    """By its kind, with the status that it has over HTTP."""
    page = (DOCS / "errors.md").read_text("utf-8")
    of_kind = {
        kind: page.partition(f"\n## {kind}\n")[2].partition("\n## ")[0]
        for kind in ("Refused", "Try again", "Unknown", "Refusals of single messages")
    }

    def assert_there(kind: str, code: str, status: int) -> None:
        assert re.search(rf"^\|[^|]*`{code}`[^|]*\|[^|]*\b{int(status)}\b", of_kind[kind], re.M), (
            code
        )

    for code, (_, kind) in CODES.items():
        assert_there(kind.replace("_", " ").capitalize(), code, STATUS_OF_CODE[code])
    for status, code in CODE_OF_STATUS.items():
        assert_there("Refused", code, status)
    for refusal, status in STATUS_OF_REFUSAL.items():
        assert_there("Refusals of single messages", refusal.value, status)
