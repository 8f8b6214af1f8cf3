"""The settings of a node: one TOML file, the environment, flags; later ones win.

`docs/reference/settings.md` lists them; `chronoline config show` prints those in force, and their origins.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Literal, NamedTuple

from pydantic import AfterValidator, BeforeValidator, Field

from chronoline.broker.limits import Limits
from chronoline.broker.metrics import FAMILIES
from chronoline.broker.subscription import MAX_CREDIT
from chronoline.callbacks.address_guard import LOOPBACK
from chronoline.coordination.contract import DEFAULT_MARGIN_MS, SHORTEST_TTL_MS
from chronoline.coordination.factory import EMBEDDED, SCHEMES
from chronoline.core.addresses import check_address, is_loopback
from chronoline.core.callback_url import url_problem
from chronoline.core.limits import name_problem
from chronoline.core.quotas import GroupOverrides
from chronoline.runtime.descriptors import Shares, share_out
from chronoline.runtime.settings.loader import Rule, Settings, SettingsTable, Sources
from chronoline.runtime.settings.types import (
    DurationMs,
    HostNames,
    Listed,
    OptionalText,
    Secret,
    SizeBytes,
    Whole,
    shown,
)
from chronoline.runtime.store_url import (
    POSTGRES,
    file_store,
    lasting_store,
    scheme_of,
    without_password,
)
from chronoline.runtime.store_url import SCHEMES as STORE_SCHEMES
from chronoline.stores.contract import MAX_BATCH

DEFAULT_DATA = "chronoline-data"
DEFAULT_GRPC = "127.0.0.1:7400"
DEFAULT_HTTP = "127.0.0.1:7480"
DEFAULT_TIMERS = "127.0.0.1:7253"
BROKER_ROLES = ("overseer", "carrier")
ROLES = (*BROKER_ROLES, "timers")
_MIB = 1024 * 1024
_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS
_PEERS = 16
"""The number of other nodes for which descriptors are reserved."""
_WILDCARDS = ("0.0.0.0", "::")
"""Hosts of a listener at all addresses, by which no client asks."""
_COLLECTOR = re.compile(r"https?://[^/?#@\s]+:[0-9]{1,5}/?")
_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OWN_LABELS = {
    "cluster",
    "topic",
    "le",
    # The labels of the timers' metrics.
    *("node", "tag", "outcome", "method", "status", "reason", "resource"),
    *(each for one in FAMILIES.values() for each in one.labels),
}
_LIMITS = Limits()
ANYWHERE = ("0.0.0.0", "::")
"""Hosts of a listener at all addresses of the machine; no client can connect to them."""


class Listener(NamedTuple):
    """An address to listen at. Port 0 picks a free port."""

    host: str
    """Without the brackets of IPv6."""
    port: int

    @property
    def bracketed(self) -> str:
        """The host as written before a port."""
        return f"[{self.host}]" if ":" in self.host else self.host

    def at(self, port: int) -> str:
        """The address host:port, with the actual port."""
        return f"{self.bracketed}:{port}"


# Values


def _folder(value: object) -> Path:
    if not isinstance(value, str | Path) or not str(value) or "\0" in str(value):
        raise ValueError("must be a folder")
    path = Path(value).expanduser().absolute()
    for each in (path, *path.parents):
        if each.exists():
            if not each.is_dir():
                raise ValueError(f"must be a folder, and {shown(str(each))} is none")
            break
    return path


def _store(url: str) -> str:
    """`memory:` is allowed: a node is one process. The store ends with it."""
    return url if scheme_of(url) == "memory" else lasting_store(url)


def _listener(text: str) -> str:
    return check_address(text, example=DEFAULT_GRPC, least_port=0)


def _listener_or_none(text: str) -> str:
    return _listener(text) if text else text


def _roles(names: tuple[str, ...]) -> tuple[str, ...]:
    unknown = [name for name in names if name not in ROLES]
    if unknown:
        raise ValueError(f"{shown(unknown[0])} is no role; there are: {', '.join(ROLES)}")
    if not names:
        raise ValueError(f"a node has a role at least; there are: {', '.join(ROLES)}")
    return tuple(name for name in ROLES if name in names)


def _coordination(url: str) -> str:
    if url != EMBEDDED and scheme_of(url) != "etcd":
        known = " or ".join(SCHEMES.values())
        raise ValueError(f"is not the URL of a coordination service; write {known}")
    return url


def _advertised(address: str | None) -> str | None:
    if address is not None:
        check_address(address, example="broker-1.example:7400")
        if _split(address).host in ANYWHERE:
            raise ValueError(f"no client can connect to {address}; name a host of this machine")
    return address


def _name_or_none(name: str | None) -> str | None:
    if name is not None and (problem := name_problem("it", name)):
        raise ValueError(problem)
    return name


def _ttl(ttl_ms: int) -> int:
    if ttl_ms % 1_000:
        raise ValueError(f"must be whole seconds, not {ttl_ms} ms")
    return ttl_ms


def _cluster(name: str) -> str:
    if problem := name_problem("the name of a cluster", name):
        raise ValueError(problem)
    return name


def _tags(tags: dict[str, str]) -> dict[str, str]:
    for name in tags:
        if not _LABEL.fullmatch(name) or name.startswith("__"):
            raise ValueError(f"{shown(name)} can be no label: letters, digits and _ make one")
        if name in _OWN_LABELS:
            raise ValueError(f"{shown(name)} is a label that the metrics have already")
    return tags


def _called(url: str | None) -> str | None:
    if url is not None and (problem := url_problem("the URI", url)):
        raise ValueError(problem)
    return url


def _collector(url: str | None) -> str | None:
    if url is not None and not _COLLECTOR.fullmatch(url):
        raise ValueError(
            "is not the address of a collector; write http://localhost:4317, or https:// for TLS"
        )
    return url


def _key_set(place: str | None) -> str | None:
    if place is not None and "://" in place and not place.startswith("https://"):
        raise ValueError(
            "must be a file or an https:// URL: others could change the keys on the way"
        )
    return place


def _networks(texts: tuple[str, ...]) -> tuple[str, ...]:
    for text in texts:
        try:
            ipaddress.ip_network(text)
        except ValueError:
            raise ValueError(f"{shown(text)} is no network; write 10.0.0.0/8 or fd00::/8") from None
    return texts


# Tables


class LimitsTable(SettingsTable):
    """Limits of a node, so that a flood delays only itself."""

    frame_bytes: SizeBytes = Field(default=_LIMITS.frame_bytes, ge=64 * 1024, le=64 * _MIB)
    batch: Whole = Field(default=_LIMITS.batch, ge=1, le=MAX_BATCH)
    credit: Whole = Field(default=_LIMITS.credit, ge=1, le=MAX_CREDIT)
    in_flight_bytes: SizeBytes = Field(
        default=_LIMITS.in_flight_bytes, ge=64 * 1024, le=1024 * _MIB
    )
    connections: Whole = Field(default=_LIMITS.connections, ge=1, le=100_000)
    """The most open streams, and the most connections of each listener; by default fewer if the process
    may not open as many files. Connections of strangers get three quarters of them."""
    node_bytes: SizeBytes = Field(default=_LIMITS.node_bytes, ge=_MIB, le=1024 * 1024 * _MIB)
    node_requests: Whole = Field(default=_LIMITS.node_requests, ge=10, le=1_000_000)
    schedules: Whole = Field(default=_LIMITS.schedules, ge=1, le=1_000_000)
    ping_interval_ms: DurationMs = Field(default=_LIMITS.ping_interval_ms, ge=50, le=_HOUR_MS)
    ping_timeout_ms: DurationMs = Field(default=_LIMITS.ping_timeout_ms, ge=100, le=_DAY_MS)
    clock_bound_ms: DurationMs = Field(default=_LIMITS.clock_bound_ms, ge=1, le=_DAY_MS)

    def limits(self) -> Limits:
        return Limits(**self.model_dump())


def _groups(quotas: dict[str, int]) -> dict[str, int]:
    for group, quota in quotas.items():
        if problem := name_problem("the name of a producer group", group):
            raise ValueError(problem)
        if quota < 0:
            raise ValueError(f"of {shown(group)} must be at least 0, which is no quota")
    return quotas


GroupNumbers = Annotated[dict[str, Whole], AfterValidator(_groups)]


class QuotasTable(SettingsTable):
    """Quotas of some producer groups, by name; they replace those of topics. 0 is no quota."""

    waiting: GroupNumbers = Field(default_factory=dict)
    """The most messages of a group on a topic's timeline, in place of the topic's `group_waiting`."""
    creates_per_s: GroupNumbers = Field(default_factory=dict)
    """The most creates of a group on a topic a second, in place of the topic's `group_creates_per_s`."""

    def overrides(self) -> GroupOverrides:
        return GroupOverrides(waiting=self.waiting, creates_per_s=self.creates_per_s)


