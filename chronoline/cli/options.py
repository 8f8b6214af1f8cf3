"""Options and arguments that several commands take, and the way to share them."""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Concatenate, ParamSpec, TypedDict, TypeVar

import typer

from chronoline.core.addresses import INSECURE_VARIABLE, check_address
from chronoline.core.errors import InvalidInput
from chronoline.core.message import DEFAULT_PRODUCER_GROUP, Header
from chronoline.core.units import parse_duration_ms
from chronoline.runtime.clock import SystemClock
from chronoline.runtime.timestamps import from_ms, parse_moment_ms, parse_when_ms

Given = ParamSpec("Given")
Made = TypeVar("Made")
Command = Callable[..., None]

DEFAULT_GROUP = DEFAULT_PRODUCER_GROUP


def default(shown: str) -> str:
    """The default in a help text, if another part than the option sets it."""
    return f"[dim]\\[default: {shown}][/]"


# Messages


TopicName = Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)]
MessageId = Annotated[str, typer.Argument(metavar="ID", show_default=False)]
MessageIds = Annotated[list[str], typer.Argument(metavar="ID", show_default=False)]
Group = Annotated[
    str, typer.Option(metavar="G", help="The producer group, which owns its messages.")
]
Due = Annotated[
    str | None, typer.Option(metavar="TIME", help="The due time, such as 2027-01-31T12:00:00Z.")
]
In = Annotated[
    str | None,
    typer.Option("--in", metavar="DURATION", help="The delay, such as 250ms, 5s, 15m or 2d."),
]
Expires = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="From then on it is a dead letter instead: a time, or how far ahead (+1h).",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="As JSON, for programs.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


class When(TypedDict, total=False):
    """A due time or a delay, or neither, as arguments of the client."""

    due: datetime
    delay: timedelta


def when(due: str | None, delay: str | None) -> When:
    if due is not None and delay is not None:
        raise InvalidInput("give --due or --in, not both")
    if due is not None:
        return When(due=from_ms(parse_moment_ms(due, "--due")))
    if delay is not None:
        return When(delay=duration(delay, "--in"))
    return When()


def expiry(text: str | None) -> datetime | None:
    """The moment of `--expires`, if it is given."""
    if text is None:
        return None
    return from_ms(parse_when_ms(text, "--expires", SystemClock().now_ms()))


def duration(text: str, what: str) -> timedelta:
    return timedelta(milliseconds=parse_duration_ms(text, what))


Body = Annotated[
    str | None,
    typer.Option(metavar="TEXT|-", help="The body, or - to read it from stdin; by default empty."),
]
MessageKey = Annotated[str | None, typer.Option(metavar="KEY", help="A key, which consumers get.")]
MessageHeaders = Annotated[
    list[str] | None, typer.Option(metavar="NAME=VALUE", help="A header; may be repeated.")
]


def read_body(text: str | None) -> bytes:
    if text is None:
        return b""
    return sys.stdin.buffer.read() if text == "-" else os.fsencode(text)


def parse_header(text: str) -> Header:
    name, equals, value = text.partition("=")
    if not equals:
        raise InvalidInput(f"header {text!r} is not of the form name=value")
    return name, os.fsencode(value)


def confirm(question: str, *, yes: bool) -> None:
    """Raises `InvalidInput` unless the answer is yes."""
    if yes:
        return
    try:
        agreed = typer.confirm(question, err=True)
    except typer.Abort:
        agreed = False
    if not agreed:
        raise InvalidInput("nothing was done: answer y, or use --yes")


# Settings


Config = Annotated[
    Path | None,
    typer.Option("--config", "-c", metavar="FILE", help="The settings, as TOML."),
]


def parse_settings(given: Iterable[str] | None, tables: Mapping[str, str]) -> dict[str, str]:
    """The flags of `--set NAME=VALUE`. `tables` has a setting inside each table, for errors."""
    return dict(_parse_setting(each, tables) for each in given or ())


def _parse_setting(setting: str, tables: Mapping[str, str]) -> tuple[str, str]:
    name, equals, value = setting.partition("=")
    if not equals or not name:
        raise InvalidInput(f"--set takes NAME=VALUE, not {setting!r}")
    table = name.replace("-", "_")
    if table in tables:
        inside = f"{table}.{tables[table]}"
        raise InvalidInput(f"--set {name}=… names a table; name a setting in it, such as {inside}")
    return name, value


# A server: a broker, or a node of timers


def address_option(example: str, *, variable: str, panel: str, several: str = "") -> Any:
    """`--address`; `example` is the default."""
    return typer.Option(
        metavar="HOST:PORT",
        envvar=variable,
        help=f"Its address{several}. {default(example)}",
        rich_help_panel=panel,
        show_default=False,
    )


def token_file_option(*, panel: str) -> Any:
    """`--token-file`."""
    return typer.Option(
        metavar="FILE",
        help="The file of the token; or set the token itself in CHRONOLINE_TOKEN.",
        rich_help_panel=panel,
    )


def tls_option(*, panel: str) -> Any:
    """`--tls`."""
    return typer.Option("--tls", help="Use TLS.", rich_help_panel=panel)


def authority_option(*, panel: str) -> Any:
    """`--ca`."""
    return typer.Option(
        "--ca",
        metavar="FILE",
        help="Use TLS, and trust this authority (PEM) instead of the system's.",
        rich_help_panel=panel,
    )


def certificate_option(*, panel: str) -> Any:
    """`--certificate`."""
    return typer.Option(
        "--certificate",
        metavar="FILE",
        help="Use TLS, and show this certificate (PEM).",
        rich_help_panel=panel,
    )


def key_option(*, panel: str) -> Any:
    """`--key-file`."""
    return typer.Option(
        "--key-file", metavar="FILE", help="The key of --certificate (PEM).", rich_help_panel=panel
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


def checked_addresses(text: str, example: str) -> str:
    """Addresses that are separated by commas."""
    parts = [each.strip() for each in text.split(",")]
    return ",".join(checked_address(each, example) for each in parts)


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


# Sharing


def sharing(
    make: Callable[..., Made],
) -> Callable[[Callable[Concatenate[Made, Given], None]], Command]:
    """A decorator that gives a command the options of `make`, after its own.

    The command's first argument is the value that `make` returns. Several of them can stand above one
    command, which gets the value of the lowest first.
    """
    shared = inspect.signature(make, eval_str=True).parameters

    def decorate(command: Callable[Concatenate[Made, Given], None]) -> Command:
        signature = inspect.signature(command, eval_str=True)
        _, *own = signature.parameters.values()

        @functools.wraps(command)
        def run(*others: Any, **given: Any) -> None:
            made = make(**{name: given.pop(name) for name in shared})
            command(made, *others, **given)

        by_name = inspect.Parameter.KEYWORD_ONLY
        parameters = [each.replace(kind=by_name) for each in (*own, *shared.values())]
        # This is what typer reads.
        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]  # it may be set
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        return run

    return decorate
