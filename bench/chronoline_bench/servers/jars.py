"""JVM parts for tests and benchmarks: sets of jars that are fetched once, into a cache folder.

`jars.lock` names every jar of a set with its version and checksum. The machine's Maven fetches them, from the
repositories of its settings. By hand: `python -m chronoline_bench.servers.jars [NAME…]`.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from chronoline.core.errors import ChronolineError, InvalidInput, MissingExtra
from chronoline.runtime.child_process import LineProcess

LOCK_PATH = Path(__file__).with_name("jars.lock")

# Newer versions also read the POM of each jar, with its parents and their repositories.
_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:2.8"
_COORDINATE = re.compile(r"[\w.-]+(:[\w.-]+){2,3}")
_SAY_EVERY = 20
_SAID_WHEN_FAILED = 2_000
_HEADER = """\
# The jars of each set: group:artifact:version[:classifier] = sha256. Written anew by
#     python -m chronoline_bench.servers.jars NAME --lock [COORDINATE…]
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class JarSet:
    """Jars that are used together."""

    name: str
    tops: tuple[str, ...]
    """The requested coordinates; the other jars are their dependencies."""
    checksums: Mapping[str, str]
    """The checksums by coordinate."""

    @property
    def folder(self) -> Path:
        """The folder of the set: another list of jars has another folder."""
        listed = json.dumps(sorted(self.checksums.items())).encode()
        return cache_folder() / "jars" / f"{self.name}-{hashlib.sha256(listed).hexdigest()[:16]}"


def cache_folder() -> Path:
    """Returns the cache folder; `CHRONOLINE_CACHE` overrides it."""
    if own := os.environ.get("CHRONOLINE_CACHE"):
        return Path(own).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "chronoline"


def read_lock(path: Path = LOCK_PATH) -> dict[str, JarSet]:
    """Returns the sets of the lock."""
    tables = tomllib.loads(path.read_text("utf-8")) if path.exists() else {}
    return {
        name: JarSet(name=name, tops=tuple(table["tops"]), checksums=table["jars"])
        for name, table in tables.items()
    }


def resolve(name: str, *, lock_path: Path = LOCK_PATH) -> Path:
    """Returns the folder of a set, with all of its jars and nothing else; fetches them if it is missing.

    The folder appears atomically. Of concurrent processes one fetches, and the others wait for it.
    """
    sets = read_lock(lock_path)
    if name not in sets:
        raise InvalidInput(f"no set of jars is named {name!r}; known are: {', '.join(sets)}")
    jars = sets[name]
    if not jars.folder.is_dir():
        with _alone(jars.folder):
            if not jars.folder.is_dir():  # another process may have been faster
                _make(jars)
    return jars.folder


def _make(jars: JarSet) -> None:
    with _new_folder(jars.folder) as made:
        _fetch(list(jars.checksums), made, what=jars.name)
        for coordinate, wanted in jars.checksums.items():
            found = _checksum(made / _file_name(coordinate))
            if found != wanted:
                raise ChronolineError(
                    f"{coordinate} has the checksum {found}, and the lock says {wanted}: it is "
                    "another file, and is not used"
                )


def lock(
    name: str, tops: Sequence[str] = (), *, alone: bool = False, lock_path: Path = LOCK_PATH
) -> JarSet:
    """Resolves the jars of a set, and writes them into the lock; `alone`: without dependencies.

    Without coordinates it resolves those of the lock again.
    """
    sets = read_lock(lock_path)
    if not tops:
        if name not in sets:
            raise InvalidInput(f"no set of jars is named {name!r}; name its jars")
        tops = sets[name].tops
        alone = alone or set(tops) == set(sets[name].checksums)
    for top in tops:
        if not _COORDINATE.fullmatch(top):
            raise InvalidInput(f"{top!r} is not a coordinate; write group:artifact:version")
    with tempfile.TemporaryDirectory(prefix="chronoline-jars-") as folder:
        coordinates = sorted(tops if alone else _with_dependencies(tops, Path(folder)))
        _fetch(coordinates, Path(folder), what=name)
        checksums = {each: _checksum(Path(folder, _file_name(each))) for each in coordinates}
    sets[name] = JarSet(name=name, tops=tuple(tops), checksums=checksums)
    lock_path.write_text(_lock_text(sets), "utf-8")
    return sets[name]


def _lock_text(sets: Mapping[str, JarSet]) -> str:
    text = _HEADER
    for name, jars in sorted(sets.items()):
        text += f"\n[{name}]\ntops = {json.dumps(jars.tops)}\n\n[{name}.jars]\n"
        text += "".join(f'"{each}" = "{checksum}"\n' for each, checksum in jars.checksums.items())
    return text


