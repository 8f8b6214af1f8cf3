"""The options that select messages of a topic, for the commands of operators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from chronoline.cli.options import sharing
from chronoline.runtime.clock import SystemClock
from chronoline.runtime.timestamps import from_ms, parse_when_ms

if TYPE_CHECKING:
    from chronoline.client.administration import Selection

_PANEL = "Which messages"
_MOMENT = "WHEN"
_Group = Annotated[
    str, typer.Option(metavar="G", help="Of this producer group.", rich_help_panel=_PANEL)
]
_Prefix = Annotated[
    str, typer.Option(metavar="TEXT", help="Whose id begins so.", rich_help_panel=_PANEL)
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The given options. The SDK is imported at its first use: gRPC is slow to import."""

    group: str
    holder: str = ""
    prefix: str
    start: str | None
    end: str | None
    statuses: Sequence[str] = ()
    reason: str = ""

    @property
    def is_all(self) -> bool:
        """Whether there is no condition."""
        given = (self.group, self.holder, self.prefix, self.start, self.end, self.reason)
        return not any(given) and not self.statuses

    def selection(self) -> Selection:
        """Raises `InvalidInput`."""
        from chronoline.client.administration import Selection  # noqa: PLC0415 - see above

        now_ms = SystemClock().now_ms()
        start, end = self.start, self.end
        return Selection(
            producer_group=self.group,
            consumer=self.holder,
            prefix=self.prefix,
            start=None if start is None else from_ms(parse_when_ms(start, "--from", now_ms)),
            end=None if end is None else from_ms(parse_when_ms(end, "--to", now_ms)),
            statuses=tuple(self.statuses),
            reason=self.reason,
        )


def _messages(
    *,
    group: _Group = "",
    holder: Annotated[
        str,
        typer.Option(
            metavar="CONSUMER", help="Leased by this consumer, or last.", rich_help_panel=_PANEL
        ),
    ] = "",
    prefix: _Prefix = "",
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar=_MOMENT,
            help="Due then or later: now, +1h, -10m, or a time with its zone.",
            rich_help_panel=_PANEL,
        ),
    ] = None,
    end: Annotated[
        str | None,
        typer.Option("--to", metavar=_MOMENT, help="Due before then.", rich_help_panel=_PANEL),
    ] = None,
    status: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STATUS",
            help="available, processing or waiting; may be repeated.",
            rich_help_panel=_PANEL,
        ),
    ] = None,
) -> Chosen:
    return Chosen(
        group=group,
        holder=holder,
        prefix=prefix,
        start=start,
        end=end,
        statuses=tuple(status or ()),
    )


def _letters(
    *,
    group: _Group = "",
    prefix: _Prefix = "",
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar=_MOMENT,
            help="That died then or later: now, -10m, or a time with its zone.",
            rich_help_panel=_PANEL,
        ),
    ] = None,
    end: Annotated[
        str | None,
        typer.Option("--to", metavar=_MOMENT, help="That died before.", rich_help_panel=_PANEL),
    ] = None,
    reason: Annotated[
        str,
        typer.Option(metavar="TEXT", help="That died for this reason.", rich_help_panel=_PANEL),
    ] = "",
) -> Chosen:
    return Chosen(group=group, prefix=prefix, start=start, end=end, reason=reason)


selects_messages = sharing(_messages)
"""Gives a command the options that select messages."""
selects_letters = sharing(_letters)
"""Gives a command the options that select dead letters."""
