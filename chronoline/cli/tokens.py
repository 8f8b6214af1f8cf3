"""`chronoline token`: the tokens of a node."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from chronoline.cli.node import Data, load
from chronoline.cli.options import Config
from chronoline.cli.output import print_table
from chronoline.core.units import parse_duration_ms
from chronoline.node.logs import audit_to_file
from chronoline.runtime.clock import SystemClock
from chronoline.runtime.terminal_text import printable
from chronoline.runtime.timestamps import show_moment

if TYPE_CHECKING:
    from chronoline.broker.tokens import TokenRecord, Tokens

app = typer.Typer(
    name="token",
    help="""Tokens, which clients show to a broker.

    chronoline token create ops
    chronoline token create billing --right 'produce:orders-*:billing'
    chronoline token list
    chronoline token revoke billing

    They are in the node's folder, hashed: run this where the node runs. The
    node notices changes by itself. As soon as one exists, every client needs
    one, on this machine too.

    A token without --right may do everything. A right is a kind, topics and
    names, in which * stands for any characters:

    produce:TOPICS:GROUPS     send as such a producer group
    consume:TOPICS:CONSUMERS  receive as such a consumer
    observe:TOPICS            counts, forecasts, messages without bodies
    administer:TOPICS         create and delete topics, all dead letters
    timers                    set and delete timers
    node                      be a node of the timers' cluster
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


Rights = Annotated[
    list[str] | None,
    typer.Option(
        "--right",
        metavar="RIGHT",
        help="Such as produce:orders-*:billing, consume:orders, observe, administer:*; more than one is "
        "allowed. Without any, the token may do everything.",
        show_default=False,
    ),
]
Certificate = Annotated[
    str | None,
    typer.Option(
        "--certificate",
        metavar="NAME",
        help="Make no token: the rights are those of clients with this name in their certificate. Needs "
        "tls_client_ca.",
        show_default=False,
    ),
]
ExpiresIn = Annotated[
    str | None,
    typer.Option(metavar="DURATION", help="When it ends, such as 30d or 12h.", show_default=False),
]


@app.command()
def create(  # noqa: PLR0917 - typer passes them by name
    name: Name,
    right: Rights = None,
    expires_in: ExpiresIn = None,
    certificate: Certificate = None,
    data: Data = None,
    config: Config = None,
) -> None:
    """Create a token and print it once. It can be revoked by its name.

    chronoline token create ops > ops.token
    chronoline token create billing --right produce:orders --expires-in 90d
    chronoline token create mailer --certificate mailer.example --right consume
    chronoline send reminders --body hello --token-file ops.token
    """
    from chronoline.core.rights import ALL_RIGHTS, Rights  # noqa: PLC0415 - as in `_tokens`

    ends_ms = None
    if expires_in is not None:
        lasts_ms = parse_duration_ms(expires_in, "--expires-in")
        ends_ms = SystemClock().now_ms() + lasts_ms
    rights = ALL_RIGHTS if right is None else Rights.parse(right)
    tokens = _tokens(data, config)
    if certificate is not None:
        tokens.admit_certificate(name, certificate, rights, expires_ms=ends_ms)
        print(f"clients with a certificate of {certificate!r} are {name!r} now")
        return
    print(tokens.create(name, rights, expires_ms=ends_ms))
    if sys.stdout.isatty():
        print(
            "It is not shown again. Clients take it from CHRONOLINE_TOKEN, or from a file: --token-file.",
            file=sys.stderr,
        )


@app.command("list")
def list_tokens(data: Data = None, config: Config = None) -> None:
    """List the tokens with their rights and their ends.

    chronoline token list
    """
    records = _tokens(data, config).records()
    if not records:
        print("There are no tokens: `chronoline token create NAME` makes one.")
        return
    now_ms = SystemClock().now_ms()
    table = Table("name", "rights", "shown", "made", "ends", box=None, pad_edge=False)
    for each in records:
        table.add_row(
            printable(each.name),
            printable(_shown_rights(each)),
            printable(f"certificate {each.certificate}" if each.certificate else "token"),
            "–" if each.created_ms is None else show_moment(each.created_ms),
            _shown_end(each, now_ms),
        )
    print_table(table)


def _shown_rights(record: TokenRecord) -> str:
    from chronoline.core.rights import ALL_RIGHTS  # noqa: PLC0415 - as in `_tokens`

    return "everything" if record.rights == ALL_RIGHTS else ", ".join(record.rights.texts())


def _shown_end(record: TokenRecord, now_ms: int) -> str:
    if record.expires_ms is None:
        return "never"
    return show_moment(record.expires_ms) + (", expired" if record.is_expired(now_ms) else "")


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
    from chronoline.broker.tokens import Tokens  # noqa: PLC0415 - gRPC is slow to import

    settings = load(config, data=data)
    audit_to_file(settings)
    return Tokens(settings.tokens_file)
