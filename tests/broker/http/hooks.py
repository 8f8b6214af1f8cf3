"""What schemathesis is told of this API: loaded by it, not by pytest."""

from __future__ import annotations

from typing import Any

import schemathesis


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    """Nobody waits for messages that do not come; what is odd stays odd."""
    if case.path.endswith("/receive") and isinstance(case.body, dict):
        wait = case.body.get("wait")
        if wait is None or (isinstance(wait, str) and wait.isascii()):
            case.body["wait"] = "1ms"
