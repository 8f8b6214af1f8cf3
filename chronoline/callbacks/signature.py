"""Signatures according to the Standard Webhooks specification, which authenticate the caller."""

from __future__ import annotations

import base64
import hashlib
import hmac

from chronoline.core.errors import InvalidInput

_PREFIX = "whsec_"
_FEWEST_BYTES = 24
_MOST_BYTES = 64


class Signer:
    """Signs with a secret such as `whsec_…`: 24 to 64 bytes in base64."""

    def __init__(self, secret: str) -> None:
        try:
            self._key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
        except ValueError:
            self._key = b""
        if not _FEWEST_BYTES <= len(self._key) <= _MOST_BYTES:
            raise InvalidInput(
                f"the secret for signatures must be {_PREFIX} and {_FEWEST_BYTES} to {_MOST_BYTES} bytes in "
                "base64"
            )

    def headers(self, call_id: str, body: bytes, *, wall_s: int) -> dict[str, str]:
        """The three headers of a call. A repeated call has the same id."""
        signed = f"{call_id}.{wall_s}.".encode() + body
        digest = base64.b64encode(hmac.new(self._key, signed, hashlib.sha256).digest()).decode()
        return {
            "webhook-id": call_id,
            "webhook-timestamp": str(wall_s),
            "webhook-signature": f"v1,{digest}",
        }
