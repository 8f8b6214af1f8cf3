"""The OpenAPI description, and an API that conforms to it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from chronoline.broker.http.problems import MEDIA_TYPE
from tests.broker.http.served import serving, serving_beside

ROOT = Path(__file__).parents[3]


def operations(described: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def test_every_route_is_described(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path) as served:
            described = (await served.http.get("/openapi.json")).json()
            names = {name for name, _ in operations(described)}
            assert {"PUT /v1/topics/{topic}/messages/{id}", "POST /v1/topics/{topic}/ack"} <= names
            assert len(names) == 43
            for name, operation in operations(described):
                assert operation["description"], name
                answers = operation["responses"]
                assert "422" not in answers
                problems = [status for status in answers if status >= "400"]
                assert problems or name == "GET /livez"
                for status in problems:
                    assert list(answers[status]["content"]) == [MEDIA_TYPE], name
            assert "HTTPValidationError" not in described["components"]["schemas"]

    asyncio.run(play())


def test_every_request_body_has_a_valid_example(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path) as served:
            described = (await served.http.get("/openapi.json")).json()
            await served.create_topic("reminders")
            await served.put("u1", topic="reminders", delay_ms=60_000)
            for name, operation in operations(described):
                if "requestBody" not in operation:
                    continue
                content = operation["requestBody"]["content"]["application/json"]
                schema = content["schema"]["$ref"].rpartition("/")[2]
                examples = described["components"]["schemas"][schema]["examples"]
                method, path = name.format(topic="reminders", id="u1").split()
                for example in examples:
                    answer = await served.http.request(method, path, json=example)
                    assert answer.status_code in (200, 201, 409), (name, answer.text)

    asyncio.run(play())


@pytest.mark.timeout(300)
def test_schemathesis_finds_nothing(tmp_path: Path) -> None:
    """Generated requests, valid and invalid.

    A request that the schema allows may still be refused: that a message expires after it is due, say, no
    schema can tell.
    """
    settings = tmp_path / "schemathesis.toml"
    settings.write_text('[phases.coverage]\nunexpected-methods = ["PATCH"]\n')  # one is enough
    with serving_beside(tmp_path) as url:
        httpx.post(f"{url}/v1/topics", json={"name": "reminders"}).raise_for_status()
        command = [
            str(Path(sysconfig.get_path("scripts"), "schemathesis")),
            f"--config-file={settings}",
            "run",
            f"{url}/openapi.json",
            "--phases=examples,coverage,fuzzing",
            "--max-examples=3",
            "--exclude-checks=positive_data_acceptance",
            "--continue-on-failure",
            "--seed=1",
            "--generation-database=none",
            "--no-color",
        ]
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "SCHEMATHESIS_HOOKS": "tests.broker.http.hooks",
            },
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stdout[-10_000:] + done.stderr[-2_000:]
