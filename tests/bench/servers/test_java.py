"""Java for tests: its program, and the archive of classes that is made once and used."""

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pyspark
import pytest

from chronoline.core.errors import ChronolineError, MissingExtra
from chronoline_bench.servers import java
from tests.conftest import miss

SMALL = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:MetaspaceSize=256m"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of a Java that does nothing, in another environment."""
    home = tmp_path / "java"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").touch(0o755)
    (home / "release").write_text(
        'IMPLEMENTOR="X"\nJAVA_RUNTIME_VERSION="17.0.1+2-X"\nJAVA_VERSION="17.0.1"\n'
    )
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "our environment"))
    return home


def make(monkeypatch: pytest.MonkeyPatch, said: str | None) -> Path:
    """Acts like a Spark that writes this into the archive."""

    def run_spark(option: str, folder: Path) -> None:
        path = Path(option.removeprefix("-XX:ArchiveClassesAtExit="))
        assert path.parent == folder
        if said is not None:
            path.write_text(said)

    # Spark itself, which takes long.
    monkeypatch.setattr(java, "_run_spark", run_spark)
    return java.make_archive()


def test_java_is_found_as_spark_does(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert java.find_java("a test") == str(home / "bin" / "java")
    monkeypatch.setenv("PATH", str(home / "bin"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(MissingExtra, match="a test needs Java 17 or newer: install it, or set"):
        java.find_java("a test")
    monkeypatch.delenv("JAVA_HOME")
    assert java.find_java("a test") == str(home / "bin" / "java")


def test_archive_belongs_to_an_environment_and_versions(home: Path) -> None:
    name = f"spark-{version('pyspark')}-java-17.0.1+2-X.jsa"
    assert java.archive_path() == Path(sys.prefix, "share", "chronoline", name)
    (home / "release").unlink()
    assert java.archive_path().name == f"spark-{version('pyspark')}-java-unknown.jsa"


@pytest.mark.usefixtures("home")
def test_archive_is_made_once_and_replaces_other_versions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert java.options() == SMALL
    path = java.archive_path()
    path.parent.mkdir(parents=True)
    old = path.with_name("spark-4.0.0-java-17.jsa")
    old.touch()
    assert make(monkeypatch, "first") == make(monkeypatch, "second") == path
    assert path.read_text() == "first"
    assert list(path.parent.iterdir()) == [path]
    assert java.options() == f"{SMALL} '-XX:SharedArchiveFile={path}' -Xlog:disable"


@pytest.mark.usefixtures("home")
def test_failed_archive_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ChronolineError, match="made no archive"):
        make(monkeypatch, None)
    assert list(java.archive_path().parent.iterdir()) == []
    assert java.options() == SMALL


def test_missing_java_fails_the_command_but_not_the_tests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert java.options() == SMALL
    told = run_command()
    assert told.returncode == 1
    assert told.stderr == (
        "chronoline: Spark needs Java 17 or newer: install it, or set JAVA_HOME\n"
    )


@pytest.mark.timeout(400)  # makes it, unless it exists
def test_spark_takes_its_classes_from_the_archive(tmp_path: Path) -> None:
    try:
        archive = java.archive_path()
    except MissingExtra as error:
        miss("Spark", error)
    told = run_command()
    assert told.returncode == 0, told.stderr
    assert told.stdout == f"{archive}\n"
    log = f"-Xlog:class+load:file={tmp_path}/%p.log"
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    asked = run([str(submit), "--version"], java.options() + f" {log}")
    assert version("pyspark") in asked.stderr
    classes = [path.read_text() for path in tmp_path.iterdir()]
    loaded = "org.apache.spark.deploy.SparkSubmit source: shared objects file (top)"
    assert [loaded in each for each in classes].count(True) == 1


def test_unfit_archive_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        program = java.find_java("a test")
    except MissingExtra as error:
        miss("Java", error)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "our environment"))
    path = java.archive_path()
    path.parent.mkdir(parents=True)
    path.write_text("this is no archive")
    asked = run([program, "-version"], java.options())
    assert asked.stdout == ""
    assert "build" in asked.stderr


def run_command() -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", java.__name__], capture_output=True, text=True, check=False
    )


def run(command: list[str], options: str) -> subprocess.CompletedProcess[str]:
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SPARK_", "PYSPARK_"))
    }
    environment["JAVA_TOOL_OPTIONS"] = options
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
