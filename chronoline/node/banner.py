"""The banner of a node: its addresses, and the commands for a first success."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from chronoline.broker.auth import Door
from chronoline.callbacks.address_guard import LOOPBACK
from chronoline.core.version import VERSION
from chronoline.node.auth import address_guard
from chronoline.node.settings import ANYWHERE, DEFAULT_GRPC, NodeSettings


def banner(settings: NodeSettings, where: Mapping[str, str], door: Door) -> Iterator[str]:
    """The lines of the banner; `where` has the address of each listener."""
    yield f"Chronoline {VERSION} is up. Ctrl-C stops it."
    yield ""
    if "grpc" in where:
        yield f"  gRPC    {where['grpc']}"
    if "http" in where:
        yield f"  HTTP    {where['http']}   (in a browser: the console; the API under /v1; /metrics)"
    if "timers" in where:
        yield f"  timers  {where['timers']}   (POST /timers; /metrics)"
    if settings.has_broker:
        yield f"  store   {settings.shown_store}"
        if settings.is_clustered:
            yield f"  cluster {settings.shown_coordination}"
    yield f"  access  {_access(settings, door)}"
    yield callable_line(settings, door)
    if "timers" in where and address_guard(settings, door).allows("127.0.0.1"):
        yield ""
        yield "Set the first timer, in another terminal:"
        yield ""
        yield from (f"  {line}" for line in _first_timer(where["timers"], door))
    if "grpc" in where:
        yield ""
        yield "Send the first message, in another terminal:"
        yield ""
        yield from (f"  {line}" for line in _first_message(settings, where["grpc"], door))
    yield ""


def callable_line(settings: NodeSettings, door: Door) -> str:
    """The networks that a node may call."""
    here = LOOPBACK if settings.calls_loopback and door.is_open else ()
    networks = ", ".join((*settings.allowed_calls, *here)) or "nothing else"
    return f"  calls   the public internet, and {networks}   (URLs of targets and timers)"


def _access(settings: NodeSettings, door: Door) -> str:
    words = "TLS" if door.tls else "no TLS"
    words += ", a token is needed" if door.asks else ", no token is needed"
    return words + (" (insecure)" if settings.insecure else "")


def _first_message(settings: NodeSettings, grpc: str, door: Door) -> Iterator[str]:
    if settings.grpc_listener.host in ANYWHERE:
        grpc = f"127.0.0.1:{grpc.rpartition(':')[2]}"
    if grpc != DEFAULT_GRPC:
        yield f"export CHRONOLINE_ADDRESS={grpc}"
    if door.asks:
        yield "export CHRONOLINE_TOKEN=…       # as `chronoline token create` printed it"
    tls = " --tls" if door.tls else ""
    if door.tls is not None and door.tls.requires_certificates:
        tls += " --certificate ME.pem --key-file ME-KEY.pem"
    yield f"chronoline topic create reminders{tls}"
    yield f"chronoline send reminders --in 5s --body hello{tls}"
    yield f"chronoline receive reminders{tls}"


def _first_timer(where: str, door: Door) -> Iterator[str]:
    token = ' -H "Authorization: Bearer $CHRONOLINE_TOKEN"' if door.asks else ""
    if door.tls is not None:
        token += " --cacert CA.pem"
        if door.tls.requires_certificates:
            token += " --cert ME.pem --key ME-KEY.pem"
    where = where.replace("://0.0.0.0:", "://127.0.0.1:").replace("://[::]:", "://[::1]:")
    yield "chronoline timers listen 9000    # shows what it is called with"
    yield (
        f"curl -si {where}/timers{token} -d '"
        '{"timing":{"interval":5},"callback":{"http":{"uri":"http://127.0.0.1:9000/pop","opaque":"hello"}}}'
        "'"
    )
