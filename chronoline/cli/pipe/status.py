"""`chronoline pipe status`, `stop` and `dead`: the state of a pipe in its store."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Any, NamedTuple

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from chronoline.cli.options import Config
from chronoline.cli.output import print_to_stderr, quiet_when_nobody_reads
from chronoline.cli.pipe.options import (
    InputPlace,
    Name,
    OutputPlace,
    Setting,
    StoreUrl,
    heading,
    load,
)
from chronoline.core.errors import ChronolineError, InvalidInput, TopicNotFound
from chronoline.core.expiry import DeathReason
from chronoline.core.lateness import show_bound
from chronoline.core.message import DeadLetter
from chronoline.core.topic import Topic
from chronoline.pipe.counters import Counters
from chronoline.pipe.intake import ORIGIN_HEADER, REASON_HEADER
from chronoline.pipe.places import missing_file
from chronoline.pipe.settings import PipeSettings
from chronoline.pipe.status import (
    MOST_DEAD_LETTERS,
    PipeStatus,
    read_status,
    status_in_store,
)
from chronoline.runtime.clock import SystemClock
from chronoline.runtime.terminal_text import printable
from chronoline.runtime.timestamps import show_moment
from chronoline.stores.contract import MAX_BATCH, Store
from chronoline.stores.factory import open_store
from chronoline.stores.inputs import KEPT_ID_HEADER
from chronoline.stores.members import pipe_groups, pipe_members

_NOT_IN_THE_STORE = ("input", "output", "dead_letters", "spark")
"""Tables that a command ignores if it needs only the store."""
_NO_INPUT = "name the input by --config or --input"
_SHOWN = 8
"""The characters of a node's id that tell it from the others; --json has all of it."""
_DEFAULT_LIMIT = 20
_MOST = MAX_BATCH - 1
"""One more is read, to know whether there are more."""


def _open_store(settings: PipeSettings) -> Store:
    """Opens an existing store. It does not create a missing file."""
    missing = missing_file(settings.store)
    if missing is not None:
        raise InvalidInput(
            f"there is no store {str(missing)!r}: `chronoline pipe run` makes it when Spark has started, "
            "--store or --config names another"
        )
    return open_store(settings.store)


def _timeline_of(settings: PipeSettings, store: Store) -> Topic:
    """The timeline of a pipe that has run."""
    topic = store.find_topic(settings.name)
    if topic is None:
        raise TopicNotFound(
            f"no pipe named {settings.name!r} has ever run with the store {settings.shown_store}: "
            "`chronoline pipe run` starts one, as soon as Spark has started. --name and --store name another"
        )
    return topic


# Status


