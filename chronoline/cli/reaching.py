"""Options that say where a server listens and how it lets one in: for brokers and for nodes of timers."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import typer

from chronoline.cli.sharing import default
from chronoline.core.addresses import INSECURE_VARIABLE, check_address
from chronoline.core.errors import InvalidInput


def address_option(example: str, *, variable: str, panel: str) -> Any:
    """`--address`; `example` is what holds where nothing is given."""
    return typer.Option(
        metavar="HOST:PORT",
        envvar=variable,
        help=f"Where it listens. {default(example)}",
        rich_help_panel=panel,
        show_default=False,
    )


def token_file_option(*, panel: str) -> Any:
    """`--token-file`."""
    return typer.Option(
        metavar="FILE",
        help="The token that it asks for; or give the token itself in CHRONOLINE_TOKEN.",
        rich_help_panel=panel,
    )


def tls_option(*, panel: str) -> Any:
    """`--tls`."""
    return typer.Option("--tls", help="Speak TLS with it.", rich_help_panel=panel)


def authority_option(*, panel: str) -> Any:
    """`--ca`."""
    return typer.Option(
        "--ca",
        metavar="FILE",
        help="TLS, and trust this authority (PEM) instead of the system's.",
        rich_help_panel=panel,
    )


def insecure_option(*, panel: str) -> Any:
    """`--insecure`."""
    return typer.Option(
        "--insecure",
        envvar=INSECURE_VARIABLE,
        help="Send the token to another machine without TLS: on a network that you trust.",
        rich_help_panel=panel,
        show_envvar=False,
    )


def checked_address(text: str, example: str) -> str:
    try:
        return check_address(text, example=example)
    except ValueError as error:
        raise InvalidInput(f"--address {error}") from None


def read_token(path: Path) -> str:
    try:
        token = path.read_text("utf-8").strip()
    except OSError as error:
        raise InvalidInput(f"the token {str(path)!r} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        token = ""
    if not token or not token.isascii() or not token.isprintable():
        raise InvalidInput(f"{str(path)!r} holds no token such as `chronoline token create` prints")
    return token


def trusting(authority: Path | None) -> ssl.SSLContext:
    """For those who call: servers with a certificate of this authority, or else of the system's."""
    try:
        return ssl.create_default_context(cafile=authority)
    except OSError as error:
        raise InvalidInput(
            f"{str(authority)!r} is no certificate in PEM: {error.strerror or error}"
        ) from None
