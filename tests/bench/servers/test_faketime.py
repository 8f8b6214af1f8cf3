"""A wall clock that moves while a process runs; and the source of the library."""

import os
import platform
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from chronoline.core.errors import MissingExtra
from chronoline.runtime.child_process import LineProcess
from chronoline_bench.servers.faketime import FakeTime, find_library
from tests.conftest import miss
from tests.testing.debian_programs import stand_in, write

# Answers each line with the times of its two clocks.
GLANCING = """
import sys, time
for _ in sys.stdin:
    print(time.time(), time.monotonic(), flush=True)
"""
_ROUNDED_S = 0.001


@pytest.fixture
def moved(tmp_path: Path) -> FakeTime:
    try:
        return FakeTime(tmp_path)
    except MissingExtra as error:
        miss("libfaketime", error)


@pytest.fixture
def process(moved: FakeTime) -> Iterator[LineProcess]:
    command = [sys.executable, "-c", GLANCING]
    with LineProcess(command, environment=os.environ | moved.environment) as process:
        yield process


def glance(process: LineProcess) -> list[float]:
    """Returns the process's wall clock and monotonic clock."""
    process.write_line("")
    return [float(each) for each in process.read_line().split()]


def test_only_the_wall_clock_is_moved(moved: FakeTime, process: LineProcess) -> None:
    for by_s in (0, 1_000, -1_000, 0.5):
        moved.move(by_s)
        before_s, counted_before_s = time.time(), time.monotonic()
        wall_s, counted_s = glance(process)
        assert before_s - _ROUNDED_S <= wall_s - by_s <= time.time() + _ROUNDED_S
        assert counted_before_s <= counted_s <= time.monotonic()


def test_preloaded_libraries_stay(moved: FakeTime, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = moved.environment["LD_PRELOAD"]
    monkeypatch.setenv("LD_PRELOAD", "/lib/other.so")
    assert moved.environment["LD_PRELOAD"] == f"{alone}:/lib/other.so"


# The source of the library, with programs that the tests make

LIBRARY = "usr/lib/some-machine/faketime/libfaketimeMT.so.1"
APT_GET = """#!/bin/sh
echo package > libfaketime_1.deb
"""
DPKG_DEB = """#!/bin/sh
mkdir -p "$3/$(dirname {library})" && cp "$2" "$3/{library}"
"""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return stand_in(
        tmp_path, monkeypatch, apt_get=APT_GET, dpkg_deb=DPKG_DEB.format(library=LIBRARY)
    )


def test_the_machines_own_comes_first(programs: Path, tmp_path: Path) -> None:
    write(tmp_path / "root" / LIBRARY, "")
    assert find_library(tmp_path / "root") == tmp_path / "root" / LIBRARY
    assert not (tmp_path / "cache").exists()


def test_debians_package_is_fetched(programs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "cache" / f"libfaketime-{platform.machine()}"
    assert find_library(tmp_path) == find_library(tmp_path) == folder / LIBRARY


def test_failed_fetch_names_the_remedy(programs: Path, tmp_path: Path) -> None:
    (programs / "apt-get").unlink()
    with pytest.raises(MissingExtra, match=r"there is no apt-get; install libfaketime$"):
        find_library(tmp_path)
