"""The request to a target for a message.

The names of its headers are those of a message that is received over HTTP, after `Chronoline-`. A header is
one line of visible ASCII, and a message can hold any bytes: texts are percent-encoded, and the message's own
headers are JSON, so that nothing in a message can end a line.
"""

from __future__ import annotations

import json
import re
from urllib.parse import quote

from chronoline.core.message import Header, LeasedMessage
from chronoline.core.topic import Topic
from chronoline.runtime.json_bytes import json_fields, json_headers
from chronoline.runtime.timestamps import show_moment

_DEFAULT_TYPE = "application/octet-stream"
_TYPE = re.compile(rb"[!-~]([ -~]{0,254}[!-~])?")
_PLAIN = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in "%+")
"""Characters that are not encoded. A plus is, since some readers take it for a space."""


def request_headers(topic: Topic, leased: LeasedMessage) -> dict[str, str]:
    """The headers of the call."""
    message = leased.message
    headers = {
        "Content-Type": _content_type(message.headers),
        "Chronoline-Id": _line(message.id),
        "Chronoline-Topic": _line(topic.name),
        "Chronoline-Due": show_moment(message.due),
        "Chronoline-Due-Ms": str(message.due),
        "Chronoline-Attempts": str(message.attempts),
        "Chronoline-Version": str(leased.lease.version),
        "Chronoline-Producer-Group": _line(message.producer_group),
    }
    for name, text in json_fields(key=message.key).items():
        headers["Chronoline-" + name.title().replace("_", "-")] = _line(text)
    if message.headers:
        shown = json_headers(message.headers)
        headers["Chronoline-Headers"] = json.dumps(shown, separators=(",", ":"))
    return headers


def call_id(topic: Topic, message_id: str) -> str:
    """The id of a call, the same for every attempt. It has no full stop, which ends an id in a signature."""
    return f"{topic.uid:x}-{quote(message_id, safe='').replace('.', '%2E')}"


def _line(text: str) -> str:
    return quote(text, safe=_PLAIN)


def _content_type(headers: tuple[Header, ...]) -> str:
    """The message's own header of that name, if it is valid."""
    for name, value in headers:
        if name.lower() == "content-type" and value is not None and _TYPE.fullmatch(value):
            return value.decode()
    return _DEFAULT_TYPE
