"""The logs of a node, on stderr: for people, or a JSON object in each line.

A record has a stable `action`, and its subject as further fields:
`logger.info("…", extra={"action": "started", "grpc": address})`.
"""

from __future__ import annotations

import io
import logging
import sys
from logging.handlers import WatchedFileHandler
from typing import Any

from chronoline.core.errors import InvalidInput
from chronoline.node.settings import NodeSettings
from chronoline.runtime import audit
from chronoline.runtime.private_files import open_private
from chronoline.runtime.terminal_text import TextLines, json_text
from chronoline.runtime.timestamps import show_moment

logger = logging.getLogger(__name__)

_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""The attributes of every record; others are fields from the caller."""


def log_to_stderr(settings: NodeSettings) -> None:
    """Logs to stderr from now on; of other libraries only warnings and errors."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        JsonLines()
        if settings.log_format == "json"
        else TextLines("%(asctime)s %(levelname)s %(name)s: %(message)s")
    )
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.captureWarnings(True)
    logging.getLogger("chronoline").setLevel(settings.log_level.upper())
    audit_to_file(settings)


def audit_to_file(settings: NodeSettings) -> None:
    """Writes the audit trail to its file, if there is one. Raises `InvalidInput` if that cannot be written.

    The file is opened anew after a program has rotated it.
    """
    trail = audit.logger
    trail.setLevel(logging.INFO)  # whatever the level of other lines
    for handler in trail.handlers[:]:
        if isinstance(handler, WatchedFileHandler):  # of other settings
            trail.removeHandler(handler)
            handler.close()
    if settings.audit_file is None:
        return
    try:
        handler = _AuditFile(settings.audit_file, encoding="utf-8")
    except OSError as error:
        raise InvalidInput(
            f"audit_file {settings.audit_file!r} cannot be written: {error.strerror or error}"
        ) from None
    handler.setFormatter(JsonLines())
    trail.addHandler(handler)


class _AuditFile(WatchedFileHandler):
    """A file that can no longer be written fails no request: the log has the lines too."""

    _problem = ""

    def _open(self) -> io.TextIOWrapper:
        file: io.TextIOWrapper = open_private(self.baseFilename, self.mode)
        return file

    def emit(self, record: logging.LogRecord) -> None:
        before, self._problem = self._problem, ""
        try:
            super().emit(record)
        except OSError:  # of opening the file anew, after it was rotated
            self.handleError(record)
        if self._problem and not before:
            logger.error(
                "audit_file %r cannot be written: %s",
                self.baseFilename,
                self._problem,
                extra={"action": "audit_failed"},
            )

    def handleError(self, _: logging.LogRecord) -> None:
        self._problem = str(sys.exc_info()[1])


class JsonLines(logging.Formatter):
    """`ts`, `level`, `logger`, `message`, then `action` and other fields, then `trace`."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "ts": show_moment(int(record.created * 1000)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: value for name, value in vars(record).items() if name not in _OWN}
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json_text(line, default=str)