class ReplicationTable(SettingsTable):
    """The nodes that keep timers together; a single node needs none of it."""

    nodes: OptionalText = None
    """A file in TOML that lists them: staying, joining, leaving. Without one the node is alone."""
    address: OptionalText = None
    """The address of this node in that file, if it is not `timers`."""
    copies: Whole = Field(default=1, ge=1, le=32)
    """The fewest nodes that have a timer, or know of its deletion, before the answer; all reachable ones get
    it. With fewer the answer is 503, and the timer may pop."""
    timeout_ms: DurationMs = Field(default=1_000, ge=50, le=_HOUR_MS)
    """A node that does not answer within this time counts as unavailable."""
    most_timers: Whole = Field(default=5_000_000, ge=1, le=100_000_000)
    """The most timers on a node."""
    clock_bound_ms: DurationMs = Field(default=60_000, ge=1_000, le=_DAY_MS)
    """A record whose version is further ahead of this node's wall clock is refused."""
    token: Secret = None
    """The token that the node sends to the others. A secret: in the file or the environment."""
    ca: OptionalText = None
    """A PEM file: the authority of the others' certificates, if the system does not trust it."""


class JwtTable(SettingsTable):
    """JSON Web Tokens of an issuer, which a node accepts beside its own tokens."""

    keys: Annotated[OptionalText, AfterValidator(_key_set)] = None
    """The issuer's public keys (JWKS): a file, or an https URL. Without it, no JWT is accepted. Needs
    the extra jwt."""
    issuer: OptionalText = None
    """The claim `iss` of its tokens; `jwt.keys` needs it."""
    audience: OptionalText = None
    """The claim `aud` of tokens for this node; `jwt.keys` needs it."""
    rights_claim: str = Field(default="chronoline", min_length=1)
    """The claim with the rights: a list, or a text with spaces between them, such as `scope`."""
    leeway_ms: DurationMs = Field(default=30_000, ge=0, le=10 * 60_000)
    """How far the clocks of issuer and node may differ."""
    ca: OptionalText = None
    """A PEM file: the authority of the URL's certificate, if the system does not trust it."""


