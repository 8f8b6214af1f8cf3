"""The options with which a node is set: they win over environment and file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from chronoline.cli.sharing import default, sharing
from chronoline.core.errors import InvalidInput
from chronoline.node.settings import (
    BROKER_ROLES,
    DEFAULT_DATA,
    DEFAULT_GRPC,
    DEFAULT_HTTP,
    DEFAULT_TIMERS,
    ROLES,
    NodeSettings,
)

_TABLES = {
    "limits": "batch",
    "tags": "rack",
    "replication": "nodes",
    "callbacks": "allow",
}
"""What is no setting, but has such as these in it."""
_IN_THE_FOLDER = default("SQLite in the folder")
_OF_A_BROKER = default(",".join(BROKER_ROLES))
_TEXT = default("text")


class LogFormat(StrEnum):
    """How a node logs."""

    text = "text"
    json = "json"


Config = Annotated[
    Path | None,
    typer.Option("--config", "-c", metavar="FILE", help="The settings, as TOML."),
]
Data = Annotated[
    str | None,
    typer.Option(
        metavar="DIR", help=f"The node's folder: its tokens and its store. {default(DEFAULT_DATA)}"
    ),
]
StoreUrl = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        help=f"Where messages wait: sqlite:///… or postgresql://… {_IN_THE_FOLDER}",
    ),
]
Grpc = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT", help=f"For the SDK and these commands. {default(DEFAULT_GRPC)}"
    ),
]
Http = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help=f"For the HTTP API, health and metrics; empty for none. {default(DEFAULT_HTTP)}",
    ),
]
Roles = Annotated[
    str | None,
    typer.Option(metavar="ROLE,…", help=f"What it does: {', '.join(ROLES)}. {_OF_A_BROKER}"),
]
Timers = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT", help=f"For timers, with that role. {default(DEFAULT_TIMERS)}"
    ),
]
TlsCertificate = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="TLS: the certificate, and those above it, in PEM."),
]
TlsKey = Annotated[
    str | None, typer.Option(metavar="FILE", help="TLS: the certificate's key, in PEM.")
]
Insecure = Annotated[
    bool,
    typer.Option(
        "--insecure",
        help="Let others reach it without TLS and without a token: they can read, change and delete "
        "everything.",
    ),
]
LogFormatOption = Annotated[
    LogFormat | None,
    typer.Option(
        "--log-format",
        help=f"Logs for people, or a JSON object in each line. {_TEXT}",
        show_default=False,
    ),
]
Setting = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="NAME=VALUE", help="Any other setting, such as limits.connections=200."
    ),
]


def load(  # noqa: PLR0913 - the options of a command
    config: Config = None,
    *,
    data: Data = None,
    store: StoreUrl = None,
    grpc: Grpc = None,
    http: Http = None,
    timers: Timers = None,
    roles: Roles = None,
    tls_certificate: TlsCertificate = None,
    tls_key: TlsKey = None,
    insecure: Insecure = False,
    log_format: LogFormatOption = None,
    setting: Setting = None,
) -> NodeSettings:
    """The settings of a command: what was set one by one, then the flags, which are named as the settings."""
    flags = {
        "data": data,
        "store": store,
        "grpc": grpc,
        "http": http,
        "timers": timers,
        "roles": roles,
        "tls_certificate": tls_certificate,
        "tls_key": tls_key,
        "insecure": insecure or None,
        "log_format": log_format,
    }
    given = {name: value for name, value in flags.items() if value is not None}
    given = {**dict(_named(each) for each in setting or ()), **given}
    _check_no_secrets(given)
    return NodeSettings.load(config, os.environ, given)


sets_a_node = sharing(load)
"""Gives a command the options that set a node, and its settings."""


def _check_no_secrets(given: Mapping[str, object]) -> None:
    """Everybody on the machine can read the options of a process."""
    store = str(given.get("store", ""))
    for name, is_secret in (
        ("store", _has_password(store)),
        ("replication.token", "replication.token" in given),
        ("callbacks.secret", "callbacks.secret" in given),
    ):
        if is_secret:
            variable = f"CHRONOLINE_NODE_{name.upper().replace('.', '__')}"
            raise InvalidInput(
                f"{name} holds a secret, and everybody on this machine can read a process's options: put it "
                f"into the file for --config, or into {variable}"
            )


def _has_password(url: str) -> bool:
    """Also in its query; a user without a password is no secret."""
    before_host = url.partition("://")[2].rpartition("@")[0]
    return ":" in before_host or "password" in url.partition("?")[2].lower()


def _named(setting: str) -> tuple[str, str]:
    name, equals, value = setting.partition("=")
    if not equals or not name:
        raise InvalidInput(f"--set takes NAME=VALUE, not {setting!r}")
    if name in _TABLES:
        inside = f"{name}.{_TABLES[name]}"
        raise InvalidInput(f"--set {name}=… names a table; name a setting in it, such as {inside}")
    return name, value
