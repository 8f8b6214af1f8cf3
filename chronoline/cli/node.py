"""`chronoline up`, and the options of a node, which override environment and file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated

import typer

from chronoline.cli.options import Config, default, parse_settings, sharing
from chronoline.core.errors import InvalidInput
from chronoline.node.logs import log_to_stderr
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
    "jwt": "keys",
}
"""Tables, and a setting inside each."""
_IN_THE_FOLDER = default("SQLite in the folder")
_OF_A_BROKER = default(",".join(BROKER_ROLES))
_ALONE = default("embedded:, a broker alone")
_TEXT = default("text")
_MADE = default("another one for each run")
_AS_GRPC = default("that of --grpc")


class LogFormat(StrEnum):
    """The log formats of a node."""

    text = "text"
    json = "json"


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
        help=f"The store of messages: sqlite:///… or postgresql://… {_IN_THE_FOLDER}",
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
    typer.Option(metavar="ROLE,…", help=f"The roles: {', '.join(ROLES)}. {_OF_A_BROKER}"),
]
Timers = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT", help=f"For timers, with that role. {default(DEFAULT_TIMERS)}"
    ),
]
CoordinationUrl = Annotated[
    str | None,
    typer.Option(
        "--coordination",
        metavar="URL",
        help=f"Where the brokers of a cluster meet: etcd://host:2379,…/prefix. {_ALONE}",
    ),
]
Name = Annotated[
    str | None,
    typer.Option(metavar="NAME", help=f"The broker's name in its cluster. {_MADE}"),
]
Rack = Annotated[
    str | None,
    typer.Option(metavar="RACK", help="Where the broker runs: a rack, a zone, a machine."),
]
Advertise = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help=f"The address of its gRPC for clients. {_AS_GRPC}"),
]
TlsCertificate = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="TLS: the certificate and its chain, in PEM."),
]
TlsKey = Annotated[
    str | None, typer.Option(metavar="FILE", help="TLS: the certificate's key, in PEM.")
]
Insecure = Annotated[
    bool,
    typer.Option(
        "--insecure",
        help="Allow access without TLS and without a token: every client can read, change and delete "
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
    coordination: CoordinationUrl = None,
    name: Name = None,
    rack: Rack = None,
    advertise: Advertise = None,
    tls_certificate: TlsCertificate = None,
    tls_key: TlsKey = None,
    insecure: Insecure = False,
    log_format: LogFormatOption = None,
    setting: Setting = None,
) -> NodeSettings:
    """The settings of a command: those of `--set`, then the flags, which are named as the settings."""
    flags = {
        "data": data,
        "store": store,
        "grpc": grpc,
        "http": http,
        "timers": timers,
        "roles": roles,
        "coordination": coordination,
        "name": name,
        "rack": rack,
        "advertise": advertise,
        "tls_certificate": tls_certificate,
        "tls_key": tls_key,
        "insecure": insecure or None,
        "log_format": log_format,
    }
    given = {name: value for name, value in flags.items() if value is not None}
    given = {**parse_settings(setting, _TABLES), **given}
    _check_no_secrets(given)
    return NodeSettings.load(config, os.environ, given)


sets_a_node = sharing(load)
"""Gives a command the options of a node, and the settings."""


def _check_no_secrets(given: Mapping[str, object]) -> None:
    """Refuses secrets: every user of the machine can read the options of a process."""
    for name, is_secret in (
        ("store", _has_password(str(given.get("store", "")))),
        ("coordination", _has_password(str(given.get("coordination", "")))),
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


# chronoline up


Nodes = Annotated[
    int | None,
    typer.Option(metavar="N", help="With --roles timers: the number of nodes on this machine."),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Do not print the addresses.")]
UntilEof = Annotated[
    bool,
    typer.Option(
        "--until-eof",
        help="Stop also when stdin ends, as it does when the parent process dies.",
    ),
]


@sets_a_node
def up(
    settings: NodeSettings, nodes: Nodes = None, quiet: Quiet = False, until_eof: UntilEof = False
) -> None:
    """Run a node until Ctrl-C or SIGTERM.

    chronoline up
    chronoline up --data /var/lib/chronoline --store postgresql://…
    chronoline up --config node.toml --log-format json
    chronoline up --roles timers --nodes 3

    Without options it is a broker: it keeps messages in SQLite, in the folder
    chronoline-data, and listens on this machine alone. With the role timers
    it serves timers over HTTP; at SIGHUP it reads its list of nodes again,
    at SIGUSR1 it moves timers to the nodes that are to keep them.

    Settings come from the file, then from CHRONOLINE_NODE_… in the
    environment, then from the options; `chronoline config show` prints them
    all. Put passwords into the file or the environment: every user can see a
    process's options.

    When it stops, it leases nothing more, answers requests under way and
    disconnects clients. A second Ctrl-C or SIGTERM ends it at once. No data
    is lost either way.
    """
    log_to_stderr(settings)
    if nodes is not None:
        from chronoline.node.local_cluster import run_cluster  # noqa: PLC0415 - gRPC is slow to import

        run_cluster(settings, nodes)
    else:
        from chronoline.node.process import run_node  # noqa: PLC0415 - gRPC is slow to import

        run_node(settings, quiet=quiet, until_eof=until_eof)
