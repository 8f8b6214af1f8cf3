"""`chronoline up`."""

from __future__ import annotations

from chronoline.broker.settings import NodeSettings
from chronoline.cli.node.logs import log_to_stderr
from chronoline.cli.node.options import sets_a_node


@sets_a_node
def up(settings: NodeSettings) -> None:
    """Run a broker until it is told to stop: Ctrl-C or SIGTERM.

    chronoline up
    chronoline up --data /var/lib/chronoline --store postgresql://…
    chronoline up --config node.toml --log-format json

    Without options it keeps messages in SQLite, in the folder
    chronoline-data, and listens on this machine alone. Settings come from
    the file, then from CHRONOLINE_NODE_… in the environment, then from the
    options; `chronoline config show` prints them all. A password belongs
    into the file or the environment: everybody can see a process's options.

    Told to stop, it leases nothing more, answers what is under way and tells
    clients to go. A second Ctrl-C or SIGTERM ends it at once. Nothing is lost
    either way.
    """
    log_to_stderr(settings)
    from chronoline.cli.node.running import run_node  # noqa: PLC0415 - gRPC is slow to import

    run_node(settings)
