"""`chronoline bulk` and `chronoline topic purge`: changes of all messages that match."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chronoline.cli.broker import Broker, asks_a_broker
from chronoline.cli.options import AsJson, Due, In, TopicName, Yes, confirm, sharing, when
from chronoline.cli.output import count_of, print_to_stderr
from chronoline.cli.progress import showing
from chronoline.cli.selection import Chosen, selects_letters, selects_messages
from chronoline.core.errors import ChronolineError, InvalidInput
from chronoline.core.outcome import REASONS, Refusal
from chronoline.runtime.signals import exit_on_sigterm
from chronoline.runtime.terminal_text import json_text, printable
from chronoline.runtime.timestamps import show_moment

if TYPE_CHECKING:
    from chronoline.client.administration import BulkResult, Selection

app = typer.Typer(
    name="bulk",
    help="""Change all messages of a topic that match: by group, holder, id or time.

    chronoline bulk cancel reminders --prefix order-7 --dry-run
    chronoline bulk reschedule reminders --from now --to +1h --in 2h
    chronoline bulk redrive reminders --reason attempts
    """,
    no_args_is_help=True,
    rich_markup_mode="rich",
)

_PAST = {
    "cancel": "cancelled",
    "reschedule": "rescheduled",
    "redrive": "put back",
    "discard": "discarded",
}

All = Annotated[bool, typer.Option("--all", help="Without a condition: all of the topic.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Change nothing; say what matches.")]
Start = Annotated[
    str,
    typer.Option(metavar="PLACE", help="Go on where an interrupted run stopped: it prints this."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How a change of all that match is made."""

    everything: bool
    dry_run: bool
    after: str
    yes: bool
    as_json: bool


def _manner(
    *,
    everything: All = False,
    dry_run: DryRun = False,
    after: Start = "",
    yes: Yes = False,
    as_json: AsJson = False,
) -> Manner:
    return Manner(everything=everything, dry_run=dry_run, after=after, yes=yes, as_json=as_json)


in_batches = sharing(_manner)
"""Gives a command the options of a change in batches."""


@app.command()
@asks_a_broker
@selects_messages
@in_batches
def cancel(manner: Manner, chosen: Chosen, broker: Broker, topic: TopicName) -> None:
    """Cancel all messages that match. Messages under a lease are left alone.

    chronoline bulk cancel reminders --prefix order-7
    chronoline bulk cancel reminders --group shop --from now --to +1d --dry-run

    It works in batches, and says how far it is. Ctrl-C ends it after the batch
    under way: what was cancelled stays so, and --after goes on from there.
    """
    _change(broker, topic, "cancel", chosen, manner)


@app.command()
@asks_a_broker
@selects_messages
@in_batches
def reschedule(
    manner: Manner,
    chosen: Chosen,
    broker: Broker,
    topic: TopicName,
    *,
    due: Due = None,
    delay: In = None,
) -> None:
    """Move all messages that match to another time. Messages under a lease are left alone.

    chronoline bulk reschedule reminders --group shop --in 2h
    chronoline bulk reschedule reminders --to +1h --due 2027-01-31T12:00:00Z
    """
    at = when(due, delay)
    if not at:
        raise InvalidInput("give --due or --in")
    _change(broker, topic, "reschedule", chosen, manner, **at)


@app.command()
@asks_a_broker
@selects_letters
@in_batches
def redrive(
    manner: Manner,
    chosen: Chosen,
    broker: Broker,
    topic: TopicName,
    *,
    due: Due = None,
    delay: In = None,
) -> None:
    """Put all dead letters that match back, at once or at the given time, with no attempts counted.

    chronoline bulk redrive reminders --reason attempts --from -1h
    chronoline bulk redrive reminders --all --in 10m
    """
    at: dict[str, Any] = {**when(due, delay)} or {"delay": 0}
    _change(broker, topic, "redrive", chosen, manner, **at)


@app.command()
@asks_a_broker
@selects_letters
@in_batches
def discard(manner: Manner, chosen: Chosen, broker: Broker, topic: TopicName) -> None:
    """Delete all dead letters that match, for good.

    chronoline bulk discard reminders --group shop --to -720h
    """
    _change(broker, topic, "discard", chosen, manner)