class CallbacksTable(SettingsTable):
    """Calls to URLs of timers and of topics with a target."""

    allow: Annotated[Listed, AfterValidator(_networks)] = LOOPBACK
    """Networks that may be called besides the public internet. The default is for a node that listens
    on loopback alone, while it asks for no token and has no allowed_hosts; it is none for any other."""
    timeout_ms: DurationMs = Field(default=2_000, ge=10, le=_HOUR_MS)
    """An answer that takes longer counts as a failure."""
    for_each_host: Whole = Field(default=64, ge=1, le=10_000)
    """The most calls to one host at a time."""
    in_all: Whole = Field(default=1_000, ge=1, le=100_000)
    """The most calls at a time; by default fewer if the process may not open as many files."""
    attempts: Whole = Field(default=10, ge=1, le=1_000)
    """The number of attempts of a callback. For timers only."""
    first_wait_ms: DurationMs = Field(default=500, ge=1, le=_DAY_MS)
    """The wait between the first two attempts. It doubles each time; up to half of it is cut at random."""
    longest_wait_ms: DurationMs = Field(default=60_000, ge=1, le=_DAY_MS)
    """The longest wait between two attempts."""
    missed: Literal["once", "skip"] = "once"
    """One call replaces the missed pops of a timer, or with `skip` none does."""
    secret: Secret = None
    """Signs calls by the Standard Webhooks specification: whsec_… A secret."""
    dead_letters: Annotated[OptionalText, AfterValidator(_called)] = None
    """A URI to which callbacks of timers that failed at all attempts are posted."""


