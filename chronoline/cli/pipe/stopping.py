"""`chronoline pipe stop`."""

from __future__ import annotations

from typing import Annotated

import typer

from chronoline.cli.pipe.options import Config, Name, Setting, StoreUrl, load
from chronoline.stores.opening import open_store


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
    """
    settings = load(config, setting, ("input", "output"), name=name, store=store)
    with open_store(settings.store) as opened:
        asked = opened.ask_to_stop(settings.name, node)
    print(f"asked {asked} {'process' if asked == 1 else 'processes'} to stop")
