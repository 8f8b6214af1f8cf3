"""Checks of what `chronoline up` would use: settings, folder, store, etcd, certificates, tokens, ports."""

from __future__ import annotations

import asyncio
import os
import stat
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from chronoline.cli.doctor.checks import REACH, Check, Diagnosis, ok, problem, warning
from chronoline.cli.doctor.machine import check_disk, check_extras, open_finding
from chronoline.cli.doctor.store import check_store
from chronoline.cli.output import count_of
from chronoline.core.addresses import is_loopback
from chronoline.core.errors import CoordinationUnavailable, InvalidInput
from chronoline.runtime.certificates import valid_spans
from chronoline.runtime.clock import SystemClock
from chronoline.runtime.store_url import POSTGRES, scheme_of, sqlite_path
from chronoline.runtime.timestamps import show_moment

if TYPE_CHECKING:
    from chronoline.broker.auth import Door
    from chronoline.coordination.contract import View
    from chronoline.node.settings import NodeSettings

_SOON = timedelta(days=14)
_SLOW_ETCD_MS = 100.0
_FEW_DESCRIPTORS = 4_096
_OWN_PARTS = 3.0


def node_checks(settings: NodeSettings) -> Iterator[Check]:
    """The checks that these settings ask for."""
    yield Check("settings", lambda: check_settings(settings))
    yield Check("data folder", lambda: check_folder(settings))
    yield Check("descriptors", lambda: check_descriptors(settings))
    yield Check("addresses", lambda: check_addresses(settings))
    yield Check("access", lambda: check_access(settings))
    if settings.audit_file is not None:
        yield Check("audit_file", partial(check_audit_file, Path(settings.audit_file)))
    files = {
        "certificate": settings.tls_certificate,
        "tls_client_ca": settings.tls_client_ca,
        "jwt.ca": settings.jwt.ca,
        "replication.ca": settings.replication.ca,
    }
    for name, file in files.items():
        if file is not None:
            yield Check(name, partial(check_certificate, Path(file)))
    for log in settings.logs:
        if "://" not in log or log.startswith("file:"):
            yield Check("log", partial(check_log, log))
    if settings.has_timers and settings.replication.nodes is not None:
        nodes = Path(settings.replication.nodes)
        yield Check("replication.nodes", lambda: check_nodes(settings, nodes))
    if settings.has_broker:
        bound_ms = settings.limits.clock_bound_ms
        yield from store_checks(settings.store, clock_bound_ms=bound_ms)
    if settings.is_clustered:
        yield Check("etcd", lambda: check_etcd(settings))


def store_checks(url: str, *, clock_bound_ms: int) -> Iterator[Check]:
    """The checks of a store, and of the disk of one in a file."""
    if scheme_of(url) == "sqlite":
        folder = Path(sqlite_path(url)).parent
        yield Check("disk of the store", lambda: check_disk(folder, "the store", holds_sqlite=True))
    yield Check("store", lambda: check_store(url, clock_bound_ms=clock_bound_ms))


def check_folder(settings: NodeSettings) -> Diagnosis:
    """Checks the folder of a node. A broker on PostgreSQL only reads tokens there, as from a Secret."""
    if settings.has_timers or scheme_of(settings.store) not in POSTGRES:
        found = check_disk(settings.data, "the node's folder")
        return (open_finding(settings.data) if found.state == "ok" else None) or found
    return ok(f"only tokens are read in {str(settings.data)!r}")


# Settings


def check_settings(settings: NodeSettings) -> Diagnosis:
    """Checks for libraries that the settings need, and for settings that allow a start but contradict."""
    needed = {"server": "a node runs here"}
    if scheme_of(settings.store) in POSTGRES:
        needed["postgres"] = "the store is PostgreSQL"
    if settings.is_clustered:
        needed["cluster"] = "the brokers meet in etcd"
    if settings.jwt.keys is not None:
        needed["jwt"] = "jwt.keys is set"
    if settings.traces is not None:
        needed["otel"] = "traces is set"
    found = check_extras(needed)
    if found.state != "ok":
        return found
    doubts = list(_contradictions(settings))
    if doubts:
        words, remedy = doubts[0]
        more = f" (and {len(doubts) - 1} more)" if len(doubts) > 1 else ""
        return warning(words + more, remedy)
    return ok(f"roles {', '.join(settings.roles)}; no contradictions")


