"""`chronoline bench`, with a bench that takes no time."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer
from typer.testing import CliRunner, Result

from chronoline.core.errors import InvalidInput
from chronoline_bench.command import bench
from chronoline_bench.plot import Plot
from chronoline_bench.registry import BENCHES, Bench
from chronoline_bench.report import Row
from chronoline_bench.session import Session


def measure(session: Session) -> None:
    assert session.folder.is_dir()
    unit = "quick" if session.quick else "full"
    row = Row(case="c", metric="m", value=2, unit=unit, reference="r", reference_value=4)
    session.rows.append(row)
    with session.show.work("work", 1) as advance:
        advance(1)


def choose(session: Session) -> None:
    for name in session.cases:
        session.rows.append(Row(case=name, metric="m", value=1, unit="u"))


def draw(session: Session) -> None:
    session.rows.append(Row(case="c", metric="m", value=session.seconds or 0, unit="s"))
    session.write_plot("name", Plot(title="t", subtitle="s", lines=()))


def fail(session: Session) -> None:
    session.failures.append("case one failed: no luck")


def lose(session: Session) -> None:
    session.tally.lost = 1


@pytest.fixture(autouse=True)
def benches(monkeypatch: pytest.MonkeyPatch) -> None:
    functions = {"fake": measure, "lossy": lose, "failing": fail, "many": choose, "drawn": draw}
    for name, function in functions.items():
        module = f"{name}_bench"
        monkeypatch.setitem(sys.modules, module, SimpleNamespace(measure=function))
        made = Bench(
            name=name,
            summary="nothing",
            module=module,
            cases=("one", "two"),
            draws=function is draw,
        )
        monkeypatch.setitem(BENCHES, name, made)


def run(*arguments: str) -> Result:
    app = typer.Typer(rich_markup_mode="rich")
    app.command()(bench)
    return CliRunner().invoke(app, arguments)


def test_json_is_the_only_output() -> None:
    result = run("fake", "--json", "--quick")
    assert result.exit_code == 0
    answer = json.loads(result.stdout)
    assert answer["bench"] == "fake"
    assert answer["rows"][0]["unit"] == "quick"
    assert answer["rows"][0]["ratio"] == 0.5
    assert result.stderr == ""


def test_the_table_is_for_people() -> None:
    result = run("fake")
    assert result.exit_code == 0
    assert "bench fake" in result.stdout
    assert "2.00 full" in result.stdout
    assert "lost 0, duplicated 0, early 0" in result.stdout


def test_lost_message_is_a_failure() -> None:
    result = run("lossy", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["lost"] == 1


def test_cases_are_chosen_by_name() -> None:
    result = run("many", "--case", "two", "--case", "one", "--json")
    assert [row["case"] for row in json.loads(result.stdout)["rows"]] == ["two", "one"]
    result = run("many", "--case", "three")
    assert isinstance(result.exception, InvalidInput)


def test_plots_are_written_into_a_chosen_folder(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "plots"
    result = run("drawn", "--seconds=5", "--plots", str(folder), "--json")
    assert json.loads(result.stdout)["rows"][0]["value"] == 5
    assert [path.name for path in folder.iterdir()] == ["name.svg"]
    assert run("drawn").exit_code == 0


@pytest.mark.parametrize("option", ["--seconds=5", "--plots=plots"])
def test_options_of_plots_are_refused_by_benches_without_them(option: str) -> None:
    refused = run("fake", option).exception
    assert isinstance(refused, InvalidInput)
    assert "do not apply to bench fake" in str(refused)


@pytest.mark.parametrize("arguments", [("--json",), ()])
def test_failed_case_is_reported(arguments: tuple[str, ...]) -> None:
    result = run("failing", *arguments)
    assert result.exit_code == 1
    assert "case one failed: no luck" in (result.stderr if arguments else result.stdout)


def test_an_unknown_name_is_named() -> None:
    result = run("speed")
    assert isinstance(result.exception, InvalidInput)


def test_help_names_every_bench() -> None:
    result = run("--help")
    assert result.exit_code == 0
    for name in ("store", "bodies"):
        assert name in result.stdout
