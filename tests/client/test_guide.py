"""The guide, docs/sdk.md: its programs run one after the other, are well typed, and its test passes."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from chronoline.client.aio import AsyncClient
from chronoline.client.sync import Client
from chronoline.client.worker import Worker
from tests.deadline import until

_GUIDE = (Path(__file__).parents[2] / "docs" / "sdk.md").read_text("utf-8")
_PROGRAMS = re.findall(r"^```python\n(.*?)^```$", _GUIDE, re.M | re.S)
_TEST = next(each for each in _PROGRAMS if "def test_" in each)
_HEAD = "from datetime import timedelta\n\nfrom chronoline import Client\n"


def _run_until_done(worker: Worker) -> None:
    """Instead of until SIGTERM: until what is due on the topic of the guide is done."""

    async def serve() -> None:
        serving = asyncio.ensure_future(worker.serve())
        async with AsyncClient() as client:

            async def is_done() -> bool:
                counts = await client.count("jobs")
                return counts.available + counts.processing == 0

            await until(is_done)
        worker.stop()
        await serving

    asyncio.run(serve())


@pytest.mark.usefixtures("chronoline_broker")
def test_programs_of_the_guide_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Worker, "run", _run_until_done)
    names: dict[str, Any] = {}
    for program in _PROGRAMS:
        code = compile(program, "docs/sdk.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        answer = eval(code, names)
        assert not inspect.isawaitable(answer)
    client = names["client"]
    assert isinstance(client, Client)
    assert client.count("jobs").total == 0
    client.close()
    shown = capsys.readouterr().out
    assert shown.startswith("the tea is ready ")
    assert "refused: 'n4': a message with this id exists" in shown


def test_example_test_of_the_guide_passes(tmp_path: Path) -> None:
    (tmp_path / "test_welcomes.py").write_text(_HEAD + _TEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    run = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
    done = subprocess.run(run, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_programs_of_the_guide_are_well_typed(tmp_path: Path) -> None:
    (tmp_path / "guide.py").write_text("\n".join(_PROGRAMS))
    run = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache")]
    done = subprocess.run(
        [*run, "guide.py"], cwd=tmp_path, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout
