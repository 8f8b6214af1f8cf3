"""Server addresses: which hosts are loopback, and where a token may travel without TLS."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

from chronoline.core.errors import InvalidInput

INSECURE_VARIABLE = "CHRONOLINE_INSECURE"
"""In the environment of clients: 1 allows tokens to travel without TLS."""
_LOCAL_SCHEMES = ("unix:", "unix-abstract:")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def is_insecure_allowed(environ: Mapping[str, str]) -> bool:
    """Whether an environment allows tokens to travel without TLS."""
    return environ.get(INSECURE_VARIABLE, "").lower() in ("1", "true", "yes")


def check_token_in_clear(address: str, *, allow: str) -> None:
    """Raises `InvalidInput` for an address that a token would reach over a network without TLS.

    `allow` names the option that permits it nevertheless.
    """
    host = address.rpartition(":")[0]
    if address.startswith(_LOCAL_SCHEMES) or is_loopback(host):
        return
    raise InvalidInput(
        f"without TLS everybody on the way to {address} can read the token; it was not sent. Use TLS, or, on "
        f"a network that you trust, {allow}"
    )
