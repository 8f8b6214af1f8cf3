"""`chronoline dead`: messages that could not be delivered."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chronoline.cli.broker import Broker, asks_a_broker
from chronoline.cli.options import DEFAULT_GROUP, AsJson, Due, In, TopicName, Yes, confirm, when
from chronoline.cli.output import count_of, print_to_stderr, quiet_when_nobody_reads
from chronoline.cli.progress import showing
from chronoline.core.errors import ChronolineError, InvalidInput
from chronoline.runtime.json_bytes import json_bytes, json_headers
from chronoline.runtime.terminal_text import printable
from chronoline.runtime.timestamps import show_moment

if TYPE_CHECKING:
    from chronoline.client.messages import DeadLetter
    from chronoline.client.outcomes import Outcomes
    from chronoline.client.sync import Client

app = typer.Typer(
    name="dead",
    help="""Dead letters: messages that failed too often, came too late, or were buried.

    chronoline dead list reminders
    chronoline dead redrive reminders --all
    chronoline dead discard reminders ada-1
    """,
    no_args_is_help=True,
    rich_markup_mode="rich",
)

_PAGE = 500
_MOST_TOLD = 10

Ids = Annotated[list[str] | None, typer.Argument(metavar="ID…", help="Which.", show_default=False)]
All = Annotated[bool, typer.Option("--all", help="All dead letters of the topic.")]
Group = Annotated[
    str | None,
    typer.Option(
        metavar="G",
        help="As this producer group, if the token may not administer the topic; with --all its dead "
        "letters alone.",
        show_default=False,
    ),
]


@app.command("list")
@asks_a_broker
def list_letters(
    broker: Broker,
    topic: TopicName,
    limit: Annotated[
        int, typer.Option(min=1, max=_PAGE, metavar="N", help="The most to show.")
    ] = 20,
    as_json: AsJson = False,
) -> None:
    """List dead letters, oldest first: when each died, and why.

    chronoline dead list reminders
    """
    with broker.client() as client:
        letters = client.dead_letters(topic, limit=limit + 1)
    with quiet_when_nobody_reads():
        if as_json:
            print(json.dumps([_as_json(each) for each in letters[:limit]], indent=2))
        elif letters:
            print("\n".join(_lines(each) for each in letters[:limit]))
        else:
            print(f"Topic {topic!r} has no dead letters.")
    if len(letters) > limit:
        print_to_stderr(f"There are more than {limit:,}: --limit shows more.")


@app.command()
@asks_a_broker
def redrive(
    broker: Broker,
    topic: TopicName,
    ids: Ids = None,
    *,
    everything: All = False,
    group: Group = None,
    due: Due = None,
    delay: In = None,
) -> None:
    """Put dead letters back on the timeline, at once or at the given time, with no attempts counted.

    chronoline dead redrive reminders ada-1 ada-2
    chronoline dead redrive reminders --all --in 1h
    chronoline dead redrive reminders --all --group shop
    """
    at = when(due, delay)
    _check(ids, everything)
    with broker.client(group=group or DEFAULT_GROUP) as client, showing("redriven") as advance:
        pages = _pages(client, topic, ids, group)
        done = _settle((client.redrive(topic, page, **at) for page in pages), advance)
    print(f"put {count_of(done, 'message')} back")


@app.command()
@asks_a_broker
def discard(
    broker: Broker,
    topic: TopicName,
    ids: Ids = None,
    *,
    everything: All = False,
    group: Group = None,
    yes: Yes = False,
) -> None:
    """Delete dead letters for good.

    chronoline dead discard reminders ada-1
    chronoline dead discard reminders --all
    """
    _check(ids, everything)
    if everything:
        whose = f"producer group {group!r} on topic" if group else "topic"
        confirm(f"Delete all dead letters of {whose} {topic!r} for good?", yes=yes)
    with broker.client(group=group or DEFAULT_GROUP) as client, showing("discarded") as advance:
        pages = _pages(client, topic, ids, group)
        done = _settle((client.discard(topic, page) for page in pages), advance)
    print(f"discarded {count_of(done, 'message')}")


def _check(ids: Sequence[str] | None, everything: bool) -> None:
    if bool(ids) == everything:
        raise InvalidInput(
            "name the messages by their ids, or use --all" + ", not both" * everything
        )


def _pages(
    client: Client, topic: str, ids: Sequence[str] | None, group: str | None
) -> Iterator[list[str]]:
    """The given ids, or those of all dead letters, each once, even if it cannot be settled."""
    if ids:
        for start in range(0, len(ids), _PAGE):
            yield list(ids[start : start + _PAGE])
        return
    last: DeadLetter | None = None
    while letters := client.dead_letters(topic, limit=_PAGE, after=last):
        last = letters[-1]
        if wanted := [
            each.message.id for each in letters if group in (None, each.message.producer_group)
        ]:
            yield wanted


def _settle(batches: Iterable[Outcomes], advance: Any) -> int:
    """The number that were done. Raises `ChronolineError` if any were refused, after all were sent."""
    done, refused = 0, []
    for outcomes in batches:
        refused += outcomes.refused
        done += len(outcomes) - len(outcomes.refused)
        advance(len(outcomes))
    if refused:
        told = "; ".join(f"{each.id!r}: {each.reason}" for each in refused[:_MOST_TOLD])
        more = f"; and {len(refused) - _MOST_TOLD:,} more" * (len(refused) > _MOST_TOLD)
        raise ChronolineError(f"{len(refused):,} refused, {done:,} done. {told}{more}")
    return done


def _as_json(letter: DeadLetter) -> dict[str, Any]:
    message = letter.message
    return {
        "id": message.id,
        "died": show_moment(letter.died),
        "reason": letter.reason,
        "due": show_moment(message.due),
        "attempts": message.attempts,
        "group": message.producer_group,
        "key": json_bytes(message.key),
        "headers": json_headers(message.headers),
    }


def _lines(letter: DeadLetter) -> str:
    message = letter.message
    first = f"{show_moment(letter.died)}  {message.id}"
    attempts = count_of(message.attempts, "attempt")
    second = (
        f"{letter.reason}; due {show_moment(message.due)}, {attempts} failed, "
        f"group {message.producer_group}"
    )
    return f"{printable(first)}\n    {printable(second)}"