class NodeSettings(Settings):
    """The settings of a node."""

    sources = Sources(prefix="CHRONOLINE_NODE_")
    owner = "a node"
    tables: ClassVar[Mapping[str, type[SettingsTable]]] = {
        "limits": LimitsTable,
        "quotas": QuotasTable,
        "replication": ReplicationTable,
        "callbacks": CallbacksTable,
        "jwt": JwtTable,
    }

    data: Annotated[Path, BeforeValidator(_folder)] = Path(DEFAULT_DATA)
    """The folder of a node: its tokens and, by default, its store."""
    store: Annotated[str, AfterValidator(_store)] = Field(
        default_factory=lambda given: file_store(given.get("data", Path()) / "timeline.db")
    )
    """The store of messages: sqlite:///… on one machine, postgresql://… for several, or memory:, which
    is lost with the process. By default SQLite, timeline.db in `data`. Passwords are never shown."""
    grpc: Annotated[str, AfterValidator(_listener)] = DEFAULT_GRPC
    """host:port for the SDK and the commands. Port 0 picks a free one."""
    http: Annotated[str, AfterValidator(_listener_or_none)] = DEFAULT_HTTP
    """host:port for HTTP: the API, health and metrics. Empty: none."""
    timers: Annotated[str, AfterValidator(_listener)] = DEFAULT_TIMERS
    """host:port for timers, if the node has that role."""
    roles: Annotated[Listed, AfterValidator(_roles)] = BROKER_ROLES
    """The roles of the node: a broker (overseer, carrier, or both), timers, or all of them."""
    coordination: Annotated[str, AfterValidator(_coordination)] = EMBEDDED
    """Where the brokers of a cluster meet: etcd://host:2379,host:2379/prefix; `embedded:` for one that
    is alone."""
    name: Annotated[OptionalText, AfterValidator(_name_or_none)] = None
    """The name of the broker in its cluster, the same after a restart; one is made if not given."""
    rack: Annotated[OptionalText, AfterValidator(_name_or_none)] = None
    """Where the broker runs: a rack, a zone, a machine."""
    advertise: Annotated[OptionalText, AfterValidator(_advertised)] = None
    """host:port under which clients reach the broker's gRPC; by default `grpc`. Brokers of a cluster
    that listen at 0.0.0.0 or [::] need it."""
    session_ttl_ms: Annotated[DurationMs, AfterValidator(_ttl)] = Field(
        default=SHORTEST_TTL_MS, ge=SHORTEST_TTL_MS, le=_HOUR_MS
    )
    """A broker that etcd has not heard from for this time is gone for the others. Whole seconds, more
    than an election of etcd takes."""
    session_margin_ms: DurationMs = Field(default=DEFAULT_MARGIN_MS, ge=0, le=_HOUR_MS)
    """A broker without an answer of etcd stops granting leases this time before `session_ttl_ms` has
    passed."""
    cluster: Annotated[str, AfterValidator(_cluster)] = "default"
    """The label `cluster` of all metrics."""
    tags: Annotated[dict[str, str], AfterValidator(_tags)] = Field(default_factory=dict)
    """A table: more labels of all metrics, such as rack = "r1"."""
    limits: LimitsTable = LimitsTable()
    quotas: QuotasTable = QuotasTable()
    replication: ReplicationTable = ReplicationTable()
    callbacks: CallbacksTable = CallbacksTable()
    jwt: JwtTable = JwtTable()
    tls_certificate: OptionalText = None
    """A PEM file: the certificate and its chain."""
    tls_key: OptionalText = None
    """A PEM file: the certificate's key."""
    tls_client_ca: OptionalText = None
    """A PEM file: the authority of clients. With it, clients are asked for a certificate."""
    tls_client_certificates: Literal["required", "optional"] = "required"
    """With `tls_client_ca`: whether a client without a certificate may connect to HTTP and timers. With
    `optional` gRPC asks for none."""
    insecure: bool = False
    """Allows other machines to reach the node without TLS and without a token."""
    allowed_hosts: HostNames = ()
    """Host names, of a proxy for example, by which HTTP and timers can be asked on a node without tokens,
    besides localhost, the node's own addresses, and those in `advertise` and `replication.address`.
    Requests for other names are answered with 421."""
    console: bool = True
    """Serves the pages for browsers at /console."""
    logs: Listed = ()
    """Logs that the console shows: folders or URLs."""
    clock: Literal["system", "store"] = "system"
    """The clock of the broker: the machine's, or the store's, which the broker then follows."""
    log_format: Literal["text", "json"] = "text"
    """`text` for people, or `json`: an object in each line."""
    audit_file: OptionalText = None
    """A file to which the audit trail is written too, one JSON object in each line."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """`debug`, `info`, `warning` or `error`."""
    traces: Annotated[OptionalText, AfterValidator(_collector)] = None
    """A collector that takes OpenTelemetry's spans over gRPC, such as http://localhost:4317. Needs the
    extra otel."""
    patience_ms: DurationMs = Field(default=10_000, ge=100, le=_HOUR_MS)
    """The time-out of the store. After it a change is answered as unknown, a query as unavailable; a
    change that waited in the broker's queue is withdrawn and refused."""

    @classmethod
    def rules(cls) -> Sequence[Rule]:
        return _RULES

    @property
    def grpc_listener(self) -> Listener:
        return _split(self.grpc)

    @property
    def http_listener(self) -> Listener | None:
        return _split(self.http) if self.http else None

    @property
    def timers_listener(self) -> Listener:
        return _split(self.timers)

    @property
    def listeners(self) -> dict[str, Listener]:
        """All listeners of the node's roles, by their settings."""
        found: dict[str, Listener | None] = {}
        if self.has_broker:
            found |= {"grpc": self.grpc_listener, "http": self.http_listener}
        if self.has_timers:
            found["timers"] = self.timers_listener
        return {name: listener for name, listener in found.items() if listener is not None}

    @property
    def allowed_calls(self) -> tuple[str, ...]:
        """Networks besides the public internet that may be called, whatever the access to the node."""
        return self.callbacks.allow if "allow" in self.callbacks.model_fields_set else ()

    @property
    def calls_loopback(self) -> bool:
        """Whether this machine may be called while nobody needs a token.

        Not behind a proxy, by which other machines reach a node on loopback; `allowed_hosts` tells of one.
        """
        only_here = all(is_loopback(each.host) for each in self.listeners.values())
        return (
            "allow" not in self.callbacks.model_fields_set and only_here and not self.allowed_hosts
        )

    @property
    def host_names(self) -> tuple[str, ...]:
        """The names by which clients may ask the node: those that are set, and those in its own addresses."""
        own = (self.advertise, self.replication.address, self.grpc, self.http, self.timers)
        hosts = (_split(address).host for address in own if address)
        return (*self.allowed_hosts, *(host for host in hosts if host not in _WILDCARDS))

    def shares(self, descriptors: int, *, even_if_set: bool = False) -> Shares:
        """The most connections and calls for a number of descriptors; explicit settings win.

        With `even_if_set`, settings are limited by the descriptors too.
        """
        found = share_out(
            descriptors,
            listeners=len(self.listeners),
            peers=0 if self.replication.nodes is None else _PEERS,
            calls=self.callbacks.in_all,
        )
        limits, callbacks = self.limits, self.callbacks
        connections, calls = min(limits.connections, found.connections), found.calls
        if "connections" in limits.model_fields_set and not even_if_set:
            connections = limits.connections
        if "in_all" in callbacks.model_fields_set and not even_if_set:
            calls = callbacks.in_all
        return Shares(connections, calls)

    @property
    def has_broker(self) -> bool:
        return bool(self.broker_roles)

    @property
    def broker_roles(self) -> tuple[str, ...]:
        return tuple(name for name in self.roles if name in BROKER_ROLES)

    @property
    def is_clustered(self) -> bool:
        """Whether there can be other brokers."""
        return self.coordination != EMBEDDED

    @property
    def advertise_warning(self) -> str:
        """Why brokers on other machines cannot share clients with this one; empty if they can."""
        shown = self.advertise or self.grpc
        if not (self.is_clustered and self.has_broker and is_loopback(_split(shown).host)):
            return ""
        return (
            f"only clients on this machine can connect to {shown}, the address that this broker shows to the "
            "cluster: set advertise to its host:port, unless all brokers and clients are here"
        )

    @property
    def has_timers(self) -> bool:
        return "timers" in self.roles

    @property
    def shown_store(self) -> str:
        """The store's URL, without secrets."""
        return without_password(self.store)

    @property
    def shown_coordination(self) -> str:
        """The URL of the coordination service, without secrets."""
        return without_password(self.coordination)

    @property
    def tokens_file(self) -> Path:
        return self.data / "tokens.json"


