"""The examples on Spark run as they are."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def run(name: str, folder: Path) -> list[str]:
    names = ("SPARK_", "PYSPARK_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(names)}
    environment |= {"PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / name)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5_000:]
    return done.stdout.splitlines()


@pytest.mark.timeout(400)  # three times Spark, one after the other
def test_a_campaign_and_its_forecast(tmp_path: Path) -> None:
    for _ in range(2):  # the second time nothing is added
        assert run("spark_campaign.py", tmp_path) == [
            "5,000 greetings wait for Oslo",
            "5,000 greetings wait for Rome",
            "greeting-2030-0 was refused: exists",
            "greeting-2030-1 was refused: exists",
        ]
    assert run("spark_forecast.py", tmp_path) == [
        "09:00  2,700 waiting: 1,350 for Oslo, 1,350 for Rome",
        "09:15  2,700 waiting: 1,350 for Oslo, 1,350 for Rome",
        "09:30  2,700 waiting: 1,350 for Oslo, 1,350 for Rome",
        "09:45  1,900 waiting: 950 for Oslo, 950 for Rome",
    ]
