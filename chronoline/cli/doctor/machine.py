"""Checks of the machine and of the installation: Python, versions, bytecode, clock, disk."""

from __future__ import annotations

import ctypes
import os
import platform
import shlex
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import cache_from_source, find_spec
from pathlib import Path

import chronoline
from chronoline.cli.doctor.checks import Check, Diagnosis, ok, problem, warning
from chronoline.core.version import VERSION
from chronoline.runtime.private_files import is_open_to_others

_MIB = 1024 * 1024
_LEAST_FREE = 64 * _MIB
"""SQLite's store refuses messages a little below this."""
_LOW_FREE = 1024 * _MIB
_LOW_SHARE = 0.05
_FLUSHES = 9
_SLOW_FLUSH_MS = 25.0
_UNSYNCHRONIZED = 5
"""TIME_ERROR of adjtimex(2)."""
_TIMEX_BYTES = 512
_REMOTE = {
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "9p",
    "fuse.sshfs",
    "ceph",
    "glusterfs",
    "lustre",
}
"""File systems over a network, on which SQLite's locks do not hold."""
_PARTS = {
    "server": "fastapi uvicorn aiohttp pydantic prometheus_client",
    "postgres": "psycopg psycopg_pool",
    "cluster": "aetcd",
    "kafka": "confluent_kafka",
    "spark": "pyspark pyarrow pandas",
    "aws": "boto3 obstore",
    "jwt": "jwt cryptography",
    "otel": "opentelemetry",
}
"""The modules of each extra that a node or a pipe imports."""


def machine_checks() -> Iterator[Check]:
    yield Check("installation", check_installation)
    yield Check("bytecode", check_bytecode)
    yield Check("clock", check_clock)


def check_installation() -> Diagnosis:
    """Checks that the version is the installed one, and that the generated wire loads."""
    words = f"chronoline {VERSION}, Python {platform.python_version()}"
    try:
        import_module("grpc")
        import_module("chronoline.wire.v1.chronoline_pb2")
    except Exception as error:  # a wrong protobuf or gRPC raises errors of many kinds
        first = str(error).strip().splitlines()
        return problem(
            f"{words}: gRPC does not load: {first[0] if first else type(error).__name__}",
            "install it anew: pip install --force-reinstall chronoline",
        )
    try:
        installed = version("chronoline")
    except PackageNotFoundError:
        return warning(f"{words}, not installed as a distribution", "pip install chronoline")
    if installed != VERSION:
        return problem(
            f"{words} is imported from {Path(chronoline.__file__).parent}, and pip installed {installed}",
            "remove one of the two, or fix PYTHONPATH",
        )
    extras = [name for name in _PARTS if has_extra(name)]
    return ok(f"{words}, extras: {', '.join(extras) or 'none'}")


def has_extra(name: str) -> bool:
    return not _missing(_PARTS[name].split())


def check_extra(extra: str, why: str) -> Diagnosis:
    """Checks that the libraries of an extra can be imported."""
    return check_extras({extra: why})


def check_extras(needed: Mapping[str, str]) -> Diagnosis:
    """Checks for the libraries of extras, each with the reason why it is needed; one command brings all."""
    missing = {extra: _missing(_PARTS[extra].split()) for extra in needed}
    lacking = [extra for extra, modules in missing.items() if modules]
    if lacking:
        modules = [each for extra in lacking for each in missing[extra]]
        are = "is" if len(modules) == 1 else "are"
        return problem(
            f"{', '.join(needed[extra] for extra in lacking)}, and {', '.join(modules)} {are} not installed",
            f"pip install 'chronoline[{','.join(lacking)}]'",
        )
    return ok(f"{', '.join(needed.values())}; its libraries are installed")


def _missing(modules: list[str]) -> list[str]:
    return [name for name in modules if not _is_there(name)]


def _is_there(module: str) -> bool:
    """Whether a module can be found; importing all of them would take seconds."""
    try:
        return find_spec(module) is not None
    except ValueError:  # it is marked as missing
        return False


