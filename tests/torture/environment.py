"""The environment of the processes of a scene."""

from __future__ import annotations

import os
import sys
from pathlib import Path

_NEVER = "PYTHONDONTWRITEBYTECODE"


def child_environment() -> dict[str, str]:
    """Our environment, in which modules are compiled once.

    If nothing may be written into the tree, they are compiled into the folder of the interpreter. Otherwise
    each process would compile them again, which is a third of the processor time of a short scene.
    """
    environment = dict(os.environ)
    if environment.pop(_NEVER, ""):
        environment["PYTHONPYCACHEPREFIX"] = str(Path(sys.prefix) / "pycache")
    return environment
