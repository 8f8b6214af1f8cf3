"""Opens a coordination service by its URL: the one place that chooses an engine."""

from __future__ import annotations

from chronoline.coordination.contract import Coordination
from chronoline.core.errors import InvalidInput
from chronoline.runtime.store_url import scheme_of, without_password

EMBEDDED = "embedded:"
"""The URL of coordination inside one process: a broker that is alone."""
SCHEMES = {
    "embedded": EMBEDDED,
    "etcd": "etcd://host:2379,host:2379,host:2379/prefix",
}
"""The schemes of coordination services, with an example of each."""


def open_coordination(url: str) -> Coordination:
    """The coordination service that a URL names. Start it before use.

    - ``embedded:`` lives in this process and ends with it: a single node.
    - ``etcd://user:password@host:port,host:port/prefix`` is an etcd; needs ``chronoline[cluster]``. All keys
      begin with the prefix (``chronoline``); clusters that share an etcd have one each. The port is 2379
      unless given. ``?ca=FILE`` turns TLS on with this authority, ``?tls=on`` with those of the system;
      ``cert=FILE`` and ``key=FILE`` are the certificate of the client.

    Raises `InvalidInput`, and `MissingExtra` if the library for it is not installed.
    """
    scheme = scheme_of(str(url))
    if url == EMBEDDED:
        from chronoline.coordination.embedded import EmbeddedCoordination

        return EmbeddedCoordination()
    if scheme == "etcd":
        from chronoline.coordination.etcd import EtcdAddress, EtcdCoordination

        return EtcdCoordination(EtcdAddress.parse(url))
    known = ", ".join(SCHEMES.values())
    raise InvalidInput(
        f"{without_password(str(url))!r} is not the URL of a coordination service; use one of: {known}"
    )
