"""Settings from a file, the environment and flags, in rising order, each with its origin."""

from __future__ import annotations

from pathlib import Path

import pytest

from chronoline.core.errors import InvalidInput
from chronoline.runtime.settings.loader import Origin, Sources

SOURCES = Sources(prefix="APP_", property_tables=("kafka",))


def write(folder: Path, text: str) -> Path:
    path = folder / "app.toml"
    path.write_text(text, "utf-8")
    return path


def test_the_last_source_wins_setting_by_setting(tmp_path: Path) -> None:
    path = write(tmp_path, "a = 1\nb = 1\nc = 1\n[t]\nx = 1\ny = 1\n")
    found = SOURCES.gather(path, {"APP_B": "2", "APP_C": "2", "APP_T__Y": "2"}, {"c": 3, "d": None})
    assert found.table == {"a": 1, "b": "2", "c": 3, "t": {"x": 1, "y": "2"}}
    assert found.origins[("a",)] == Origin("file", "app.toml")
    assert found.origins[("b",)] == Origin("variable", "APP_B")
    assert found.origins[("c",)] == Origin("flag", "c")
    assert found.origins[("t", "x")] == Origin("file", "app.toml")
    assert found.origins[("t", "y")] == Origin("variable", "APP_T__Y")


def test_origins_are_described() -> None:
    words = [str(Origin(kind, "n")) for kind in ("file", "variable", "flag")]
    assert words == ["n", "n", "flag n"]


def test_sources_have_their_own_prefix_and_file_variable(tmp_path: Path) -> None:
    path = write(tmp_path, "a = 1\n")
    other = Sources(prefix="OTHER_")
    environ = {"APP_CONFIG": str(path), "OTHER_A": "2"}
    assert SOURCES.config_variable == "APP_CONFIG"
    assert SOURCES.gather(None, environ, {}).table == {"a": 1}
    assert other.gather(None, environ, {}).table == {"a": "2"}


def test_only_property_tables_have_dotted_names() -> None:
    plain = Sources(prefix="APP_")
    environ = {"APP_KAFKA__CLIENT_ID": "me"}
    assert SOURCES.gather(None, environ, {}).table == {"kafka": {"client.id": "me"}}
    assert plain.gather(None, environ, {}).table == {"kafka": {"client_id": "me"}}
    assert plain.gather(None, {}, {"t.a-b": 1}).table == {"t": {"a_b": 1}}


def test_table_in_a_variable_merges_setting_by_setting() -> None:
    found = SOURCES.gather(None, {"APP_T": '{x = 1, y = "b"}'}, {"t.x": 2})
    assert found.table == {"t": {"x": 2, "y": "b"}}


@pytest.mark.parametrize(
    ("content", "words"), [(b"a = ", "are no TOML"), (b"\xff", "are not text in UTF-8")]
)
def test_unreadable_file_is_reported(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "app.toml"
    with pytest.raises(InvalidInput, match="cannot be read: No such file"):
        SOURCES.gather(path, {}, {})
    path.write_bytes(content)
    with pytest.raises(InvalidInput, match=words):
        SOURCES.gather(path, {}, {})


def test_settings_round_trip_as_variables(tmp_path: Path) -> None:
    path = write(tmp_path, 'a = ["x", "y"]\nb = true\n[t]\nN_1 = "a\\"ä"\n"x.y" = [1]\nz = 5\n')
    found = SOURCES.gather(path, {"APP_C": "2"}, {"t.z": 6})
    variables = SOURCES.variables(found)
    assert set(variables) == {"APP_A", "APP_B", "APP_C", "APP_T"}
    again = SOURCES.gather(None, variables, {})
    inner = {"N_1": 'a"ä', "x.y": [1], "z": 6}
    assert again.table == {"a": "x,y", "b": "true", "c": "2", "t": inner}
    assert found.table == {**again.table, "a": ["x", "y"], "b": True}