def status(
    config: Config = None,
    *,
    name: Name = None,
    store: StoreUrl = None,
    input_place: InputPlace = None,
    output_place: OutputPlace = None,
    setting: Setting = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Show waiting and fired messages, their lateness, and the processes of the pipe.

    chronoline pipe status --config pipe.toml
    chronoline pipe status --name first

    It reads the store and the input, whether or not a process runs. Without
    an input it shows no lag, and the records taken in only while a process
    runs. For a pipe that has never run it ends with exit code 1.
    """
    settings = load(
        config,
        setting,
        optional=("input", "output", "dead_letters"),
        name=name,
        store=store,
        input=input_place,
        output=output_place,
    )
    now_ms = SystemClock().now_ms()
    with _open_store(settings) as opened:
        topic = _timeline_of(settings, opened)
        if "input" in settings.left_out:
            found = status_in_store(opened, topic, now_ms, problem=_NO_INPUT)
        else:
            found = read_status(settings, opened, now_ms)
    if as_json:
        print(json.dumps(_as_json(found)))
        return
    console = Console()
    console.print(heading(settings), soft_wrap=True)
    console.print(_messages(found))
    console.print(_processes(found))
    if found.input_problem:
        words = Text(printable(f"The lag is not known: {found.input_problem}"), style="yellow")
        console.print(words, soft_wrap=True)  # it may contain a command to copy


def _as_json(found: PipeStatus) -> dict[str, Any]:
    total = found.total
    return {
        "pipe": found.name,
        "waiting": found.on_timeline.waiting,
        "ready": found.on_timeline.processing,
        "overdue": found.on_timeline.available,
        "dead_letters": found.dead_letters,
        "records": asdict(found.tally),
        "lag": found.lag,
        "fired": total.fired,
        "redelivered": total.redelivered,
        "windows": {"served": total.served, "skipped": total.skipped},
        "lateness_ms": {
            name: total.lateness.percentile_ms(part)
            for name, part in (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999))
        },
        "partitions": [
            {
                "partition": each.account.partition,
                "position": each.account.position,
                "holder": each.account.holder,
                "lag": each.lag,
            }
            for each in found.partitions
        ],
        "nodes": [
            {
                "node": node.name,
                "alive": node.alive,
                "stopping": node.stopping,
                **asdict(node.counters),
            }
            for node in found.nodes
        ],
    }


def _messages(found: PipeStatus) -> Table:
    lag = found.lag
    more = "+" if found.dead_letters == MOST_DEAD_LETTERS else ""
    table = Table(show_header=False, box=None)
    rows = [
        ("waiting", f"{found.on_timeline.waiting:,}"),
        ("ready", f"{found.on_timeline.processing:,}", "reserved by a lane"),
        ("overdue", f"{found.on_timeline.available:,}", "due, and not reserved"),
        (
            "dead letters",
            f"{found.dead_letters:,}{more}",
            "kept in the store: see `chronoline pipe dead`",
        ),
        *_records(found),
        ("input lag", "?" if lag is None else f"{lag:,}", "records that wait for the intake"),
    ]
    for row in rows:
        table.add_row(*row)
    return table


def _records(found: PipeStatus) -> list[tuple[str, ...]]:
    """The outcomes of records; none while the input is not known, whose partitions have the counts."""
    if not found.partitions:
        return []
    tally = found.tally
    return [
        ("taken in", f"{tally.accepted:,}", "records that became messages"),
        ("ignored", f"{tally.ignored:,}", "their ids were waiting already"),
        ("rejected", f"{tally.rejected:,}", "malformed: they went to the dead letters"),
        ("cancelled", f"{tally.cancelled:,}"),
        ("rescheduled", f"{tally.rescheduled:,}"),
        ("missed", f"{tally.missed:,}", "named a message that does not exist"),
        ("withdrawn", f"{tally.withdrawn:,}", "cancelled before they came"),
    ]


def _processes(found: PipeStatus) -> Table | str:
    """As lines instead of many columns, which a narrow terminal would fold within words."""
    if not found.nodes:
        return "No process of it runs, or its Spark is still starting."
    table = Table(
        title="Processes, and what they counted since their start",
        title_justify="left",
        show_header=False,
        box=None,
    )
    for node in found.nodes:
        state = "stopping" if node.stopping else "alive" if node.alive else "dead"
        table.add_row(Text(printable(node.name[:_SHOWN])), state, _counted(node.counters))
    return table


def _counted(counters: Counters) -> str:
    late = {
        name: _percentile(counters, part)
        for name, part in (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999))
    }
    return (
        f"fired {counters.fired:,}, redelivered {counters.redelivered:,}; "
        f"windows {counters.served:,}, skipped {counters.skipped:,}\n"
        f"late {', '.join(f'{name} {words}' for name, words in late.items())}"
    )


def progress_line(counters: Counters) -> Text:
    """The counters of a pipe that runs."""
    parts = [
        f"fired {counters.fired:,}",
        f"late p50 {_percentile(counters, 0.5)}, p99.9 {_percentile(counters, 0.999)}",
        f"input lag {counters.lag:,}",
        f"windows {counters.served:,}"
        + (f", skipped {counters.skipped:,}" * bool(counters.skipped)),
    ]
    if counters.redelivered:
        parts.append(f"redelivered {counters.redelivered:,}")
    if counters.restarts:
        parts.append(f"restarts {counters.restarts:,}")
    return Text(" · ".join(parts))


def _percentile(counters: Counters, part: float) -> str:
    return show_bound(counters.lateness.percentile_ms(part))


# Stop


def stop(
    config: Config = None,
    name: Name = None,
    store: StoreUrl = None,
    node: Annotated[
        str | None, typer.Option(metavar="ID", help="Only this process, by its node id.")
    ] = None,
    setting: Setting = None,
) -> None:
    """Stop the processes of a pipe, wherever they run. They fire due messages and give back the others.

    chronoline pipe stop --config pipe.toml
    chronoline pipe stop --name first

    It does not wait for them. If none is alive, it ends with exit code 1.
    """
    settings = load(config, setting, unneeded=_NOT_IN_THE_STORE, name=name, store=store)
    with _open_store(settings) as opened:
        topic = opened.find_topic(settings.name)
        if topic is None:
            raise _nobody(settings, node)
        for group in pipe_groups(topic):
            opened.ask_to_stop(group, node)
        members = pipe_members(opened, topic)
    now_ms = SystemClock().now_ms()
    asked = sum(each.alive(now_ms) and node in (None, each.name) for each in members)
    if not asked:
        raise _nobody(settings, node)
    print(f"asked {asked} {'process' if asked == 1 else 'processes'} to stop")


def _nobody(settings: PipeSettings, node: str | None) -> ChronolineError:
    which, hint = "", ""
    if node is not None:
        which, hint = f" {node!r}", ": `chronoline pipe status --json` shows whole ids"
    return ChronolineError(
        f"no living process{which} of the pipe {settings.name!r} is known to the store "
        f"{settings.shown_store}{hint}"
    )


# Dead letters


def dead(
    config: Config = None,
    *,
    name: Name = None,
    store: StoreUrl = None,
    limit: Annotated[
        int, typer.Option(min=1, max=_MOST, metavar="N", help="The most to show.")
    ] = _DEFAULT_LIMIT,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON array instead of lines.")
    ] = False,
    setting: Setting = None,
) -> None:
    """Show the dead letters in the store, oldest first: time, origin and reason of each.

    chronoline pipe dead --config pipe.toml
    chronoline pipe dead --name first --limit 100 --json

    A record that cannot be a message, such as one without a deadline, becomes
    a dead letter with its topic, partition and offset. So does a message that
    could not be published. If the settings name a topic for dead letters, a
    running pipe moves them there; until then they are shown here.
    """
    needless = [table for table in _NOT_IN_THE_STORE if table != "dead_letters"]
    settings = load(
        config, setting, unneeded=needless, optional=("dead_letters",), name=name, store=store
    )
    with _open_store(settings) as opened:
        topic = _timeline_of(settings, opened)
        letters = opened.dead_letters(topic.uid, limit=limit + 1)
    with quiet_when_nobody_reads():
        if as_json:
            print(json.dumps([_letter_json(each) for each in letters[:limit]], indent=2))
        elif letters:
            print("\n".join(_letter_lines(each) for each in letters[:limit]))
        else:
            print(_none(settings))
    if len(letters) > limit:
        print_to_stderr(f"There are more than {limit:,}: --limit shows more.")


def _none(settings: PipeSettings) -> str:
    moved = settings.dead_letters
    where = "" if moved is None else f" They are moved to the topic {moved.topic!r}."
    return f"The store keeps no dead letters of the pipe {settings.name!r}.{where}"


class _Death(NamedTuple):
    """The headers that the intake gave to a record that it rejected; empty for others."""

    why: str | None = None
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None


def _death(letter: DeadLetter) -> _Death:
    if letter.reason != DeathReason.REJECTED:  # then headers of these names belong to the message
        return _Death()
    headers = dict(letter.message.headers)  # those behind its own win
    why = (headers.get(REASON_HEADER) or b"").decode(errors="replace")
    origin = (headers.get(ORIGIN_HEADER) or b"").decode(errors="replace")
    match origin.rsplit("/", 2):
        case [topic, partition, offset] if partition.isdecimal() and offset.isdecimal():
            return _Death(why, topic, int(partition), int(offset))
    return _Death(why)


def _letter_json(letter: DeadLetter) -> dict[str, Any]:
    return {
        "id": letter.message.id,
        "former_id": _former_id(letter),
        "died": show_moment(letter.died),
        "reason": letter.reason,
        **_death(letter)._asdict(),
        "due": show_moment(letter.message.due),
        "attempts": letter.message.attempts,
    }


def _letter_lines(letter: DeadLetter) -> str:
    death = _death(letter)
    origin = "" if death.topic is None else f"  {death.topic}/{death.partition}/{death.offset}"
    former_id = _former_id(letter)
    former = "" if former_id is None else f" (was {former_id})"
    first = f"{show_moment(letter.died)}  {letter.message.id}{former}{origin}"
    return f"{printable(first)}\n    {printable(_reason(letter, death))}"


def _former_id(letter: DeadLetter) -> str | None:
    """The id of a letter before a new message took it."""
    match letter.message.headers:
        case [*_, (name, bytes(value))] if name == KEPT_ID_HEADER:
            return value.decode(errors="replace")
    return None


def _reason(letter: DeadLetter, death: _Death) -> str:
    if death.why is not None:
        return f"{letter.reason}: {death.why}"
    due, attempts = show_moment(letter.message.due), letter.message.attempts
    return f"{letter.reason}: due {due}, {attempts:,} attempts failed"
