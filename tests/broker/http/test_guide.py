"""The guide: its examples work, its table names every problem, and the reference explains every request."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from chronoline.broker.http.problems import CODE_OF_STATUS, STATUS_OF_CODE, STATUS_OF_REFUSAL
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


def test_every_problem_is_in_the_table() -> None:
    codes: dict[str, int] = {code: status for status, code in CODE_OF_STATUS.items()}
    codes |= STATUS_OF_CODE
    codes |= {refusal.value: status for refusal, status in STATUS_OF_REFUSAL.items()}
    for code, status in codes.items():
        assert re.search(rf"^\| {int(status)} \|.*`{code}`", GUIDE, re.M), code