def _contradictions(settings: NodeSettings) -> Iterator[tuple[str, str]]:
    if settings.insecure and not _is_open(settings):
        yield (
            "insecure is set, and the node listens on this machine alone",
            "remove it: it would silently apply once another address is set",
        )
    if settings.insecure and _is_open(settings):
        yield (
            "insecure is set: everybody who reaches the node may read, change and delete everything",
            "set tls_certificate and tls_key, and make tokens: `chronoline token create NAME`",
        )
    if settings.advertise_warning:
        yield settings.advertise_warning.partition(": ")[::2]
    if settings.is_clustered and settings.name is None:
        yield (
            "name is not set: the broker has another one after each start",
            "set name, so that logs and `chronoline cluster` can be followed over restarts",
        )
    replication = settings.replication
    if settings.has_timers and replication.nodes is None and replication.copies > 1:
        yield (
            f"replication.copies is {replication.copies}, and replication.nodes is not set: a lone node "
            "can keep one",
            "name the file with the nodes, or set copies = 1",
        )
    if settings.has_timers and replication.nodes is not None and replication.copies == 1:
        yield (
            "replication.copies is 1: a timer is answered as soon as one node has it",
            "set copies = 2, so that a node may be lost at any moment",
        )
    if settings.clock == "store" and scheme_of(settings.store) not in POSTGRES:
        yield "clock is store, and this store has no clock of its own", "set clock = system"
    if settings.patience_ms < settings.limits.clock_bound_ms:
        yield (
            f"patience_ms ({settings.patience_ms:,}) is less than limits.clock_bound_ms "
            f"({settings.limits.clock_bound_ms:,})",
            "raise patience_ms: changes are answered as unknown before a clock counts as wrong",
        )


def _is_open(settings: NodeSettings) -> bool:
    return any(not is_loopback(each.host) for each in settings.listeners.values())


def check_descriptors(settings: NodeSettings) -> Diagnosis:
    """Checks that the process may open as many files as its settings promise to clients."""
    from chronoline.runtime.descriptors import raise_limit  # noqa: PLC0415 - it has no use elsewhere

    most = raise_limit()
    wanted, possible = settings.shares(most), settings.shares(most, even_if_set=True)
    words = f"{most:,} open files: {possible.connections:,} connections, {possible.calls:,} calls"
    remedy = "raise the limit of open files: ulimit -n 65536, or LimitNOFILE=65536 of systemd"
    if wanted != possible:
        return problem(
            f"limits.connections is {wanted.connections:,} and callbacks.in_all {wanted.calls:,}, and "
            f"{most:,} open files suffice for {possible.connections:,} and {possible.calls:,}",
            remedy,
        )
    return warning(words, remedy) if most < _FEW_DESCRIPTORS else ok(words)


def check_addresses(settings: NodeSettings) -> Diagnosis:
    """Checks that the listeners' addresses exist and are free."""
    from chronoline.node.process import check_free  # noqa: PLC0415 - gRPC is slow to import

    taken = []
    for name, listener in settings.listeners.items():
        try:
            check_free(listener, f"--{name}")
        except InvalidInput as error:
            if "taken" not in str(error):
                return problem(str(error))
            taken.append(f"{name} {listener.at(listener.port)}")
    if taken:
        return warning(
            f"something listens already: {', '.join(taken)}",
            "all is well if it is this node; `chronoline doctor --address …` looks at it",
        )
    shown = [each.at(each.port) for each in settings.listeners.values()]
    return ok(f"{', '.join(shown)}: free")


def check_nodes(settings: NodeSettings, path: Path) -> Diagnosis:
    """Checks the list of the timers' nodes: a node that is not in it does not start."""
    from chronoline.timers.cluster import read_membership  # noqa: PLC0415 - a broker has no use for it

    listener = settings.timers_listener
    me = settings.replication.address or listener.at(listener.port)
    everybody = read_membership(path, me).everybody
    return ok(f"{path.name} names {count_of(len(everybody), 'node')}, and {me} is one of them")


# Access


def check_access(settings: NodeSettings) -> Diagnosis:
    """Checks tokens and the keys of JWTs, and that a node which others can reach has TLS and a token."""
    from chronoline.broker.auth import Shown  # noqa: PLC0415 - its libraries are optional
    from chronoline.broker.tokens import Tokens  # noqa: PLC0415 - see above
    from chronoline.node.auth import open_door  # noqa: PLC0415 - see above

    door = open_door(settings)  # raises what `up` would
    door.principal(Shown("Bearer -.-.-"))  # raises if the keys of JWTs are not there
    file = settings.tokens_file
    records = Tokens(file).records()
    if not records:
        return ok(_without_tokens(settings, door))
    found = file.stat()
    mode = stat.S_IMODE(found.st_mode)
    # The owner needs no rights of the group; another user can have its right by the group alone (Kubernetes).
    theirs = stat.S_IRWXG if found.st_uid == os.geteuid() else stat.S_IWGRP | stat.S_IXGRP
    if mode & (theirs | stat.S_IRWXO):
        return problem(
            f"others may read or write {file.name} (mode {mode:o})", f"chmod 600 {str(file)!r}"
        )
    now_ms = SystemClock().now_ms()
    expired = [each.name for each in records if each.is_expired(now_ms)]
    soon_ms = now_ms + round(_SOON / timedelta(milliseconds=1))
    soon = [each for each in records if each.name not in expired and each.is_expired(soon_ms)]
    if soon:
        moment = show_moment(min(each.expires_ms or 0 for each in soon))
        return warning(
            f"{len(soon)} of {len(records)} tokens expire soon, {soon[0].name!r} at {moment}",
            "give its clients a new one: `chronoline token create NAME`",
        )
    if expired:
        return warning(
            f"{len(expired)} of {len(records)} tokens have expired, such as {expired[0]!r}",
            f"remove it, if nobody waits for it: `chronoline token revoke {expired[0]}`",
        )
    return ok(f"{count_of(len(records), 'token')}, none expires within {_SOON.days} days")


