"""The examples on Spark run as they are, in the session of the tests: getting one finds the one that runs."""

import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).parents[3] / "examples"

Run = Callable[[str], list[str]]


@pytest.fixture
def run(
    lent_session: SparkSession,
    spark_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Run:
    """Runs an example where Spark and its workers have their working folder; answers what it prints."""
    lent_session.conf.set("spark.sql.session.timeZone", "Europe/Oslo")  # whatever it is elsewhere
    monkeypatch.chdir(spark_folder)
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)  # they set it where it is missing

    def run(name: str) -> list[str]:
        path = str(EXAMPLES / name)
        monkeypatch.setattr(sys, "argv", [path])
        runpy.run_path(path, run_name="__main__")
        return capsys.readouterr().out.splitlines()

    return run


def test_a_campaign_and_its_forecast(run: Run) -> None:
    for _ in range(2):  # the second time nothing is added
        assert run("spark_campaign.py") == [
            "5,000 greetings wait for Oslo",
            "5,000 greetings wait for Rome",
            "greeting-2030-0 was refused: exists",
            "greeting-2030-1 was refused: exists",
        ]
    assert run("spark_forecast.py") == [
        "09:00  2,700 waiting: 1,350 for Oslo, 1,350 for Rome",
        "09:15  2,700 waiting: 1,350 for Oslo, 1,350 for Rome",
        "09:30  2,700 waiting: 1,350 for Oslo, 1,350 for Rome",
        "09:45  1,900 waiting: 950 for Oslo, 950 for Rome",
    ]


def test_each_order_is_billed_once(run: Run) -> None:
    for times in (1, 2):
        *orders, bills = run("spark_log.py")
        assert orders[0] == f"{143 * times} orders of 0"
        assert orders[6] == f"{142 * times} orders of 6"
        assert bills == f"{857 * times} bills"
