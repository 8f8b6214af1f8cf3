"""The settings of a node: one TOML file, the environment, flags, in rising order.

They are checked once, here, and never change afterwards. An error names every setting that is wrong, what is
wrong with it and what to do; it does not repeat what may hold a password, and neither does `repr`.
`docs/broker.md` has them all in a table; `chronoline config show` prints what is in force, and where it came
from.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr, ValidationError

from chronoline.broker.limits import Limits
from chronoline.broker.metrics import FAMILIES
from chronoline.broker.subscription import MAX_CREDIT
from chronoline.callbacks.address_guard import LOOPBACK
from chronoline.core.addresses import check_address, is_loopback
from chronoline.core.limits import name_problem
from chronoline.core.urls import url_problem
from chronoline.runtime.descriptors import Shares, share_out
from chronoline.runtime.settings.model import SettingsTable
from chronoline.runtime.settings.problems import Known, Problem, problems_of, refuse
from chronoline.runtime.settings.sources import Gathered, Origin, SettingPath, Sources
from chronoline.runtime.settings.types import (
    DurationMs,
    Listed,
    OptionalText,
    Secret,
    SizeBytes,
    Whole,
    file_store,
    lasting_store,
    scheme_of,
    shown,
    without_password,
)
from chronoline.stores.contract import MAX_BATCH

DEFAULT_DATA = "chronoline-data"
DEFAULT_GRPC = "127.0.0.1:7400"
DEFAULT_HTTP = "127.0.0.1:7480"
DEFAULT_TIMERS = "127.0.0.1:7253"
BROKER_ROLES = ("overseer", "carrier")
ROLES = (*BROKER_ROLES, "timers")
SOURCES = Sources(prefix="CHRONOLINE_NODE_")
_MIB = 1024 * 1024
_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS
_PEERS = 16
"""The number of other nodes for which descriptors are kept free."""
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,252})|\[[0-9A-Fa-f:.]+\]")
_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OWN_LABELS = {
    "cluster",
    "topic",
    "le",
    # Of the timers.
    *("node", "tag", "outcome", "method", "status", "reason", "resource"),
    *(each for one in FAMILIES.values() for each in one.labels),
}
_LIMITS = Limits()


class Listener(NamedTuple):
    """Where connections are taken. Port 0 is any that is free."""

    host: str
    """Without the brackets of IPv6."""
    port: int

    @property
    def bracketed(self) -> str:
        """The host as it stands before a port."""
        return f"[{self.host}]" if ":" in self.host else self.host


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
    """`memory:` is fine: a node is one process. It is gone with it."""
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
    missing = [name for name in BROKER_ROLES if name not in names]
    if missing and len(missing) < len(BROKER_ROLES):
        raise ValueError(
            f"a broker has both of its roles in this version: {', '.join(BROKER_ROLES)}"
        )
    return tuple(name for name in ROLES if name in names)


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


def _hosts(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if not _HOST.fullmatch(name):
            raise ValueError(
                f"{shown(name)} is no name of a host; write timers.example, without scheme and port"
            )
    return names


def _networks(texts: tuple[str, ...]) -> tuple[str, ...]:
    for text in texts:
        try:
            ipaddress.ip_network(text)
        except ValueError:
            raise ValueError(f"{shown(text)} is no network; write 10.0.0.0/8 or fd00::/8") from None
    return texts


# Tables


class LimitsTable(SettingsTable):
    """How much a node takes; the fields of `broker.limits.Limits`, which says what each is."""

    frame_bytes: SizeBytes = Field(default=_LIMITS.frame_bytes, ge=64 * 1024, le=64 * _MIB)
    batch: Whole = Field(default=_LIMITS.batch, ge=1, le=MAX_BATCH)
    credit: Whole = Field(default=_LIMITS.credit, ge=1, le=MAX_CREDIT)
    in_flight_bytes: SizeBytes = Field(
        default=_LIMITS.in_flight_bytes, ge=64 * 1024, le=1024 * _MIB
    )
    connections: Whole = Field(default=_LIMITS.connections, ge=1, le=100_000)
    """Unless it is set, fewer where the process may not open as many files; see `NodeSettings.shares`."""
    node_bytes: SizeBytes = Field(default=_LIMITS.node_bytes, ge=_MIB, le=1024 * 1024 * _MIB)
    node_requests: Whole = Field(default=_LIMITS.node_requests, ge=10, le=1_000_000)
    ping_interval_ms: DurationMs = Field(default=_LIMITS.ping_interval_ms, ge=50, le=_HOUR_MS)
    ping_timeout_ms: DurationMs = Field(default=_LIMITS.ping_timeout_ms, ge=100, le=_DAY_MS)
    clock_bound_ms: DurationMs = Field(default=_LIMITS.clock_bound_ms, ge=1, le=_DAY_MS)

    def limits(self) -> Limits:
        return Limits(**self.model_dump())


class ReplicationTable(SettingsTable):
    """How the nodes that keep timers know each other; one alone needs none of it."""

    nodes: OptionalText = None
    """A file in TOML that lists them: staying, joining, leaving."""
    address: OptionalText = None
    """Under which the others know this node; `timers` if it is not said."""
    copies: Whole = Field(default=1, ge=1, le=32)
    """So many nodes have a timer when it is answered; those that can be reached get it in any case."""
    timeout_ms: DurationMs = Field(default=1_000, ge=50, le=_HOUR_MS)
    """A node that does not answer for so long is away."""
    most_timers: Whole = Field(default=5_000_000, ge=1, le=100_000_000)
    """A node takes no more."""
    clock_bound_ms: DurationMs = Field(default=60_000, ge=1_000, le=_DAY_MS)
    """A record whose version is further ahead of this node's wall clock is refused."""
    token: Secret = None
    """What the node says to pass the doors of the others. A secret: in the file or the environment."""
    ca: OptionalText = None
    """A file in PEM: the authority of the others' certificates, if it is not one of the system's."""