def check_bytecode() -> Diagnosis:
    """Checks that modules are not compiled at each start."""
    compiled = Path(cache_from_source(chronoline.__file__))
    if compiled.exists():
        return ok("modules are compiled")
    remedy = (
        f"compile them once: {sys.executable} -m compileall -q {Path(chronoline.__file__).parent}"
    )
    if sys.dont_write_bytecode:
        remedy = f"unset PYTHONDONTWRITEBYTECODE, or {remedy}"
    return warning("modules are compiled at each start, which more than doubles its time", remedy)


def check_clock() -> Diagnosis:
    """Checks that the system synchronizes its clock, by the kernel's own word."""
    now = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    state = _clock_state()
    if state is None:
        return ok(f"{now}; this system does not say whether its clock is synchronized")
    if state == _UNSYNCHRONIZED:
        return warning(
            f"{now}; the system's clock is not synchronized",
            "run chrony or another NTP client: messages are due by this clock",
        )
    return ok(f"{now}, synchronized")


def _clock_state() -> int | None:
    """The answer of adjtimex(2) on Linux; None elsewhere, and where it is not allowed."""
    try:
        adjtimex = ctypes.CDLL(None, use_errno=True).adjtimex
    except (AttributeError, OSError):
        return None
    state = adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))  # all modes off: it only reads
    return None if state < 0 else int(state)


# Disk


def check_disk(folder: Path, what: str, *, holds_sqlite: bool = False) -> Diagnosis:
    """Checks rights, room, the kind of file system and the time of a flush. It leaves no file behind."""
    there = next(each for each in (folder, *folder.parents) if each.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        return problem(
            f"{str(there)!r} is no folder that this user can write",
            f"name another folder for {what}, or give this user the right",
        )
    kind = _file_system(there)
    if holds_sqlite and kind in _REMOTE:
        return problem(
            f"{str(there)!r} is on {kind}: SQLite's locks do not hold over a network",
            "use a local disk, or PostgreSQL",
        )
    disk = shutil.disk_usage(there)
    room = f"{_size(disk.free)} of {_size(disk.total)} are free for {what} in {str(there)!r}"
    if disk.free < _LEAST_FREE:
        return problem(room, "free some disk: new messages will be refused")
    if disk.free < min(_LOW_FREE, disk.total * _LOW_SHARE):
        return warning(room, "free some disk, or move it")
    return _flush_finding(room, _flush_ms(there))


def open_finding(*paths: Path) -> Diagnosis | None:
    """A finding for files, or folders with files, that every user of this machine can read or write."""
    found = [path for path in paths if is_open_to_others(path)]
    if not found:
        return None
    mode = 700 if found[0].is_dir() else 600
    names = shlex.join(map(str, found))
    return warning(f"every user of this machine can read {names}", f"chmod {mode} {names}")


def _flush_finding(room: str, flush_ms: float) -> Diagnosis:
    if flush_ms > _SLOW_FLUSH_MS:
        return warning(
            f"{room}; a flush takes {flush_ms:.0f} ms",
            "each commit waits for a flush: use a faster disk",
        )
    return ok(f"{room}; a flush takes {flush_ms:.1f} ms")


def _flush_ms(folder: Path) -> float:
    """The median time of writing a page and flushing it."""
    taken = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(_FLUSHES):
            begun = time.monotonic()
            file.write(b"\0" * 4_096)
            file.flush()
            os.fsync(file.fileno())
            taken.append((time.monotonic() - begun) * 1000)
    return statistics.median(taken)


def _file_system(folder: Path) -> str:
    """The kind of file system of a folder, by Linux' list of mounts; "" if unknown."""
    try:
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    except OSError:
        return ""
    here = str(folder.resolve())
    around = [
        (len(where), kind)
        for _, where, kind, *_ in mounts
        if here == where or here.startswith(where.rstrip("/") + "/")
    ]
    return max(around)[1] if around else ""


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:  # noqa: PLR2004 - the step between units
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} TiB"
