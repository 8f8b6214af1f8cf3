"""`chronoline pipe stop`."""

from __future__ import annotations

from typing import Annotated

import typer

from chronoline.cli.pipe.opening import NOT_IN_THE_STORE, open_known_store, shown_store
from chronoline.cli.pipe.options import Config, Name, Setting, StoreUrl, load
from chronoline.core.errors import ChronolineError
from chronoline.pipe.settings import PipeSettings
from chronoline.runtime.clock import SystemClock
from chronoline.stores.members import pipe_groups, pipe_members


def stop(
    config: Config = None,
    name: Name = None,
    store: StoreUrl = None,
    node: Annotated[
        str | None, typer.Option(metavar="ID", help="Only this process, by its node id.")
    ] = None,
    setting: Setting = None,
) -> None:
    """Ask the processes of a pipe to stop, wherever they run. They fire what is due and give back the rest.

    chronoline pipe stop --config pipe.toml
    chronoline pipe stop --name first

    It does not wait for them. If none lives, it says so and ends with exit code 1.
    """
    settings = load(config, setting, unneeded=NOT_IN_THE_STORE, name=name, store=store)
    with open_known_store(settings) as opened:
        topic = opened.find_topic(settings.name)
        if topic is None:
            raise _nobody(settings, node)
        for group in pipe_groups(topic):
            opened.ask_to_stop(group, node)
        members = pipe_members(opened, topic)
    now_ms = SystemClock().now_ms()
    asked = sum(each.alive(now_ms) and node in (None, each.name) for each in members)
    if not asked:
        raise _nobody(settings, node)
    print(f"asked {asked} {'process' if asked == 1 else 'processes'} to stop")


def _nobody(settings: PipeSettings, node: str | None) -> ChronolineError:
    which, hint = "", ""
    if node is not None:
        which, hint = f" {node!r}", ": `chronoline pipe status --json` shows whole ids"
    return ChronolineError(
        f"no living process{which} of the pipe {settings.name!r} is known to the store "
        f"{shown_store(settings)}{hint}"
    )