def _split(address: str) -> Listener:
    host, _, port = address.rpartition(":")
    return Listener(host.strip("[]"), int(port))


# Rules between settings


def _tls_problem(missing: str, given: str) -> Rule:
    def problem(settings: NodeSettings) -> str | None:
        if getattr(settings, missing) is not None or getattr(settings, given) is None:
            return None
        return f"is missing; TLS needs it with {given}"

    return Rule((missing, given), problem)


def _client_ca_problem(settings: NodeSettings) -> str | None:
    if settings.tls_client_ca is None or settings.tls_certificate is not None:
        return None
    return "needs tls_certificate and tls_key: clients show certificates over TLS alone"


def _jwt_problem(name: str) -> Callable[[NodeSettings], str | None]:
    def problem(settings: NodeSettings) -> str | None:
        if settings.jwt.keys is None or getattr(settings.jwt, name) is not None:
            return None
        return "is missing; with jwt.keys it says which tokens of the issuer are for this node"

    return problem


def _address_problem(
    name: str, other: str, *, applies: Callable[[NodeSettings], bool] = lambda _: True
) -> Rule:
    def problem(settings: NodeSettings) -> str | None:
        address = getattr(settings, name)
        if address != getattr(settings, other) or not _split(address).port or not applies(settings):
            return None
        return f"is the same address as {other}, {address}; name another port"

    return Rule((name, other), problem)


