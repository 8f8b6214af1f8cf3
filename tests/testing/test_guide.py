"""The guide, docs/testing.md: its examples pass, and fail as it says."""

import re
import subprocess
import sys
from pathlib import Path

GUIDE = (Path(__file__).parents[2] / "docs" / "testing.md").read_text("utf-8")
EXAMPLE, POSTGRES = re.findall(r"^```python\n(.*?)^```$", GUIDE, re.M | re.S)
(FAILURE,) = re.findall(r"^```text\n(.*?)^```$", GUIDE, re.M | re.S)
# A test over the fixture of the guide, with the kit on another store than its own.
USE_POSTGRES = """
from chronoline.store import NewMessage
from chronoline.testing import ManualClock, assert_not_scheduled, assert_scheduled, deliver_due


def test_the_kit(store: Store, chronoline_clock: ManualClock) -> None:
    now_ms = chronoline_clock.now_ms()
    topic = store.create_topic("t", now_ms=now_ms)
    message = NewMessage(id="a", due=now_ms + 1, body=b"b", headers=(("h", None),))
    store.create(topic.uid, [message], now_ms=now_ms)
    assert_scheduled(store, "t", id="a", due=now_ms + 1, body=b"b", headers=[("h", None)])
    assert deliver_due(store, "t", chronoline_clock, id).total == 0
    chronoline_clock.advance(1)
    assert len(deliver_due(store, "t", chronoline_clock, id).acked) == 1
    assert_not_scheduled(store, "t")
"""


def run_examples(folder: Path, *sources: str) -> str:
    for number, source in enumerate(sources):
        (folder / f"test_reminders_{number}.py").write_text(source)
    (folder / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    run = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
    return subprocess.run(run, cwd=folder, check=False, capture_output=True, text=True).stdout


def test_examples_pass_and_the_fixture_gives_a_real_store(tmp_path: Path) -> None:
    shown = run_examples(tmp_path, EXAMPLE, POSTGRES + USE_POSTGRES)
    assert "3 passed" in shown, shown


def test_example_fails_as_the_guide_shows(tmp_path: Path) -> None:
    broken = EXAMPLE.replace("due=now_ms + 24 * HOUR_MS", "due=now_ms + 23 * HOUR_MS")
    broken = broken.replace(', body=b"Finish your profile")\n\n', ")\n\n")
    shown = re.sub(r"^E +", "", run_examples(tmp_path, broken), flags=re.M)
    failure = re.sub(r"^ +", "", FAILURE, flags=re.M)
    assert failure in re.sub(r"^ +", "", shown, flags=re.M), shown
    assert "1 failed, 1 passed" in shown


def test_examples_are_well_typed(tmp_path: Path) -> None:
    (tmp_path / "test_reminders.py").write_text(EXAMPLE)
    (tmp_path / "test_postgres.py").write_text(POSTGRES + USE_POSTGRES)
    run = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache")]
    done = subprocess.run([*run, "."], cwd=tmp_path, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
