from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from chronoline.cli.main import command_line
from chronoline.core.errors import InvalidInput
from chronoline.node.settings import NodeSettings

FILE = 'cluster = "c"\ngrpc = "127.0.0.1:1"\n[limits]\nbatch = 5\n[tags]\nrack = "r1"\n'


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def show(*arguments: str, **env: str) -> str:
    result = CliRunner().invoke(command_line(), ["config", "show", *arguments], env=env)
    assert result.exit_code == 0, (result.exception, result.output)
    return result.stdout


def origins(text: str) -> dict[str, str]:
    lines = [line.split("  # ") for line in text.splitlines() if "  # " in line]
    return {line[0].split(" =")[0].removeprefix("# ").strip(): line[-1] for line in lines}


def test_settings_are_shown_with_their_origins(tmp_path: Path) -> None:
    (tmp_path / "node.toml").write_text(FILE)
    given = ["--config=node.toml", "--grpc=127.0.0.1:2", "--insecure", "--set=tags.zone=z"]
    text = show(*given, CHRONOLINE_NODE_LOG_LEVEL="debug", CHRONOLINE_NODE_LIMITS__CREDIT="7")
    found = origins(text)
    assert {name: found[name] for name in ("cluster", "grpc", "insecure", "log_level", "http")} == {
        "cluster": "node.toml",
        "grpc": "flag grpc",
        "insecure": "flag insecure",
        "log_level": "CHRONOLINE_NODE_LOG_LEVEL",
        "http": "default",
    }
    assert (found["rack"], found["zone"]) == ("node.toml", "flag tags.zone")
    assert (found["batch"], found["credit"]) == ("node.toml", "CHRONOLINE_NODE_LIMITS__CREDIT")
    assert found["connections"] == "default"
    assert found["tls_key is not set"] == "default"
    assert list(tmp_path.iterdir()) == [tmp_path / "node.toml"]


def test_output_is_a_file_with_the_same_settings(tmp_path: Path) -> None:
    given = {"grpc": "[::1]:0", "tags": {"a": 'x"y'}, "limits": {"batch": 3}, "insecure": True}
    before = NodeSettings.load(None, {}, given)
    file = tmp_path / "node.toml"
    flags = ["--grpc=[::1]:0", '--set=tags.a=x"y', "--set=limits.batch=3", "--insecure"]
    file.write_text(show(*flags))
    assert tomllib.loads(file.read_text())["limits"]["batch"] == 3
    assert NodeSettings.load(file, {}, {}).model_dump() == before.model_dump()


def test_settings_as_json() -> None:
    found = json.loads(show("--json", "--set=limits.batch=3", CHRONOLINE_NODE_CLUSTER="c"))
    assert found["limits.batch"] == {"value": 3, "from": "flag", "origin": "flag limits.batch"}
    assert found["cluster"] == {
        "value": "c",
        "from": "variable",
        "origin": "CHRONOLINE_NODE_CLUSTER",
    }
    assert found["roles"] == {
        "value": ["overseer", "carrier"],
        "from": "default",
        "origin": "default",
    }
    assert found["tls_key"]["value"] is None


@pytest.mark.parametrize("as_json", [[], ["--json"]])
def test_no_password_is_shown(as_json: list[str]) -> None:
    text = show(
        *as_json,
        CHRONOLINE_NODE_STORE="postgresql://u:hidden@h/d?password=hidden",
        CHRONOLINE_NODE_CALLBACKS__SECRET="hidden",
        CHRONOLINE_NODE_REPLICATION__TOKEN="hidden",
    )
    assert "hidden" not in text
    assert "postgresql://…@h/d?password=…" in text


def test_bad_setting_is_refused() -> None:
    result = CliRunner().invoke(command_line(), ["config", "show", "--grpc=x"])
    assert isinstance(result.exception, InvalidInput)
    assert "grpc (flag grpc): 'x' is no address" in str(result.exception)


_PLACE = {"name": "b1", "rack": "r1", "advertise": "b1.example:7400"}


def test_place_of_a_broker_in_its_cluster_has_options() -> None:
    shown = show("--name=b1", "--rack=r1", "--advertise=b1.example:7400")
    found = {name: value for name, value in tomllib.loads(shown).items() if name in _PLACE}
    assert found == _PLACE
    assert {name: origins(shown)[name] for name in _PLACE} == {
        name: f"flag {name}" for name in _PLACE
    }
