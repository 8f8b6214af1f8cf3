"""The broker that a command uses, and the options that name it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from chronoline.cli.options import (
    address_option,
    authority_option,
    certificate_option,
    checked_addresses,
    insecure_option,
    key_option,
    read_token,
    sharing,
    tls_option,
    token_file_option,
)
from chronoline.core.message import DEFAULT_PRODUCER_GROUP

if TYPE_CHECKING:
    from chronoline.client.aio import AsyncClient
    from chronoline.client.sync import Client
    from chronoline.client.tls import Tls as ClientTls
    from chronoline.wire.v1 import chronoline_pb2 as pb

ADDRESS_VARIABLE = "CHRONOLINE_ADDRESS"
_PANEL = "The broker"
_EXAMPLE = "127.0.0.1:7400"
_PATIENCE_S = 30.0
_SHORT_S = 5.0

Address = Annotated[
    str | None,
    address_option(
        _EXAMPLE,
        variable=ADDRESS_VARIABLE,
        panel=_PANEL,
        several=", or those of several, with commas between them",
    ),
]
TokenFile = Annotated[Path | None, token_file_option(panel=_PANEL)]
Tls = Annotated[bool, tls_option(panel=_PANEL)]
Authority = Annotated[Path | None, authority_option(panel=_PANEL)]
Certificate = Annotated[Path | None, certificate_option(panel=_PANEL)]
Key = Annotated[Path | None, key_option(panel=_PANEL)]
Insecure = Annotated[bool, insecure_option(panel=_PANEL)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """A broker. The client is imported at its first use: gRPC is slow to import."""

    address: str | None
    token: str | None
    tls: bool | Path | ClientTls
    insecure: bool = False

    def administration(self) -> Client:
        """A client for topics and schedules: someone waits, and hears soon why it is not done."""
        return self.client(timeout_s=_SHORT_S)

    def client(
        self, *, group: str = DEFAULT_PRODUCER_GROUP, timeout_s: float = _PATIENCE_S
    ) -> Client:
        from chronoline.client.sync import Client  # noqa: PLC0415 - see above

        return Client(
            self.address,
            token=self.token,
            tls=self.tls,
            insecure=self.insecure,
            producer_group=group,
            timeout=timeout_s,
        )

    def async_client(self, *, group: str = DEFAULT_PRODUCER_GROUP, rack: str = "") -> AsyncClient:
        from chronoline.client.aio import AsyncClient  # noqa: PLC0415 - see above

        return AsyncClient(
            self.address,
            token=self.token,
            tls=self.tls,
            insecure=self.insecure,
            producer_group=group,
            rack=rack,
        )

    def info(self) -> pb.Cluster:
        """The brokers, their subscribers, and whether the store answers."""
        from chronoline.client.event_loop import run_in, shared_loop  # noqa: PLC0415 - see above

        return run_in(shared_loop(), self._info())

    async def _info(self) -> pb.Cluster:
        from chronoline.client.brokers import Brokers  # noqa: PLC0415 - see above
        from chronoline.wire.v1 import chronoline_pb2 as pb  # noqa: PLC0415 - see above

        brokers = Brokers(self.address, self.token, self.tls, insecure=self.insecure)
        try:
            return await brokers.ask(
                "Overseer/Info", pb.InfoRequest(), pb.Cluster.FromString, _PATIENCE_S
            )
        finally:
            await brokers.close()


def broker_of(
    *,
    address: Address = None,
    token_file: TokenFile = None,
    tls: Tls = False,
    ca: Authority = None,
    certificate: Certificate = None,
    key_file: Key = None,
    insecure: Insecure = False,
) -> Broker:
    return Broker(
        address=None if address is None else checked_addresses(address, _EXAMPLE),
        token=None if token_file is None else read_token(token_file),
        tls=_tls(ca, certificate, key_file) if tls or ca or certificate or key_file else False,
        insecure=insecure,
    )


def _tls(ca: Path | None, certificate: Path | None, key: Path | None) -> bool | Path | ClientTls:
    if certificate is None and key is None:
        return ca or True
    from chronoline.client.tls import Tls  # noqa: PLC0415 - gRPC is slow to import

    return Tls(ca, certificate, key)


asks_a_broker = sharing(broker_of)
"""Gives a command the options that name a broker, and that broker."""
