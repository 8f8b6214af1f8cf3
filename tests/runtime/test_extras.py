"""Optional libraries that are missing, and threads that find that out at the same time."""

import sys
import threading
from pathlib import Path

import pytest

from chronoline.cli.doctor.checks import Check, Diagnosis, ok, run_checks
from chronoline.core.errors import MissingExtra
from chronoline.runtime.extras import beside_imports, needs

_PATIENCE_S = 30
_MODULE = """
import sys
from chronoline.runtime.extras import needs
sys.modules["tests.runtime.test_extras"].wait_for_the_other()
with needs("a test", "tests"):
    import no_such_library
def feature():
    return "there"
"""

_threads: list[threading.Thread] = []
_begun = threading.Event()
"""The import of one of them has begun."""


def wait_for_the_other() -> None:
    """Within an import: waits until another thread waits for this import."""
    _begun.set()
    give_up = threading.Event()
    for _ in range(int(_PATIENCE_S / 0.001)):
        if not _threads or any(map(_waits_for_an_import, _threads)):
            return
        give_up.wait(0.001)  # there is no signal of a thread that begins to wait


def _waits_for_an_import(thread: threading.Thread) -> bool:
    # No public call shows where another thread is.
    frame = sys._current_frames().get(thread.ident or 0)
    while frame is not None:
        if frame.f_code.co_name == "_lock_unlock_module":
            return True
        frame = frame.f_back
    return False


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "needs_a_library.py").write_text(_MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(sys.modules, "tests.runtime.test_extras", sys.modules[__name__])
    return "needs_a_library"


@pytest.mark.usefixtures("module")
def test_checks_that_import_at_the_same_time_all_say_what_is_missing() -> None:
    _threads.clear()
    _begun.clear()
    tried = threading.local()

    def look() -> Diagnosis:
        if hasattr(tried, "once"):
            _threads.clear()  # nobody waits for a second try
        else:
            tried.once = True
            _threads.append(threading.current_thread())
            if len(_threads) > 1:
                _begun.wait(_PATIENCE_S)
        from needs_a_library import (  # type: ignore[import-not-found]  # noqa: PLC0415
            feature,
        )

        return ok(feature())

    checks = [Check("input", look), Check("output", look)]
    found = [words for _, words in run_checks(checks, _PATIENCE_S)]
    assert {each.words for each in found} == {"a test needs: pip install 'chronoline[tests]'"}


def test_name_that_is_missing_for_good_stays_an_error() -> None:
    tries: list[None] = []

    def work() -> None:
        tries.append(None)
        raise ImportError("cannot import name 'x'")

    with pytest.raises(ImportError, match="cannot import name"):
        beside_imports(work)
    assert len(tries) > 1


def test_missing_library_names_its_extra() -> None:
    with pytest.raises(MissingExtra, match=r"chronoline\[kafka\]"), needs("Kafka", "kafka"):
        import no_such_library  # type: ignore[import-not-found]  # noqa: F401, PLC0415


def test_missing_module_of_chronoline_is_a_defect() -> None:
    with pytest.raises(ModuleNotFoundError), needs("Kafka", "kafka"):
        import chronoline.no_such_module  # type: ignore[import-not-found]  # noqa: F401, PLC0415