@asks_a_broker
def purge(
    broker: Broker,
    name: Annotated[str, typer.Argument(metavar="NAME", show_default=False)],
    *,
    dead_letters: Annotated[
        bool, typer.Option("--dead-letters", help="The dead letters too.")
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Remove all messages of a topic that no consumer holds; the topic stays.

    chronoline topic purge reminders
    chronoline topic purge reminders --dead-letters --dry-run

    Consumers finish what they hold. Pause the topic first, so that they get no
    more meanwhile. As after a cancel, ids stay taken for the topic's dedupe time.
    """
    from chronoline.client.administration import ALL_MESSAGES  # noqa: PLC0415 - gRPC is slow to import

    if not dry_run:
        letters = ", and its dead letters," if dead_letters else ""
        confirm(f"Remove all messages of topic {name!r}{letters} for good?", yes=yes)
    operations = ["cancel", "discard"] if dead_letters else ["cancel"]
    results = {
        each: _run(broker, name, each, ALL_MESSAGES, {"dry_run": dry_run}) for each in operations
    }
    if as_json:
        shown = {each: _as_json(result, dry_run) for each, result in results.items()}
        print(json.dumps({"messages": shown["cancel"], "dead_letters": shown.get("discard")}))
        return
    for each, result in results.items():
        noun = "message" if each == "cancel" else "dead letter"
        _print(result, "removed", noun, dry_run=dry_run)


def _change(
    broker: Broker, topic: str, operation: str, chosen: Chosen, manner: Manner, **at: Any
) -> None:
    if chosen.is_all != manner.everything:
        raise InvalidInput(
            "name a condition, such as --prefix or --group, or use --all"
            + ", not both" * manner.everything
        )
    noun = "dead letter" if operation in ("redrive", "discard") else "message"
    if manner.everything and not manner.dry_run:
        confirm(f"{operation.capitalize()} all {noun}s of topic {topic!r}?", yes=manner.yes)
    given = {"after": manner.after, "dry_run": manner.dry_run, **at}
    result = _run(broker, topic, operation, chosen.selection(), given)
    if manner.as_json:
        print(json_text(_as_json(result, manner.dry_run)))
    else:
        _print(result, _PAST[operation], noun, dry_run=manner.dry_run)


def _run(
    broker: Broker,
    topic: str,
    operation: str,
    where: Selection,
    given: Mapping[str, Any],
) -> BulkResult:
    """The whole change, with its progress. A signal ends it between two batches."""
    latest: BulkResult | None = None
    try:
        with broker.client() as client, exit_on_sigterm(), showing(_PAST[operation]) as advance:

            def progress(result: BulkResult) -> None:
                nonlocal latest
                advance(result.done - (0 if latest is None else latest.done))
                latest = result

            return client.change_matching(topic, operation, where, progress=progress, **given)
    except (KeyboardInterrupt, SystemExit, ChronolineError) as error:
        # An error of the first batch says itself what became of it.
        if latest is not None or not isinstance(error, ChronolineError):
            _print_interrupted(operation, latest)
        raise


def _print_interrupted(operation: str, latest: BulkResult | None) -> None:
    if latest is None:
        print_to_stderr("chronoline: ended before the first batch was answered")
        return
    print_to_stderr(
        f"chronoline: ended; {latest.done:,} {_PAST[operation]}, and those of the batch under way, if any. "
        f"Go on with --after {latest.next}"
    )


def _print(result: BulkResult, past: str, noun: str, *, dry_run: bool) -> None:
    would = "would be " if dry_run else ""
    print(f"{count_of(result.done, noun)} {would}{past}")
    if result.due is not None:
        print(f"due {show_moment(result.due)}")
    for name, count in sorted(result.refused.items()):
        print(f"{count_of(count, noun)} left alone: {_reason(name)}")
    if dry_run and result.sample:
        print(f"such as {', '.join(map(printable, result.sample))}")


def _reason(name: str) -> str:
    try:
        return REASONS[Refusal(name)]
    except ValueError:
        return name


def _as_json(result: BulkResult, dry_run: bool) -> dict[str, Any]:
    sample: Sequence[str] = result.sample
    return {
        "dry_run": dry_run,
        "looked": result.looked,
        "matched": result.matched,
        "done": 0 if dry_run else result.done,
        "refused": dict(result.refused),
        "sample": list(sample),
        "due": None if result.due is None else show_moment(result.due),
    }
