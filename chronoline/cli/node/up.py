"""`chronoline up`."""

from __future__ import annotations

from typing import Annotated

import typer

from chronoline.cli.node.options import sets_a_node
from chronoline.node.logs import log_to_stderr
from chronoline.node.settings import NodeSettings

Nodes = Annotated[
    int | None,
    typer.Option(metavar="N", help="With --roles timers: so many nodes on this machine."),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Do not tell where it listens.")]
UntilEof = Annotated[
    bool,
    typer.Option(
        "--until-eof",
        help="Stop also when its input ends, as it does when whoever started it dies.",
    ),
]


@sets_a_node
def up(
    settings: NodeSettings, nodes: Nodes = None, quiet: Quiet = False, until_eof: UntilEof = False
) -> None:
    """Run a node until it is told to stop: Ctrl-C or SIGTERM.

    chronoline up
    chronoline up --data /var/lib/chronoline --store postgresql://…
    chronoline up --config node.toml --log-format json
    chronoline up --roles timers --nodes 3

    Without options it is a broker: it keeps messages in SQLite, in the folder
    chronoline-data, and listens on this machine alone. With the role timers
    it takes timers over HTTP; SIGHUP has it read its list of nodes again,
    SIGUSR1 move timers to the nodes that are to keep them. Settings come from
    the file, then from CHRONOLINE_NODE_… in the environment, then from the
    options; `chronoline config show` prints them all. A password belongs
    into the file or the environment: everybody can see a process's options.

    Told to stop, it leases nothing more, answers what is under way and tells
    clients to go. A second Ctrl-C or SIGTERM ends it at once. Nothing is lost
    either way.
    """
    log_to_stderr(settings)
    from chronoline.node.local_cluster import run_cluster  # noqa: PLC0415 - as its node
    from chronoline.node.process import run_node  # noqa: PLC0415 - gRPC is slow to import

    if nodes is not None:
        run_cluster(settings, nodes)
    else:
        run_node(settings, quiet=quiet, until_eof=until_eof)
