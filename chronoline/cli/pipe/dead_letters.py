"""`chronoline pipe dead`."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any, NamedTuple

import typer

from chronoline.cli.ending import quiet_when_nobody_reads
from chronoline.cli.pipe.opening import NOT_IN_THE_STORE, open_known_store, timeline_of
from chronoline.cli.pipe.options import Config, Name, Setting, StoreUrl, load
from chronoline.cli.rendering import printable
from chronoline.core.expiry import DeathReason
from chronoline.core.message import DeadLetter
from chronoline.pipe.intake import ORIGIN_HEADER, REASON_HEADER
from chronoline.pipe.settings import PipeSettings
from chronoline.runtime.timestamps import show_moment
from chronoline.stores.contract import MAX_BATCH

_DEFAULT_LIMIT = 20
_MOST = MAX_BATCH - 1
"""One more is asked for, to know whether there are more."""


def dead(
    config: Config = None,
    *,
    name: Name = None,
    store: StoreUrl = None,
    limit: Annotated[
        int, typer.Option(min=1, max=_MOST, metavar="N", help="Show so many at most.")
    ] = _DEFAULT_LIMIT,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON array instead of lines.")
    ] = False,
    setting: Setting = None,
) -> None:
    """Show the dead letters that the store keeps, oldest first: when each died, whence it came, and why.

    chronoline pipe dead --config pipe.toml
    chronoline pipe dead --name first --limit 100 --json

    A record dies that can be no message, such as one without a deadline;
    topic, partition and offset tell where it is. So does a message that
    could not be published. If the settings name a topic for dead letters,
    a running pipe moves them there, and they are seen here until then.
    """
    needless = [table for table in NOT_IN_THE_STORE if table != "dead_letters"]
    settings = load(
        config, setting, unneeded=needless, optional=("dead_letters",), name=name, store=store
    )
    with open_known_store(settings) as opened:
        topic = timeline_of(settings, opened)
        letters = opened.dead_letters(topic.uid, limit=limit + 1)
    with quiet_when_nobody_reads():
        if as_json:
            print(json.dumps([_as_json(each) for each in letters[:limit]], indent=2))
        elif letters:
            print("\n".join(_lines(each) for each in letters[:limit]))
        else:
            print(_none(settings))
    if len(letters) > limit:
        print(f"There are more than {limit:,}: --limit shows more.", file=sys.stderr)


def _none(settings: PipeSettings) -> str:
    moved = settings.dead_letters
    where = "" if moved is None else f" They are moved to the topic {moved.topic!r}."
    return f"The store keeps no dead letters of the pipe {settings.name!r}.{where}"


class _Death(NamedTuple):
    """What the intake wrote into the headers of a record that it rejected; of others nothing is known."""

    why: str | None = None
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None


def _death(letter: DeadLetter) -> _Death:
    if letter.reason != DeathReason.REJECTED:  # headers of these names are then the message's own
        return _Death()
    headers = dict(letter.message.headers)  # those behind its own win
    why = (headers.get(REASON_HEADER) or b"").decode(errors="replace")
    origin = (headers.get(ORIGIN_HEADER) or b"").decode(errors="replace")
    match origin.rsplit("/", 2):
        case [topic, partition, offset] if partition.isdecimal() and offset.isdecimal():
            return _Death(why, topic, int(partition), int(offset))
    return _Death(why)


def _as_json(letter: DeadLetter) -> dict[str, Any]:
    return {
        "id": letter.message.id,
        "died": show_moment(letter.died),
        "reason": letter.reason,
        **_death(letter)._asdict(),
        "due": show_moment(letter.message.due),
        "attempts": letter.message.attempts,
    }


def _lines(letter: DeadLetter) -> str:
    death = _death(letter)
    origin = "" if death.topic is None else f"  {death.topic}/{death.partition}/{death.offset}"
    first = f"{show_moment(letter.died)}  {letter.message.id}{origin}"
    return f"{printable(first)}\n    {printable(_reason(letter, death))}"


def _reason(letter: DeadLetter, death: _Death) -> str:
    if death.why is not None:
        return f"{letter.reason}: {death.why}"
    due, attempts = show_moment(letter.message.due), letter.message.attempts
    return f"{letter.reason}: due {due}, {attempts:,} attempts failed"
