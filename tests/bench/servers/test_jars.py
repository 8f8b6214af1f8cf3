"""Sets of jars, resolved by a fake Maven."""

import hashlib
import os
import sys
import threading
from pathlib import Path

import pytest

from chronoline.core.errors import ChronolineError, InvalidInput, MissingExtra
from chronoline_bench.servers import jars

# Acts like the Maven plugin, and counts its calls; a jar contains its own name.
MAVEN = """#!{python}
import os, sys
from pathlib import Path
from xml.etree import ElementTree

with Path(__file__).with_name("runs").open("a") as runs:
    runs.write(".")
if os.environ.get("MAVEN_FAILS"):
    sys.exit("[ERROR] could not find artifact")
for argument in sys.argv:
    if argument.startswith("-DoutputFile="):
        Path(argument.partition("=")[2]).write_text(
            "The following files have been resolved:\\n"
            "   org.top:top:jar:1.0:compile\\n"
            "   org.low:low:jar:linux:2.0:runtime\\n"
            "   org.low:native:so:2.0:runtime\\n"
        )
pom = ElementTree.parse(sys.argv[sys.argv.index("--file") + 1])
for item in pom.iterfind(".//{{*}}artifactItem"):
    name = item.findtext("{{*}}artifactId")
    print("[INFO] Configured Artifact:", name)
    path = Path(pom.findtext(".//{{*}}outputDirectory"), item.findtext("{{*}}destFileName"))
    path.write_text(name + (item.findtext("{{*}}classifier") or ""))
"""


def checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.fixture
def maven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the fake Maven, the only one on PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "mvn").write_text(MAVEN.format(python=sys.executable))
    (folder / "mvn").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("CHRONOLINE_CACHE", str(tmp_path / "cache"))
    return folder


@pytest.fixture
def lock_path(tmp_path: Path, maven: Path) -> Path:
    """A lock with one set."""
    path = tmp_path / "jars.lock"
    jars.lock("some", ["org.top:top:1.0"], lock_path=path)
    (maven / "runs").unlink()
    return path


def runs(maven: Path) -> int:
    return len((maven / "runs").read_text()) if (maven / "runs").exists() else 0


def test_a_set_is_fetched_once(lock_path: Path, maven: Path, tmp_path: Path) -> None:
    folder = jars.resolve("some", lock_path=lock_path)
    assert folder.parent == tmp_path / "cache" / "jars"
    assert sorted(path.name for path in folder.iterdir()) == [
        "org.low-low-2.0-linux.jar",
        "org.top-top-1.0.jar",
    ]
    assert (folder / "org.low-low-2.0-linux.jar").read_text() == "lowlinux"
    assert jars.resolve("some", lock_path=lock_path) == folder
    assert runs(maven) == 1


def test_one_of_concurrent_processes_fetches(lock_path: Path, maven: Path) -> None:
    folders: list[Path] = []
    threads = [
        threading.Thread(target=lambda: folders.append(jars.resolve("some", lock_path=lock_path)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(folders) == 4
    assert len(set(folders)) == 1
    assert runs(maven) == 1
    left = [path.name for path in folders[0].parent.iterdir()]
    assert sorted(left) == [folders[0].name, f"{folders[0].name}.lock"]


def test_another_list_is_another_folder(lock_path: Path) -> None:
    before = jars.resolve("some", lock_path=lock_path)
    jars.lock("some", ["org.top:top:1.1"], alone=True, lock_path=lock_path)
    after = jars.resolve("some", lock_path=lock_path)
    assert after != before
    assert [path.name for path in after.iterdir()] == ["org.top-top-1.1.jar"]


def test_file_with_another_checksum_is_not_used(lock_path: Path) -> None:
    lock_path.write_text(lock_path.read_text().replace(checksum("top"), checksum("other")))
    with pytest.raises(ChronolineError, match=r"org\.top:top:1\.0 has the checksum"):
        jars.resolve("some", lock_path=lock_path)
    folder = jars.read_lock(lock_path)["some"].folder
    assert [path.suffix for path in folder.parent.iterdir()] == [".lock"]


def test_lock_names_versions_and_checksums(lock_path: Path) -> None:
    some = jars.read_lock(lock_path)["some"]
    assert some.tops == ("org.top:top:1.0",)
    assert some.checksums == {
        "org.low:low:2.0:linux": checksum("lowlinux"),
        "org.top:top:1.0": checksum("top"),
    }
    text = lock_path.read_text()
    jars.lock("alone", ["org.a:a:1", "org.b:b:2"], alone=True, lock_path=lock_path)
    jars.lock("alone", lock_path=lock_path)
    sets = jars.read_lock(lock_path)
    assert list(sets["alone"].checksums) == ["org.a:a:1", "org.b:b:2"]
    assert sets["some"] == some
    jars.lock("some", lock_path=lock_path)
    assert jars.read_lock(lock_path) == sets
    assert (
        text.splitlines()[2:] == lock_path.read_text().splitlines()[-len(text.splitlines()) + 2 :]
    )


@pytest.mark.parametrize("coordinate", ["top", "a:b", "a:b:c:d:e", "a:<b>:1"])
def test_invalid_coordinate_is_refused(lock_path: Path, coordinate: str) -> None:
    with pytest.raises(InvalidInput, match="is not a coordinate"):
        jars.lock("some", [coordinate], lock_path=lock_path)


def test_unknown_set_is_refused_with_the_known_ones(lock_path: Path) -> None:
    for action in (jars.resolve, jars.lock):
        with pytest.raises(InvalidInput, match="no set of jars is named 'none'"):
            action("none", lock_path=lock_path)


def test_failed_maven_is_quoted(lock_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAVEN_FAILS", "1")
    with pytest.raises(ChronolineError, match="could not find artifact"):
        jars.resolve("some", lock_path=lock_path)
    monkeypatch.delenv("MAVEN_FAILS")
    assert jars.resolve("some", lock_path=lock_path).is_dir()


def test_fetched_jars_need_no_maven(lock_path: Path, maven: Path) -> None:
    text = lock_path.read_text()
    jars.resolve("some", lock_path=lock_path)
    (maven / "mvn").unlink()
    assert jars.resolve("some", lock_path=lock_path).is_dir()
    lock_path.write_text(text.replace("org.top:top:1.0", "org.top:top:1.1"))
    with pytest.raises(MissingExtra, match="install Java and Maven"):
        jars.resolve("some", lock_path=lock_path)


def test_cache_lies_in_the_user_cache_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("CHRONOLINE_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert jars.cache_folder() == tmp_path / "chronoline"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert jars.cache_folder() == tmp_path / ".cache" / "chronoline"
    monkeypatch.setenv("CHRONOLINE_CACHE", "here")
    assert jars.cache_folder() == Path(os.getcwd(), "here")


def test_command_prints_the_folders(
    lock_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        jars.main(["--help"])
    assert "NAME" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        jars.main(["--lock"])
    monkeypatch.setattr(jars.resolve, "__kwdefaults__", {"lock_path": lock_path})
    jars.main(["some"])
    assert capsys.readouterr().out.split()[0] == "some"


def test_every_set_of_jars_is_locked() -> None:
    for name, each in jars.read_lock().items():
        assert set(each.tops) <= each.checksums.keys(), name
        assert all(len(checksum) == 64 for checksum in each.checksums.values())
