"""`chronoline token`: the tokens of a node."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from chronoline.cli.node import Data, load
from chronoline.cli.options import Config

if TYPE_CHECKING:
    from chronoline.broker.auth import Tokens

app = typer.Typer(
    name="token",
    help="""Tokens, which clients show to a broker.

    chronoline token create billing
    chronoline token list
    chronoline token revoke billing

    They are in the node's folder, hashed: run this where the node runs. The
    node notices changes by itself. As soon as one exists, every client needs
    one, on this machine too.
    """,
    no_args_is_help=True,
    rich_markup_mode="rich",
)

_LAST = (
    "; it was the last. A running node accepts no client until there is another; one that starts without "
    "any requires none on loopback"
)

Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="The name of the token, such as billing.", show_default=False
    ),
]


@app.command()
def create(name: Name, data: Data = None, config: Config = None) -> None:
    """Create a token and print it once. It can be revoked by its name.

    chronoline token create billing > billing.token
    chronoline send reminders --body hello --token-file billing.token
    """
    print(_tokens(data, config).create(name))
    if sys.stdout.isatty():
        print(
            "It is not shown again. Clients take it from CHRONOLINE_TOKEN, or from a file: --token-file.",
            file=sys.stderr,
        )


@app.command("list")
def list_names(data: Data = None, config: Config = None) -> None:
    """List the names of the tokens.

    chronoline token list
    """
    names = _tokens(data, config).names()
    print("\n".join(names) or "There are no tokens: `chronoline token create NAME` makes one.")


@app.command()
def revoke(name: Name, data: Data = None, config: Config = None) -> None:
    """Revoke a token: its clients are refused, and their open streams end.

    chronoline token revoke billing
    """
    tokens = _tokens(data, config)
    tokens.revoke(name)
    left = tokens.names()
    print(f"revoked {name!r}" + ("" if left else _LAST))


def _tokens(data: str | None, config: Config) -> Tokens:
    from chronoline.broker.auth import Tokens  # noqa: PLC0415 - gRPC is slow to import

    return Tokens(load(config, data=data).tokens_file)
