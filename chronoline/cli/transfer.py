"""`chronoline export` and `import`: the messages of a topic, in files."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Protocol

import typer

from chronoline.cli.broker import Broker, asks_a_broker
from chronoline.cli.export_files import FileFormat, export_file, format_of, read_export
from chronoline.cli.options import TopicName
from chronoline.cli.output import count_of, print_to_stderr
from chronoline.cli.progress import showing
from chronoline.core.errors import ChronolineError, TopicNotFound
from chronoline.core.filters import ListPlace
from chronoline.core.message import SavedMessage
from chronoline.core.outcome import BaseOutcome, Refusal
from chronoline.runtime.clock import SystemClock
from chronoline.runtime.signals import exit_on_sigterm
from chronoline.runtime.terminal_text import printable

if TYPE_CHECKING:
    from chronoline.client.sync import Client
    from chronoline.core.topic import Topic
    from chronoline.stores.contract import Store

_PAGE = 1_000
_PAGE_BYTES = 4 * 1024 * 1024
_BATCH = 500
_MOST_TOLD = 10

File = Annotated[
    str,
    typer.Argument(metavar="FILE", help="- is stdout, or stdin.", show_default=False),
]
Format = Annotated[
    FileFormat | None,
    typer.Option("--format", help="By default that of the file's name.", show_default=False),
]
StoreUrl = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        help="Open this store instead of asking a broker: sqlite:///… or postgresql://…",
    ),
]
Letters = Annotated[bool, typer.Option("--dead-letters", help="The dead letters too.")]


class _Timeline(Protocol):
    """A topic at a broker, or in a store."""

    @abstractmethod
    def total(self) -> int: ...

    @abstractmethod
    def page(self, dead_letters: bool, after: str) -> tuple[Sequence[SavedMessage], str]: ...

    @abstractmethod
    def restore(self, messages: Sequence[SavedMessage]) -> Sequence[BaseOutcome]: ...


class _AtBroker(_Timeline):
    def __init__(self, client: Client, topic: str) -> None:
        self._client = client
        self._topic = topic

    def total(self) -> int:
        return self._client.count(self._topic).total

    def page(self, dead_letters: bool, after: str) -> tuple[Sequence[SavedMessage], str]:
        return self._client.export_page(self._topic, dead_letters=dead_letters, after=after)

    def restore(self, messages: Sequence[SavedMessage]) -> Sequence[BaseOutcome]:
        return self._client.import_messages(self._topic, messages)


class _InStore(_Timeline):
    def __init__(self, store: Store, topic: Topic) -> None:
        self._store = store
        self._topic = topic

    def total(self) -> int:
        now_ms = SystemClock().now_ms()
        buckets = self._topic.all_buckets
        counts = self._store.forecast(
            self._topic.uid, buckets, start=0, end=1 << 47, step_ms=1 << 47, now_ms=now_ms
        )
        return sum(each.counts.total for each in counts)

    def page(self, dead_letters: bool, after: str) -> tuple[Sequence[SavedMessage], str]:
        from chronoline.stores.transfer import export_page  # noqa: PLC0415 - an engine's

        saved, place = export_page(
            self._store,
            self._topic.uid,
            dead_letters=dead_letters,
            after=ListPlace.from_text(after),
            limit=_PAGE,
            most_bytes=_PAGE_BYTES,
            now_ms=SystemClock().now_ms(),
        )
        return saved, "" if place is None else place.to_text()

    def restore(self, messages: Sequence[SavedMessage]) -> Sequence[BaseOutcome]:
        return self._store.restore(self._topic.uid, messages, now_ms=SystemClock().now_ms())


@contextmanager
def _timeline(broker: Broker, topic: str, store_url: str | None) -> Iterator[_Timeline]:
    if store_url is None:
        with broker.client() as client:
            client.topic(topic)  # raises with the command that creates it
            yield _AtBroker(client, topic)
        return
    from chronoline.stores.factory import open_store  # noqa: PLC0415 - loads an engine

    with open_store(store_url) as store:
        found = store.find_topic(topic)
        if found is None:
            raise TopicNotFound(f"there is no topic {topic!r} in this store")
        yield _InStore(store, found)


@asks_a_broker
def export(
    broker: Broker,
    topic: TopicName,
    file: File,
    *,
    file_format: Format = None,
    dead_letters: Letters = False,
    store: StoreUrl = None,
) -> None:
    """Write all messages of a topic to a file: JSON lines, or Parquet.

    chronoline export reminders reminders.jsonl
    chronoline export reminders reminders.parquet --dead-letters
    chronoline export reminders - --store sqlite:///t.db | gzip > r.jsonl.gz

    Each has its id, due, expires, attempts, producer group, key, headers and
    body; a dead letter also why and when it died. Leases are not part of it.
    The topic may be in use: a message that is there all the time comes once.
    It takes the right to administer the topic. Parquet needs
    pip install 'chronoline\\[parquet]'.
    """
    chosen = format_of(file, file_format)
    done = 0
    with (
        _timeline(broker, topic, store) as timeline,
        exit_on_sigterm(),
        showing("exported", timeline.total()) as advance,
        export_file(file, chosen) as written,
    ):
        for page in _pages(timeline, dead_letters):
            written.write(page)
            done += len(page)
            advance(len(page))
    print_to_stderr(f"exported {count_of(done, 'message')}")


def _pages(timeline: _Timeline, dead_letters: bool) -> Iterator[Sequence[SavedMessage]]:
    for of_letters in (False, True) if dead_letters else (False,):
        after, more = "", True
        while more:
            page, after = timeline.page(of_letters, after)
            more = bool(after)
            yield page


@asks_a_broker
def import_file(
    broker: Broker,
    topic: TopicName,
    file: File,
    *,
    file_format: Format = None,
    store: StoreUrl = None,
) -> None:
    """Create the messages of an exported file on a topic, under their ids.

    chronoline topic create reminders
    chronoline import reminders reminders.jsonl

    It can be repeated, also after it was interrupted: ids that exist are
    counted and left as they are. Dead letters become dead letters again. It
    takes the right to administer the topic.
    """
    chosen = format_of(file, file_format)
    counted: Counter[str] = Counter()
    is_read = False
    with (
        _timeline(broker, topic, store) as timeline,
        exit_on_sigterm(),
        showing("imported") as advance,
    ):
        try:
            for batch in _batches(read_export(file, chosen)):
                outcomes = timeline.restore(batch)
                _count(counted, outcomes)
                advance(sum(each.done for each in outcomes))
            is_read = True
        finally:
            if is_read or counted:
                words = [f"imported {count_of(counted['done'], 'message')}"]
                if counted[Refusal.EXISTS]:
                    words.append(f"{counted[Refusal.EXISTS]:,} existed already")
                print_to_stderr("; ".join(words))
    refused = counted.total() - counted["done"] - counted[Refusal.EXISTS]
    if refused:
        raise ChronolineError(f"{count_of(refused, 'message')} refused")


def _batches(messages: Iterable[SavedMessage]) -> Iterator[list[SavedMessage]]:
    batch: list[SavedMessage] = []
    size_bytes = 0
    for each in messages:
        batch.append(each)
        size_bytes += each.content_bytes
        if len(batch) == _BATCH or size_bytes >= _PAGE_BYTES:
            yield batch
            batch, size_bytes = [], 0
    if batch:
        yield batch


def _count(counted: Counter[str], outcomes: Iterable[BaseOutcome]) -> None:
    for each in outcomes:
        counted["done" if each.done else each.refusal or "unknown"] += 1
        is_told = each.done or each.refusal is Refusal.EXISTS
        if not is_told and counted.total() - counted["done"] <= _MOST_TOLD:
            print_to_stderr(f"{printable(each.id)!r} refused: {printable(each.reason)}")
