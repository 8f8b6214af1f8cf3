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

    They lie in the node's folder, hashed: run this where the node runs. It
    takes notice by itself. As soon as there is one, every client needs one,
    on this machine too.
    """,
    no_args_is_help=True,
    rich_markup_mode="rich",
)

_LAST = (
    "; it was the last. A node that runs lets nobody in until there is another; one that is started without "
    "any asks nobody on loopback"
)

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="Whose it is, such as billing.", show_default=False)
]


@app.command()
def create(name: Name, data: Data = None, config: Config = None) -> None:
    """Make a token and print it. It is shown this once, and can be revoked by its name.

    chronoline token create billing > billing.token
    chronoline send reminders --body hello --token-file billing.token
    """
    print(_tokens(data, config).create(name))
    if sys.stdout.isatty():
        print(
            "It is not shown again. Clients have it in CHRONOLINE_TOKEN, or in a file: --token-file.",
            file=sys.stderr,
        )


@app.command("list")
def list_names(data: Data = None, config: Config = None) -> None:
    """List the names of the tokens that there are.

    chronoline token list
    """
    names = _tokens(data, config).names()
    print("\n".join(names) or "There are no tokens: `chronoline token create NAME` makes one.")


@app.command()
def revoke(name: Name, data: Data = None, config: Config = None) -> None:
    """Revoke a token: whoever shows it is refused, and what it let in before is ended.

    chronoline token revoke billing
    """
    tokens = _tokens(data, config)
    tokens.revoke(name)
    left = tokens.names()
    print(f"revoked {name!r}" + ("" if left else _LAST))


def _tokens(data: str | None, config: Config) -> Tokens:
    from chronoline.broker.auth import Tokens  # noqa: PLC0415 - gRPC is slow to import

    return Tokens(load(config, data=data).tokens_file)
