"""`chronoline doctor`: looks at a set-up, and says what to mend."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from chronoline.cli.broker import (
    ADDRESS_VARIABLE,
    Authority,
    Broker,
    Certificate,
    Insecure,
    Key,
    Tls,
    TokenFile,
    broker_of,
)
from chronoline.cli.doctor.checks import CHECK_S, Check, Diagnosis, ok, run_checks
from chronoline.cli.doctor.machine import has_extra, machine_checks
from chronoline.cli.options import (
    AsJson,
    Config,
    address_option,
    default,
)
from chronoline.cli.output import count_of, quiet_when_nobody_reads
from chronoline.core.errors import ChronolineError
from chronoline.runtime.terminal_text import printable

_PANEL = "The broker"
_EXAMPLE = "127.0.0.1:7400"
_CLIENT_ALONE = ok(
    "the SDK and the command alone are installed; to look at a broker: chronoline doctor --address HOST:7400;"
    " to run a node here: pip install 'chronoline[server]'"
)
_SIGNS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "problem": ("✗", "red")}

PipeConfig = Annotated[
    Path | None,
    typer.Option("--pipe", metavar="FILE", help="Look at a pipe with these settings, as TOML."),
]
Data = Annotated[str | None, typer.Option(metavar="DIR", help="The node's folder, as of `up`.")]
StoreUrl = Annotated[
    str | None, typer.Option("--store", metavar="URL", help="The node's store, as of `up`.")
]
Setting = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Any other setting of the node."),
]
Timeout = Annotated[
    float,
    typer.Option(
        min=0.1,
        max=600,
        metavar="SECONDS",
        help=f"The longest time for each check. {default(f'{CHECK_S:g}')}",
        show_default=False,
    ),
]
# Without the variable CHRONOLINE_ADDRESS: only who names a broker wants to look at one.
Address = Annotated[
    str | None, address_option(_EXAMPLE, variable="", panel=_PANEL, several=", or several")
]


def doctor(  # noqa: PLR0913 - the options of a command
    config: Config = None,
    *,
    pipe: PipeConfig = None,
    data: Data = None,
    store: StoreUrl = None,
    setting: Setting = None,
    timeout: Timeout = CHECK_S,
    as_json: AsJson = False,
    address: Address = None,
    token_file: TokenFile = None,
    tls: Tls = False,
    ca: Authority = None,
    certificate: Certificate = None,
    key_file: Key = None,
    insecure: Insecure = False,
) -> None:
    """Look at a set-up, and say what to mend: a line for each check.

    chronoline doctor
    chronoline doctor --config node.toml
    chronoline doctor --pipe pipe.toml
    chronoline doctor --address b1.example:7400 --tls

    Without options it looks at the node that `chronoline up` would run here,
    with the same file and environment: its settings, clock, disk, store,
    etcd, certificates, tokens and addresses. Where only the client is
    installed it asks the broker that CHRONOLINE_ADDRESS names. With --pipe it
    looks at a pipe: store, topics, Kafka, Java, Spark. With --address it asks
    a running broker. Nothing is changed: no tables are made or migrated.

    If there is a problem, the exit code is 1; warnings leave it at 0.
    """
    of_node = any(each is not None for each in (config, data, store)) or bool(setting)
    names_nothing = not of_node and pipe is None and address is None
    if names_nothing and not has_extra("server"):
        address = os.environ.get(ADDRESS_VARIABLE)
    checks = [*machine_checks()]
    if address is not None:
        broker = broker_of(
            address=address,
            token_file=token_file,
            tls=tls,
            ca=ca,
            certificate=certificate,
            key_file=key_file,
            insecure=insecure,
        )
        checks += _loaded("broker", lambda: _of_broker(broker))
    if of_node or (names_nothing and has_extra("server")):
        checks += _loaded("settings", lambda: _of_node(config, data, store, setting))
    elif names_nothing and address is None:
        checks.append(Check("node", lambda: _CLIENT_ALONE))
    if pipe is not None:
        checks += _loaded("pipe", lambda: _of_pipe(pipe))
    findings = run_checks(checks, timeout)
    with quiet_when_nobody_reads():
        states = _print_json(findings) if as_json else _print(findings)
    if "problem" in states:
        raise typer.Exit(1)


# The parts of a set-up. Each is imported when it is looked at, since its libraries are optional.


def _of_node(
    config: Path | None, data: str | None, store: str | None, setting: list[str] | None
) -> Iterator[Check]:
    from chronoline.runtime.extras import needs  # noqa: PLC0415 - see above

    with needs("a node", "server"):
        from chronoline.cli.doctor.node import node_checks  # noqa: PLC0415 - see above
        from chronoline.cli.node import load  # noqa: PLC0415 - see above

    return node_checks(load(config, data=data, store=store, setting=setting))


def _of_pipe(config: Path) -> Iterator[Check]:
    from chronoline.runtime.extras import needs  # noqa: PLC0415 - see above

    with needs("a pipe", "spark"):
        from chronoline.cli.doctor.pipe import pipe_checks  # noqa: PLC0415 - see above
        from chronoline.cli.pipe.options import load  # noqa: PLC0415 - see above

    return pipe_checks(load(config))


def _of_broker(broker: Broker) -> Iterator[Check]:
    from chronoline.cli.doctor.broker import broker_checks  # noqa: PLC0415 - see above

    return broker_checks(broker)


def _loaded(part: str, load: Callable[[], Iterator[Check]]) -> list[Check]:
    """The checks of a part; if its settings are wrong, one that says so."""
    try:
        return list(load())
    except ChronolineError as error:
        return [Check(part, _raising(error))]


def _raising(error: ChronolineError) -> Callable[[], Diagnosis]:
    def look() -> Diagnosis:
        raise error

    return look


# Output


def _print(findings: Iterator[tuple[str, Diagnosis]]) -> list[str]:
    console = Console()
    states: list[str] = []
    for part, found in findings:
        sign, style = _SIGNS[found.state]
        line = Text.assemble((sign, style), f" {part}: {printable(found.words)}")
        if found.remedy:
            line.append(f": {printable(found.remedy)}", style="bold")
        console.print(line, highlight=False, soft_wrap=True)
        states.append(found.state)
    wrong, doubtful = states.count("problem"), states.count("warning")
    counts = f"{count_of(wrong, 'problem')}, {count_of(doubtful, 'warning')}"
    console.print(f"{len(states)} checks: {counts}", highlight=False)
    return states


def _print_json(findings: Iterator[tuple[str, Diagnosis]]) -> list[str]:
    found = list(findings)
    states: list[str] = [each.state for _, each in found]
    checks = [
        {"part": part, "state": each.state, "words": each.words, "remedy": each.remedy or None}
        for part, each in found
    ]
    print(json.dumps({"ok": "problem" not in states, "checks": checks}, indent=2))
    return states
