"""Which broker a command speaks with, and how: the options that all of them share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chronoline.cli.sharing import default, sharing
from chronoline.core.errors import InvalidInput
from chronoline.core.message import DEFAULT_PRODUCER_GROUP
from chronoline.settings.types import check_address

if TYPE_CHECKING:
    from chronoline.client.aio import AsyncClient
    from chronoline.client.sync import Client
    from chronoline.wire.v1 import chronoline_pb2 as pb

_PANEL = "The broker"
_EXAMPLE = "127.0.0.1:7400"
_PATIENCE_S = 30.0

Address = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        envvar="CHRONOLINE_ADDRESS",
        help=f"Where it listens. {default(_EXAMPLE)}",
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="The token that it asks for; or give the token itself in CHRONOLINE_TOKEN.",
        rich_help_panel=_PANEL,
    ),
]
Tls = Annotated[bool, typer.Option("--tls", help="Speak TLS with it.", rich_help_panel=_PANEL)]
Authority = Annotated[
    Path | None,
    typer.Option(
        "--ca",
        metavar="FILE",
        help="TLS, and trust this authority (PEM) instead of the system's.",
        rich_help_panel=_PANEL,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """A broker that can be asked. The modules that speak with it are imported when it is: gRPC is slow to."""

    address: str | None
    token: str | None
    tls: bool | Path

    def client(self, *, group: str = DEFAULT_PRODUCER_GROUP) -> Client:
        from chronoline.client.sync import Client  # noqa: PLC0415 - see above

        return Client(self.address, token=self.token, tls=self.tls, producer_group=group)

    def async_client(self, *, group: str = DEFAULT_PRODUCER_GROUP) -> AsyncClient:
        from chronoline.client.aio import AsyncClient  # noqa: PLC0415 - see above

        return AsyncClient(self.address, token=self.token, tls=self.tls, producer_group=group)

    def info(self) -> pb.Cluster:
        """The brokers, who is subscribed to what, and whether the store answers."""
        from chronoline.client.looping import run_in, shared_loop  # noqa: PLC0415 - see above

        return run_in(shared_loop(), self._info())

    async def _info(self) -> pb.Cluster:
        from chronoline.client.connection import Connection  # noqa: PLC0415 - see above
        from chronoline.wire.v1 import chronoline_pb2 as pb  # noqa: PLC0415 - see above

        connection = Connection(self.address, self.token, self.tls)
        try:
            return await connection.ask(
                "Overseer/Info", pb.InfoRequest(), pb.Cluster.FromString, _PATIENCE_S
            )
        finally:
            await connection.close()


def _broker(
    *,
    address: Address = None,
    token_file: TokenFile = None,
    tls: Tls = False,
    ca: Authority = None,
) -> Broker:
    return Broker(
        address=None if address is None else _address(address),
        token=None if token_file is None else _token(token_file),
        tls=tls if ca is None else ca,
    )


asks_a_broker = sharing(_broker)
"""Gives a command the options that say which broker, and that broker."""


def _address(text: str) -> str:
    try:
        return check_address(text, example=_EXAMPLE)
    except ValueError as error:
        raise InvalidInput(f"--address {error}") from None


def _token(path: Path) -> str:
    try:
        token = path.read_text("utf-8").strip()
    except OSError as error:
        raise InvalidInput(f"the token {str(path)!r} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        token = ""
    if not token or not token.isascii() or not token.isprintable():
        raise InvalidInput(f"{str(path)!r} holds no token such as `chronoline token create` prints")
    return token