def _without_tokens(settings: NodeSettings, door: Door) -> str:
    if door.asks:
        return f"no tokens: clients need a JWT of {settings.jwt.issuer}"
    if door.tls is not None and door.tls.requires_certificates:
        return "no tokens: every client with a certificate of tls_client_ca may do everything"
    return "no tokens: every client on this machine may do everything"


def check_audit_file(path: Path) -> Diagnosis:
    """Checks that the node can write the audit trail, or make its file."""
    if path.is_dir():
        return problem(f"{str(path)!r} is a folder", "name a file")
    if not path.parent.is_dir():
        return problem(
            f"the folder {str(path.parent)!r} is not there, so the node does not start",
            "make it, or name another file",
        )
    there = path if path.exists() else path.parent
    if not os.access(there, os.W_OK):
        return problem(
            f"this user cannot write {str(there)!r}, so the node does not start",
            "name another file, or give this user the right",
        )
    return open_finding(path) or ok(f"{str(path)!r} can be written")


def check_log(url: str) -> Diagnosis:
    """Checks that the folder of a log is not open to every user of the machine."""
    folder = Path(urlsplit(url).path if url.startswith("file:") else url)
    return open_finding(folder) or ok(f"{str(folder)!r} is not open to other users")


def check_certificate(path: Path) -> Diagnosis:
    """Checks that the certificates of a file are valid now, and will be for a while."""
    now = datetime.now(UTC)
    spans = valid_spans(path)
    begin, end = max(first for first, _ in spans), min(last for _, last in spans)
    shown = f"{path.name}: valid until {end:%Y-%m-%d %H:%M} UTC"
    if now >= end:
        return problem(
            f"{path.name} has expired, on {end:%Y-%m-%d %H:%M} UTC", "replace it, and its key"
        )
    if now < begin:
        return problem(
            f"{path.name} is valid from {begin:%Y-%m-%d %H:%M} UTC on",
            "set this machine's clock, or use another certificate",
        )
    if now + _SOON >= end:
        return warning(shown, "replace it in time")
    return ok(shown)


# etcd


def check_etcd(settings: NodeSettings) -> Diagnosis:
    """Checks that etcd answers, that its clock agrees, and that it names this store."""
    try:
        return asyncio.run(_look_at_etcd(settings))
    except CoordinationUnavailable as error:
        return problem(str(error), REACH)


async def _look_at_etcd(settings: NodeSettings) -> Diagnosis:
    from chronoline.coordination.cluster_store import STORE  # noqa: PLC0415 - its library is optional
    from chronoline.coordination.factory import open_coordination  # noqa: PLC0415 - see above
    from chronoline.coordination.membership import BROKERS  # noqa: PLC0415 - see above

    async with open_coordination(settings.coordination) as coordination:
        begun = time.monotonic()
        brokers = await coordination.read(BROKERS)
        took_ms = (time.monotonic() - begun) * 1000
        named = await coordination.read(STORE)
        offset = await coordination.clock_offset()
    words = f"{settings.shown_coordination} answers, {len(brokers.entries)} brokers are there"
    if offset is not None:
        off_ms = abs(offset.ahead_ms) - offset.error_ms
        if off_ms > settings.limits.clock_bound_ms:
            return problem(
                f"{words}; its clock is {offset.ahead_ms:+,.0f} ms off this machine's",
                "set the clocks of both machines",
            )
    other = await asyncio.to_thread(_other_store, settings, named)
    if other:
        return problem(
            f"{words}; {other}", "name that store, or another prefix (docs/operations.md)"
        )
    if took_ms > _SLOW_ETCD_MS:
        return warning(
            f"{words}; an answer took {took_ms:.0f} ms",
            "a session lasts session_ttl_ms, with a keep-alive every quarter: use a faster disk for etcd",
        )
    return ok(f"{words}; an answer took {took_ms:.0f} ms")


def _other_store(settings: NodeSettings, named: View) -> str:
    """Why the cluster's store is another one than that of the settings; empty if it is the same."""
    from chronoline.coordination.cluster_store import is_named, is_store  # noqa: PLC0415 - see above
    from chronoline.databases.postgres import split_notify  # noqa: PLC0415 - see above
    from chronoline.databases.postgres_facts import read_identity  # noqa: PLC0415 - see above

    if not is_named(named):
        return ""
    address, _ = split_notify(settings.store)
    identity = read_identity(address, timeout_s=_OWN_PARTS)
    if identity is None or is_store(named, identity):
        return ""
    return "the cluster of this prefix uses another store"