class CallbacksTable(SettingsTable):
    """How other people's HTTP servers are called."""

    allow: Annotated[Listed, AfterValidator(_networks)] = LOOPBACK
    """Networks that may be called besides the public internet; see `NodeSettings.may_call`."""
    timeout_ms: DurationMs = Field(default=2_000, ge=10, le=_HOUR_MS)
    """An answer that takes longer counts as a failure."""
    for_each_host: Whole = Field(default=64, ge=1, le=10_000)
    """So many calls to one host are under way at a time."""
    in_all: Whole = Field(default=1_000, ge=1, le=100_000)
    """So many calls are under way at a time."""
    attempts: Whole = Field(default=10, ge=1, le=1_000)
    """So often a callback is tried."""
    first_wait_ms: DurationMs = Field(default=500, ge=1, le=_DAY_MS)
    """Between the first attempt and the second; then twice as long each time."""
    longest_wait_ms: DurationMs = Field(default=60_000, ge=1, le=_DAY_MS)
    """Between two attempts."""
    missed: Literal["once", "skip"] = "once"
    """Pops of a timer that were missed are made up for by one call, or by none."""
    secret: Secret = None
    """Signs calls by the Standard Webhooks specification: whsec_… A secret."""
    dead_letters: Annotated[OptionalText, AfterValidator(_called)] = None
    """A URI that is told of callbacks that failed for good."""