# Folders that appear atomically


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Holds a lock between processes: Maven's own cache does not support two at a time either."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def _new_folder(folder: Path) -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", suffix=".part", dir=folder.parent))
    try:
        yield made
        made.chmod(0o755)
        made.rename(folder)
    finally:
        shutil.rmtree(made, ignore_errors=True)


# Maven


def _with_dependencies(tops: Sequence[str], folder: Path) -> list[str]:
    """Returns the jars that Maven resolves for these coordinates; of native libraries only the jars."""
    found = folder / "found.txt"
    listing = "".join(f"<dependency>{_xml(top)}</dependency>" for top in tops)
    pom = _pom(f"<dependencies>{listing}</dependencies>")
    _run_maven(pom, f"{_PLUGIN}:list", "-DincludeScope=runtime", f"-DoutputFile={found}")
    coordinates = []
    for line in found.read_text("utf-8").splitlines():
        match line.strip().split(":"):
            case [group, artifact, "jar", version, _]:
                coordinates.append(f"{group}:{artifact}:{version}")
            case [group, artifact, "jar", classifier, version, _]:
                coordinates.append(f"{group}:{artifact}:{version}:{classifier}")
    return coordinates


def _fetch(coordinates: Sequence[str], folder: Path, *, what: str) -> None:
    """Copies jars into a folder, without the dependencies of their POMs."""
    items = "".join(
        f"<artifactItem>{_xml(each)}<destFileName>{escape(_file_name(each))}</destFileName>"
        "</artifactItem>"
        for each in coordinates
    )
    group, artifact, version = _PLUGIN.split(":")
    plugin = (
        f"<plugin><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version><configuration><artifactItems>{items}</artifactItems>"
        f"<outputDirectory>{escape(str(folder))}</outputDirectory></configuration></plugin>"
    )
    _say(f"Maven fetches {len(coordinates)} jars for {what}, once; this takes about a minute")
    _run_maven(_pom(f"<build><plugins>{plugin}</plugins></build>"), f"{_PLUGIN}:copy")


def _run_maven(pom: str, *arguments: str) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise MissingExtra("JVM parts are fetched by Maven: install Java and Maven (mvn)")
    with tempfile.TemporaryDirectory(prefix="chronoline-maven-") as folder:
        pom_path = Path(folder, "pom.xml")
        pom_path.write_text(pom, "utf-8")
        command = [maven, "--batch-mode", "--file", str(pom_path), *arguments]
        with _Maven(command, cwd=Path(folder), reads_errors=True) as process:
            code = process.wait(None)
    if code:
        raise ChronolineError(f"Maven failed to fetch jars; it said:\n{process.said}")


class _Maven(LineProcess):
    """Reports Maven's progress, and keeps the end of its output."""

    said = ""
    _jars = 0

    def _take_line(self, line: str) -> None:
        self.said = f"{self.said}{line}\n"[-_SAID_WHEN_FAILED:]
        if "Configured Artifact" in line:
            self._jars += 1
            if self._jars % _SAY_EVERY == 0:
                _say(f"  {self._jars} jars")


def _pom(inside: str) -> str:
    return (
        "<project><modelVersion>4.0.0</modelVersion>"
        "<groupId>chronoline</groupId><artifactId>jars</artifactId><version>1</version>"
        f"<packaging>pom</packaging>{inside}</project>"
    )


def _xml(coordinate: str) -> str:
    tags = ("groupId", "artifactId", "version", "classifier")
    parts = zip(tags, coordinate.split(":"), strict=False)
    return "".join(f"<{tag}>{escape(part)}</{tag}>" for tag, part in parts)


def _file_name(coordinate: str) -> str:
    """Returns a file name with the group, since two groups may have an artifact of the same name."""
    return coordinate.replace(":", "-") + ".jar"


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m chronoline_bench.servers.jars",
        description="Fetches sets of jars by Maven into the cache folder, and prints their folders.",
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="sets of jars; all if none is named"
    )
    parser.add_argument(
        "--lock",
        nargs="*",
        metavar="COORDINATE",
        help="write the set NAME into the lock anew: these (group:artifact:version), or those of "
        "the lock, and their dependencies",
    )
    parser.add_argument("--alone", action="store_true", help="with --lock: without dependencies")
    asked = parser.parse_args(arguments)
    if asked.lock is not None:
        if len(asked.names) != 1:
            parser.error("--lock takes one NAME")
        lock(asked.names[0], asked.lock, alone=asked.alone)
    for name in asked.names or read_lock():
        print(name, resolve(name))


if __name__ == "__main__":
    try:
        main()
    except ChronolineError as error:
        sys.exit(f"chronoline: {error}")
