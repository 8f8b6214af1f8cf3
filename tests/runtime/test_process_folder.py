"""Folders of processes: those of dead ones are removed, those of live ones are left."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from chronoline.runtime.process_folder import ProcessFolder
from tests.runtime.nfs import flock_of_nfs

_KILLED = """
import os
from chronoline.runtime.process_folder import ProcessFolder
folder = ProcessFolder("test-pipe-")
(folder.path / "1").mkdir()
print(folder.path, flush=True)
os.kill(os.getpid(), 9)
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def test_folder_of_a_killed_process_is_removed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fcntl, "flock", flock_of_nfs)
    done = subprocess.run(
        [sys.executable, "-c", _KILLED], check=False, capture_output=True, text=True
    )
    left = Path(done.stdout.strip())
    assert left.is_dir()
    assert left.parent == tmp_path
    (tmp_path / "test-pipe-without-lock").mkdir()  # it is being made, or is another's
    (tmp_path / "other-1").mkdir()
    with ProcessFolder("test-pipe-") as mine:
        assert not left.exists()
        assert mine.path.is_dir()
    assert {each.name for each in tmp_path.iterdir()} == {"test-pipe-without-lock", "other-1"}


def test_folder_of_a_live_process_is_left() -> None:
    with ProcessFolder("test-pipe-") as one, ProcessFolder("test-pipe-") as two:
        assert one.path.is_dir()
        assert two.path.is_dir()
        one.close()
        one.close()
        assert not one.path.exists()


def test_folder_that_a_cleaner_removed_is_made_anew() -> None:
    with ProcessFolder("test-pipe-") as mine:
        shutil.rmtree(mine.path)
        assert mine.subfolder("1").is_dir()
        (mine.path / ".lock").unlink()  # a cleaner of old files leaves the folder
        assert mine.subfolder("2").is_dir()
        with ProcessFolder("test-pipe-"):
            assert mine.subfolder("3").is_dir()  # it has an owner
            assert (mine.path / "2").is_dir()
    assert not mine.path.exists()


def test_folder_that_another_user_has_replaced_is_not_used(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with ProcessFolder("test-pipe-") as folder:
        shutil.rmtree(folder.path)
        folder.path.symlink_to(elsewhere)
        with pytest.raises(PermissionError):
            folder.subfolder("1")
        folder.path.unlink()
    assert not any(elsewhere.iterdir())