class NodeSettings(SettingsTable):
    """How a node of the broker behaves."""

    data: Annotated[Path, BeforeValidator(_folder)] = Path(DEFAULT_DATA)
    """The folder of a node: its tokens and, unless told otherwise, its store."""
    store: Annotated[str, AfterValidator(_store)] = Field(
        default_factory=lambda given: file_store(given.get("data", Path()) / "timeline.db")
    )
    """Where messages wait. SQLite serves one machine; several nodes share PostgreSQL."""
    grpc: Annotated[str, AfterValidator(_listener)] = DEFAULT_GRPC
    """host:port for the SDK and the command line."""
    http: Annotated[str, AfterValidator(_listener_or_none)] = DEFAULT_HTTP
    """host:port for everybody else: the API, health and metrics. Empty: nowhere."""
    timers: Annotated[str, AfterValidator(_listener)] = DEFAULT_TIMERS
    """host:port for timers, where the node has that role."""
    roles: Annotated[Listed, AfterValidator(_roles)] = BROKER_ROLES
    """What the node does: a broker (overseer and carrier), timers, or both."""
    cluster: Annotated[str, AfterValidator(_cluster)] = "default"
    """The label `cluster` of all metrics."""
    tags: Annotated[dict[str, str], AfterValidator(_tags)] = Field(default_factory=dict)
    """More labels of all metrics."""
    limits: LimitsTable = LimitsTable()
    replication: ReplicationTable = ReplicationTable()
    callbacks: CallbacksTable = CallbacksTable()
    tls_certificate: OptionalText = None
    """A file in PEM: the certificate, and those that lead to its authority."""
    tls_key: OptionalText = None
    """A file in PEM: the certificate's key."""
    insecure: bool = False
    """Lets others reach the node without TLS and without a token."""
    allowed_hosts: Annotated[Listed, AfterValidator(_hosts)] = ()
    """Names besides localhost by which a node on loopback may be asked over HTTP without a token."""
    log_format: Literal["text", "json"] = "text"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    patience_ms: DurationMs = Field(default=10_000, ge=100, le=_HOUR_MS)
    """So long the store may take; then a change is answered as unknown."""
    _gathered: Gathered = PrivateAttr(default_factory=Gathered)

    @classmethod
    def load(
        cls,
        path: str | Path | None = None,
        environ: Mapping[str, str] | None = None,
        flags: Mapping[str, object] | None = None,
    ) -> Self:
        """The settings of a file, of the environment and of flags; the latter win, setting by setting.

        In the environment `grpc` is `CHRONOLINE_NODE_GRPC`, and `batch` of `[limits]` is
        `CHRONOLINE_NODE_LIMITS__BATCH`. A flag is named as in the file, with a dot between table and setting;
        one that is None was not given. Raises `InvalidInput`, which names everything that is wrong.
        """
        gathered = SOURCES.gather(path, os.environ if environ is None else environ, flags or {})
        try:
            settings = cls.model_validate(gathered.table)
        except ValidationError as error:
            problems = problems_of(error.errors(include_url=False), _KNOWN)
            raise refuse(problems, gathered) from None
        if problems := list(_cross_problems(settings)):
            raise refuse(problems, gathered)
        settings._gathered = gathered
        return settings

    def origin(self, path: SettingPath) -> Origin | None:
        """What gave a setting, not the table around it; None if nothing did, and it is the default."""
        return self._gathered.origins.get(path)

    def variables(self) -> dict[str, str]:
        """What was set, secrets too, as an environment for another node, in place of what it has of this."""
        return SOURCES.variables(self._gathered)

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
    def may_call(self) -> tuple[str, ...]:
        """Networks besides the public internet: unless told, loopback if nobody else can reach the node."""
        if "allow" in self.callbacks.model_fields_set:
            return self.callbacks.allow
        listeners = [self.grpc_listener, self.http_listener] if self.has_broker else []
        listeners += [self.timers_listener] if self.has_timers else []
        only_here = all(each is None or is_loopback(each.host) for each in listeners)
        return self.callbacks.allow if only_here else ()

    def shares(self, descriptors: int, *, even_if_set: bool = False) -> Shares:
        """How many connections and calls there may be with a number of descriptors; as set, if they are.

        With `even_if_set`, what is set counts only as far as there are descriptors for it.
        """
        listeners = [self.grpc_listener, self.http_listener] if self.has_broker else []
        listeners += [self.timers_listener] if self.has_timers else []
        found = share_out(
            descriptors,
            listeners=sum(each is not None for each in listeners),
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
        return BROKER_ROLES[0] in self.roles

    @property
    def has_timers(self) -> bool:
        return "timers" in self.roles

    @property
    def shown_store(self) -> str:
        """Its URL, without what may be secret."""
        return without_password(self.store)

    @property
    def tokens_file(self) -> Path:
        return self.data / "tokens.json"

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        for name, value in super().__repr_args__():
            yield name, without_password(value) if name == "store" else value


_KNOWN = Known(
    owner="a node",
    tables={
        (): NodeSettings,
        ("limits",): LimitsTable,
        ("replication",): ReplicationTable,
        ("callbacks",): CallbacksTable,
    },
)


def _split(address: str) -> Listener:
    host, _, port = address.rpartition(":")
    return Listener(host.strip("[]"), int(port))


def _cross_problems(settings: NodeSettings) -> Iterator[Problem]:
    """What is wrong between settings that are fine by themselves."""
    if (settings.tls_certificate is None) != (settings.tls_key is None):
        given, other = ("tls_key", "tls_certificate")[:: 1 if settings.tls_key else -1]
        yield Problem((other,), f"is missing, and TLS needs it beside {given}")
    if settings.grpc == settings.http and settings.grpc_listener.port:
        yield Problem(("http",), f"is the same address as grpc, {settings.grpc}; name another port")
    if settings.has_broker and settings.has_timers and settings.timers_listener.port:
        for name in ("grpc", "http"):
            if settings.timers == getattr(settings, name):
                yield Problem(
                    ("timers",),
                    f"is the same address as {name}, {settings.timers}; name another port",
                )
    limits = settings.limits
    if limits.node_bytes < 2 * limits.frame_bytes:
        yield Problem(
            ("limits", "node_bytes"),
            f"must be at least twice frame_bytes ({limits.frame_bytes}), not {limits.node_bytes}: one client "
            "could fill the node",
        )
    if limits.ping_timeout_ms < 2 * limits.ping_interval_ms:
        yield Problem(
            ("limits", "ping_timeout_ms"),
            f"must be at least twice ping_interval_ms ({limits.ping_interval_ms}), not "
            f"{limits.ping_timeout_ms}: a client that pings in time would pass for gone",
        )
