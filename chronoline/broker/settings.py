"""The settings of a node: one TOML file, the environment, flags, in rising order.

They are checked once, here, and never change afterwards. An error names every setting that is wrong, what is
wrong with it and what to do; it does not repeat what may hold a password, and neither does `repr`.
`docs/broker.md` has them all in a table; `chronoline config show` prints what is in force, and where it came
from.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr, ValidationError

from chronoline.broker.limits import Limits
from chronoline.broker.metrics import FAMILIES
from chronoline.broker.subscribing import MAX_CREDIT
from chronoline.core.limits import name_problem
from chronoline.settings.model import SettingsTable
from chronoline.settings.problems import Known, Problem, problems_of, refuse
from chronoline.settings.sources import Gathered, Origin, SettingPath, Sources
from chronoline.settings.types import (
    DurationMs,
    Listed,
    OptionalText,
    SizeBytes,
    Whole,
    check_address,
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
ROLES = ("overseer", "carrier")
SOURCES = Sources(prefix="CHRONOLINE_NODE_")
_MIB = 1024 * 1024
_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS
_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OWN_LABELS = {
    "cluster",
    "topic",
    "le",
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
    return Path(value).expanduser().absolute()


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
    missing = [name for name in ROLES if name not in names]
    if missing:
        raise ValueError(f"a node has all roles in this version: {', '.join(ROLES)}")
    return ROLES


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
    ping_interval_ms: DurationMs = Field(default=_LIMITS.ping_interval_ms, ge=50, le=_HOUR_MS)
    ping_timeout_ms: DurationMs = Field(default=_LIMITS.ping_timeout_ms, ge=100, le=_DAY_MS)
    clock_bound_ms: DurationMs = Field(default=_LIMITS.clock_bound_ms, ge=1, le=_DAY_MS)

    def limits(self) -> Limits:
        return Limits(**self.model_dump())


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
    roles: Annotated[Listed, AfterValidator(_roles)] = ROLES
    """What the node does."""
    cluster: Annotated[str, AfterValidator(_cluster)] = "default"
    """The label `cluster` of all metrics."""
    tags: Annotated[dict[str, str], AfterValidator(_tags)] = Field(default_factory=dict)
    """More labels of all metrics."""
    limits: LimitsTable = LimitsTable()
    tls_certificate: OptionalText = None
    """A file in PEM: the certificate, and those that lead to its authority."""
    tls_key: OptionalText = None
    """A file in PEM: the certificate's key."""
    insecure: bool = False
    """Lets others reach the node without TLS and without a token."""
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

    @property
    def grpc_listener(self) -> Listener:
        return _split(self.grpc)

    @property
    def http_listener(self) -> Listener | None:
        return _split(self.http) if self.http else None

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


_KNOWN = Known(owner="a node", tables={(): NodeSettings, ("limits",): LimitsTable})


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
    limits = settings.limits
    if limits.ping_timeout_ms < 2 * limits.ping_interval_ms:
        yield Problem(
            ("limits", "ping_timeout_ms"),
            f"must be at least twice ping_interval_ms ({limits.ping_interval_ms}), not "
            f"{limits.ping_timeout_ms}: a client that pings in time would pass for gone",
        )