def _has_both(settings: NodeSettings) -> bool:
    return settings.has_broker and settings.has_timers


def _frame_problem(settings: NodeSettings) -> str | None:
    limits = settings.limits
    if limits.node_bytes >= 2 * limits.frame_bytes:
        return None
    return (
        f"must be at least twice frame_bytes ({limits.frame_bytes}), not {limits.node_bytes}: one client "
        "could fill the node"
    )


def _ping_problem(settings: NodeSettings) -> str | None:
    limits = settings.limits
    if limits.ping_timeout_ms >= 2 * limits.ping_interval_ms:
        return None
    return (
        f"must be at least twice ping_interval_ms ({limits.ping_interval_ms}), not "
        f"{limits.ping_timeout_ms}: a client that pings in time would pass for gone"
    )


def _role_problem(settings: NodeSettings) -> str | None:
    if settings.is_clustered or len(settings.broker_roles) != 1:
        return None
    (role,) = settings.broker_roles
    (other,) = (each for each in BROKER_ROLES if each != role)
    return (
        f"{role} alone needs another broker as {other}, and with coordination={EMBEDDED} there is none: name "
        f"both roles, or an etcd, {SCHEMES['etcd']}"
    )


def _shared_store_problem(settings: NodeSettings) -> str | None:
    if not settings.is_clustered or scheme_of(settings.store) in POSTGRES:
        return None
    return (
        f"must be PostgreSQL with coordination={settings.shown_coordination}: the brokers of a cluster share "
        f"one store; write {STORE_SCHEMES['postgresql']}"
    )


def _advertise_problem(settings: NodeSettings) -> str | None:
    is_reachable = settings.grpc_listener.host not in ANYWHERE
    if not settings.is_clustered or settings.advertise is not None or is_reachable:
        return None
    return (
        f"is missing: clients cannot connect to {settings.grpc}; name the host:port of this broker"
    )


def _margin_problem(settings: NodeSettings) -> str | None:
    if settings.session_margin_ms < settings.session_ttl_ms:
        return None
    return f"must be less than session_ttl_ms ({settings.session_ttl_ms}), not {settings.session_margin_ms}"


_RULES = (
    Rule(("roles", "coordination"), _role_problem),
    Rule(("store", "data", "coordination"), _shared_store_problem),
    Rule(("advertise", "grpc", "coordination"), _advertise_problem),
    Rule(("session_margin_ms", "session_ttl_ms"), _margin_problem),
    _tls_problem("tls_certificate", "tls_key"),
    _tls_problem("tls_key", "tls_certificate"),
    Rule(("tls_client_ca", "tls_certificate"), _client_ca_problem),
    Rule(("jwt.issuer", "jwt.keys"), _jwt_problem("issuer")),
    Rule(("jwt.audience", "jwt.keys"), _jwt_problem("audience")),
    _address_problem("http", "grpc"),
    _address_problem("timers", "grpc", applies=_has_both),
    _address_problem("timers", "http", applies=_has_both),
    Rule(("limits.node_bytes",), _frame_problem),
    Rule(("limits.ping_timeout_ms",), _ping_problem),
)
