"""Folders that a write fills beside the timeline."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

from chronoline.spark.output_folder import find_folder


def test_folder_on_a_disk_is_its_users_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        find_folder("counts", str(tmp_path / "new" / "counts")).put_json("a", {"created": 1})
    finally:
        os.umask(before)
    folder = tmp_path / "new" / "counts"
    assert json.loads((folder / "a.json").read_text()) == {"created": 1}
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (folder.parent, folder)}
    assert modes == {0o700}


def test_folder_that_is_there_keeps_its_rights(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    find_folder("counts", str(tmp_path)).make()
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755
