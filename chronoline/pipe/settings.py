"""The settings of a pipe: from a TOML file, the environment and flags, in rising order of precedence.

The docstring of each is its meaning in `docs/reference/settings.md`; `examples/pipe-kafka.toml`
and `examples/pipe-embedded.toml` show their use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, GetPydanticSchema, PrivateAttr, ValidationError
from pydantic_core import CoreSchema, core_schema

from chronoline.core.agenda import DEFAULT_RESERVE_AHEAD_MS
from chronoline.core.ids import HASH_VALUES
from chronoline.core.limits import (
    CLOCK_BOUND_MS,
    MAX_BATCH,
    MAX_BODY_BYTES,
    MAX_RESERVE_AHEAD_MS,
    MAX_TIME_MS,
    name_problem,
)
from chronoline.core.topic import Topic, TopicSettings, check_topic_name
from chronoline.delivery.lane import DEFAULT_HOLD_MS
from chronoline.log.factory import connection_string, parts_on_one_machine, url_of
from chronoline.pipe.places import Place
from chronoline.pipe.properties import Value, delivery_problem
from chronoline.runtime.settings.loader import Rule, Settings, SettingsTable, Sources, Table
from chronoline.runtime.settings.types import (
    Address,
    DurationMs,
    HostNames,
    OptionalText,
    OptionalTimespanMs,
    TimespanMs,
    Whole,
)
from chronoline.runtime.store_url import SCHEMES, lasting_store, scheme_of, without_password
from chronoline.stores.inputs import MAX_EARLY_CANCEL_MS

DEFAULT_STORE = "sqlite:///chronoline-data/pipe.db"
_DAY_MS = 86_400_000
_LONGEST_POSITION = len("-2147483647-9223372036854775807")
_MOST_TOPIC_CHARACTERS = 128 - _LONGEST_POSITION
"""With a delay an id is topic, partition and offset, and has at most 128 characters."""


# Values


def _timeline(name: str) -> str:
    check_topic_name(name)
    return name


def _header(name: str) -> str:
    if problem := name_problem("the name of a header", name):
        raise ValueError(problem)
    return name


def _store(url: str) -> str:
    """Makes a relative file absolute: Spark's tasks may run in another folder."""
    if scheme_of(url) == "memory":
        raise ValueError(
            "memory: is another store in each process, and Spark's tasks are processes of their own; "
            f"write {SCHEMES['sqlite']} or {SCHEMES['postgresql']}"
        )
    return lasting_store(url)


def _log(place: str) -> str:
    """The connection string of a log in its canonical form; a path is a folder."""
    if not place or "\0" in place:
        raise ValueError("is neither the URL of a log nor a folder")
    return connection_string(url_of(place))


TimelineName = Annotated[str, AfterValidator(_timeline)]
HeaderName = Annotated[str, AfterValidator(_header)]
StoreUrl = Annotated[str, AfterValidator(_store)]
LogUrl = Annotated[str, AfterValidator(_log)]


# Tables


class PlaceTable(SettingsTable):
    """A topic: on Kafka, or on a log."""

    topic: str
    """The topic's name. Input, output and dead letters are different topics."""
    log: LogUrl | None = Field(default=None, repr=False)
    """A log: the string that `chronoline log init` printed, or a folder. Set either this or `kafka`."""
    kafka: dict[str, Value] | None = Field(default=None, repr=False)
    """Kafka: `bootstrap.servers` (text with commas, or a list), and any other property of its Java
    client. They are translated for librdkafka; one that cannot be translated is refused at the start. In
    the environment single underscores stand for dots: …__KAFKA__SASL_JAAS_CONFIG is `sasl.jaas.config`."""
    producer: dict[str, Value] = Field(default_factory=dict, repr=False)
    """Properties of librdkafka, for reading and publishing; they override `kafka`, and an empty one
    removes a property."""

    def place(self) -> Place:
        """Raises `InvalidInput`."""
        if (self.log is None) == (self.kafka is None):
            raise ValueError(
                "give either log, a folder or a URL, or the table kafka with bootstrap.servers"
                + ("" if self.log is None else ", not both")
            )
        if self.log is not None:
            return Place(kind="log", topic=self.topic, log=self.log, producer=self.producer)
        properties = dict(self.kafka or {})
        servers = _servers_of(str(properties.pop("bootstrap.servers", "")))
        place = Place.of_kafka(self.topic, servers, properties, producer=self.producer)
        place.librdkafka()  # refuses an untranslatable property now, not when a message is due
        return place


class SparkTable(SettingsTable):
    """The Spark session that a pipe starts."""

    master: OptionalText = None
    """Spark's master. None: that of `spark-submit` or of Spark's own settings, else this machine, with a
    slot for each task and one spare. Another master than that of `spark-submit` is refused."""
    conf: dict[str, Value] = Field(default_factory=dict, repr=False)
    """Spark's own settings; they override the pipe's."""


def _servers_of(given: str) -> str:
    servers = [server.strip() for server in given.split(",")]
    for server in servers:
        host, _, port = server.rpartition(":")
        if not host or not port.isdecimal():
            raise ValueError(
                "kafka needs bootstrap.servers: host:port, and several with commas between or as a list"
            )
    return ",".join(servers)


def _schema(_: Any, handler: Callable[[Any], CoreSchema]) -> CoreSchema:
    return core_schema.no_info_after_validator_function(PlaceTable.place, handler(PlaceTable))


PlaceSetting = Annotated[Place, GetPydanticSchema(_schema)]
"""A table in the file that becomes a `Place`."""


# All of them


class PipeSettings(Settings):
    """The settings of a pipe. Two pipes with the same name and store share the work."""

    sources = Sources(prefix="CHRONOLINE_PIPE_", property_tables=("kafka", "producer", "conf"))
    owner = "a pipe"
    tables: ClassVar[Mapping[str, type[SettingsTable]]] = {
        "input": PlaceTable,
        "output": PlaceTable,
        "dead_letters": PlaceTable,
        "spark": SparkTable,
    }
    missing: ClassVar[Mapping[str, str]] = {
        "name": 'name the pipe, such as name = "reminders"',
        "input": "say where records come from: a table [input] with topic, and log or kafka",
        "output": "say where messages go: a table [output] with topic, and log or kafka",
        "topic": "name the topic",
    }
    fillers: ClassVar[Table] = {
        "name": "pipe",
        "input": {"topic": "in", "log": "file:///filler"},
        "output": {"topic": "out", "log": "file:///filler"},
    }

    name: TimelineName
    """The name of the timeline in the store, and of the group under which Kafka's own tools show the lag.
    Pipes with the same name and store share the work."""
    store: StoreUrl = DEFAULT_STORE
    """The URL of the store. SQLite needs no set-up and serves one machine; several need PostgreSQL.
    `memory:` is refused: Spark's tasks are separate processes."""
    input: PlaceSetting
    """The topic from which records are read."""
    output: PlaceSetting
    """The topic on which messages are published when they are due."""
    dead_letters: PlaceSetting | None = None
    """The topic for records that cannot be read or published; without it they stay in the store."""

    timing_advance_ms: DurationMs = Field(default=0, ge=0, le=MAX_RESERVE_AHEAD_MS)
    """Publishes this much before the deadline. 0: never early; `reserve_ahead_ms` compensates for
    delays."""
    hold_ms: DurationMs = Field(default=DEFAULT_HOLD_MS, ge=100, le=_DAY_MS)
    """A pipe may hold a message this long before another takes it over. After a crash messages are this
    late. A live pipe extends what it holds, and holds it for longer while the store is slow."""
    delivery_timeout_ms: DurationMs = Field(
        default_factory=lambda data: data.get("hold_ms", DEFAULT_HOLD_MS) * 4 // 5, ge=1, le=_DAY_MS
    )
    """The longest time for the output to acknowledge; by default 4/5 of `hold_ms`. It must be below
    `hold_ms`: after a crash another pipe publishes the message then."""
    poll_interval_ms: DurationMs = Field(default=100, ge=1, le=MAX_RESERVE_AHEAD_MS)
    """The time between two reservations while messages are dense, at most half of `reserve_ahead_ms`.
    Precision does not depend on it."""
    failure_detection_interval_ms: DurationMs = Field(default=500, ge=10, le=_DAY_MS)
    """The time between two heartbeats of a pipe and of each task, which also read the others' and the
    stop flag. After four missing ones, at least 2 s, others serve the share. At most half of
    `hold_ms`."""
    reserve_ahead_ms: DurationMs = Field(
        default=DEFAULT_RESERVE_AHEAD_MS, ge=1, le=MAX_RESERVE_AHEAD_MS
    )
    """A message is reserved this long before it is due, so that the write is over at the due time. Until
    then it can be cancelled and rescheduled."""
    window_ms: DurationMs = Field(default=60_000, ge=10, le=3_600_000)
    """The time for which a Spark task fires before the next takes over; at least twice
    `reserve_ahead_ms`. Starting a task makes messages some milliseconds late on few cores, so longer
    windows are more punctual. A task that fails is replaced at once."""
    lanes: Whole = Field(default=2, ge=1, le=16)
    """Queries that take turns: the task of the next window is ready before the current one ends. With 1 a
    task fires until the pipe stops, and there is a gap when it fails."""
    ranges: Whole = Field(default=1, ge=1, le=1_024)
    """Tasks that share a window on this pipe. One fires thousands of messages a second; on two cores more
    than one makes them later."""
    buckets: Whole = Field(default=64, ge=1, le=HASH_VALUES)
    """The number of parts of the timeline that pipes and ranges share. Fixed when the pipe first
    starts."""

    delay_ms: OptionalTimespanMs = Field(default=None, alias="delay", ge=0, le=MAX_TIME_MS)
    """A plain delay: a record without any of the headers is due this long after its own timestamp, and
    its id is `topic-partition-offset`. Headers take precedence; a record with only one of id and deadline
    is rejected. The input's name then has at most 97 characters."""
    dedupe_ms: TimespanMs = Field(default=0, alias="dedupe", ge=0, le=MAX_TIME_MS)
    """An id stays taken this long after firing. 0: it is free at once. Fixed when the pipe first
    starts."""
    id_header: HeaderName = "chronosMessageId"
    """The header with the id: 1 to 128 characters."""
    deadline_header: HeaderName = "chronosDeadline"
    """The header with the deadline: RFC 3339; without an offset it is UTC, and fractions are rounded up
    to the millisecond."""
    action_header: HeaderName = "chronosAction"
    """The header with `cancel` (needs an id) or `reschedule` (needs id and deadline), for a waiting
    message."""
    early_cancel_ms: DurationMs = Field(default=0, ge=0, le=MAX_EARLY_CANCEL_MS)
    """A cancel that finds no message waits this long, at most 60 s, for a record with that id from
    another partition, which is then withdrawn. 0: it does not. Keep it above the time by which partitions
    differ."""
    keep_headers: bool = False
    """Whether the output has id and deadline as headers, by the names above, before all others. A
    consumer can drop repeats by the id; a record of `delay` has its position as id."""

    start: Literal["earliest", "latest"] = "earliest"
    """Where to begin partitions that the store does not know. Known ones continue at their position."""
    largest_value_bytes: Whole = Field(default=1024 * 1024, ge=1, le=MAX_BODY_BYTES)
    """Larger values are rejected; Kafka's own limit is about the same. A lane reserves only as many
    messages as fit into 512 MiB at this size: with 64 MiB, 7 at a time. Fixed when the pipe first
    starts."""
    intakes: Whole = Field(default=1, ge=1, le=1_024)
    """Tasks that share the partitions of the input, each with a slot of its own. One takes in thousands
    of records a second."""
    intake_records: Whole = Field(default=2_000, ge=1, le=MAX_BATCH)
    """The most records that one transaction takes in: a backlog waits in the input, not in memory."""
    intake_linger_ms: DurationMs = Field(default=20, ge=0, le=10_000)
    """Records that come within this time share a transaction, and Kafka answers fetches at this pace.
    Messages with a delay of less than about twice this time are late; a shorter time costs Kafka and the
    store more."""

    receipts: OptionalText = None
    """A folder, or a URL that Arrow knows, for receipts as Parquet: id, version, due, fired, lateness,
    redelivered, node. None: messages are only counted."""
    metrics: Address = ""
    """host:port of the metrics for Prometheus. Empty: none are served."""
    allowed_hosts: HostNames = ()
    """Host names by which the metrics can be asked, besides localhost and the address itself. Requests for
    other names are answered with 421."""
    clock_bound_ms: DurationMs = Field(default=CLOCK_BOUND_MS, ge=1, le=_DAY_MS)
    """The pipe warns if the clock of the store differs by more."""
    spark: SparkTable = SparkTable()
    _left_out: frozenset[str] = PrivateAttr(default=frozenset())

    @classmethod
    def rules(cls) -> Sequence[Rule]:
        return _RULES

    @classmethod
    def load(
        cls,
        path: str | Path | None = None,
        environ: Mapping[str, str] | None = None,
        flags: Mapping[str, object] | None = None,
        *,
        unneeded: Iterable[str] = (),
        optional: Iterable[str] = (),
    ) -> Self:
        """As `Settings.load`, without tables that the caller ignores: `left_out` names them.

        `unneeded` tables are left out unchecked, and so are `optional` places that are incomplete, unless
        they have an unknown setting.
        """
        gathered = cls.gather(path, environ, flags)
        left_out = _leave_out(gathered.table, unneeded, optional)
        settings = cls.checked(gathered, left_out)
        settings._left_out = left_out
        return settings

    @property
    def left_out(self) -> frozenset[str]:
        """Tables that the caller did not ask for: they hold fillers instead of the given values."""
        return self._left_out

    @property
    def shown_store(self) -> str:
        """The store's URL, without secrets."""
        return without_password(self.store)


def _leave_out(table: Table, unneeded: Iterable[str], optional: Iterable[str]) -> frozenset[str]:
    """Removes the tables that the caller ignores, and returns their names."""
    fillers = PipeSettings.fillers
    given = table.keys() | fillers.keys()
    incomplete = (name for name in optional if not _is_complete(table.get(name)))
    left_out = frozenset(name for name in (*unneeded, *incomplete) if name in given)
    for name in left_out:
        table.pop(name, None)
        if name in fillers:
            table[name] = fillers[name]
    return left_out


def _is_complete(table: object) -> bool:
    """False if parts of a place are missing. A table with an unknown setting is kept, and refused."""
    if table is None:
        return False
    try:
        PlaceTable.model_validate(table).place()
    except ValidationError as error:
        return any(each["type"] == "extra_forbidden" for each in error.errors())
    except ValueError:
        return False
    return True


# Rules between settings


def _hold_problem(settings: PipeSettings) -> str | None:
    if settings.delivery_timeout_ms < settings.hold_ms:
        return None
    return (
        f"must be below hold_ms ({settings.hold_ms}), not {settings.delivery_timeout_ms}: after the hold "
        "time another pipe publishes the message too"
    )


def _producer_problem(name: str) -> Rule:
    """Kafka's own properties about acknowledgements must agree with the settings."""

    def problem(settings: PipeSettings) -> str | None:
        place: Place | None = getattr(settings, name)
        given = place.librdkafka() if place and place.kind == "kafka" else {}
        return delivery_problem(given, settings.delivery_timeout_ms)

    return Rule((name, "delivery_timeout_ms", "hold_ms"), problem)


def _advance_problem(settings: PipeSettings) -> str | None:
    ahead_ms = settings.timing_advance_ms + settings.reserve_ahead_ms
    if ahead_ms > MAX_RESERVE_AHEAD_MS:
        return (
            f"and reserve_ahead_ms must be at most {MAX_RESERVE_AHEAD_MS} together, not {ahead_ms}"
        )
    if settings.timing_advance_ms >= settings.hold_ms:
        return f"must be below hold_ms ({settings.hold_ms}), not {settings.timing_advance_ms}"
    return None


def _window_problem(settings: PipeSettings) -> str | None:
    least_ms = 2 * settings.reserve_ahead_ms
    if settings.window_ms >= least_ms:
        return None
    return (
        f"must be at least twice reserve_ahead_ms, {least_ms}, not {settings.window_ms}: a task would end "
        "before what it reserved is due"
    )


def _interval_problem(settings: PipeSettings) -> str | None:
    if 2 * settings.failure_detection_interval_ms <= settings.hold_ms:
        return None
    return (
        f"must be at most half of hold_ms ({settings.hold_ms}), not "
        f"{settings.failure_detection_interval_ms}: a live pipe would count as dead"
    )


def _ranges_problem(settings: PipeSettings) -> str | None:
    if settings.ranges <= settings.buckets:
        return None
    return f"must be at most buckets ({settings.buckets}), not {settings.ranges}: a range has one at least"


def _headers_problem(settings: PipeSettings) -> str | None:
    if len({settings.id_header, settings.deadline_header, settings.action_header}) == len(_OWN):
        return None
    return f"{', '.join(_OWN)} must be three different names"


_OWN = ("id_header", "deadline_header", "action_header")


def _delay_problem(settings: PipeSettings) -> str | None:
    topic = settings.input.topic
    if settings.delay_ms is None or len(topic) <= _MOST_TOPIC_CHARACTERS:
        return None
    return (
        f"takes ids from topic, partition and offset, and the name of the input's topic has {len(topic)} "
        f"characters: at most {_MOST_TOPIC_CHARACTERS} leave room for both"
    )


def _same_problem(one: str, other: str, why: str) -> Rule:
    def problem(settings: PipeSettings) -> str | None:
        places = getattr(settings, one), getattr(settings, other)
        if None in places or not _is_same(*places):
            return None
        return f"is the same topic as {other}, {places[0].topic!r}: {why}. Name another topic"

    return Rule((one, other), problem)


def _is_same(one: Place, other: Place) -> bool:
    if (one.kind, one.topic, one.log) != (other.kind, other.topic, other.log):
        return False
    return one.kind == "log" or bool(_servers(one) & _servers(other))


def _servers(place: Place) -> set[str]:
    return {server.strip().lower() for server in place.bootstrap.split(",")}


def _master_problem(settings: PipeSettings) -> str | None:
    return master_problem(settings, settings.spark.master)


def master_problem(settings: PipeSettings, master: str | None) -> str | None:
    """Tasks on other machines cannot open files of this one."""
    if master is None or master == "local" or master.startswith(("local[", "local-cluster[")):
        return None
    places = {
        "input": settings.input,
        "output": settings.output,
        "dead_letters": settings.dead_letters,
    }
    local = [
        f"{name}.log" for name, place in places.items() if place and parts_on_one_machine(place.log)
    ]
    local += ["store"] if settings.store.startswith("sqlite:") else []
    if not local:
        return None
    return (
        f"master {without_password(master)!r} runs tasks on other machines, which do not see the files of "
        f"this one: {', '.join(local)}. Use postgresql:// for the store and s3:// or Kafka for topics, or "
        "leave the master out"
    )


_RULES = (
    Rule(("delivery_timeout_ms", "hold_ms"), _hold_problem),
    _producer_problem("output"),
    _producer_problem("dead_letters"),
    Rule(("timing_advance_ms", "reserve_ahead_ms", "hold_ms"), _advance_problem),
    Rule(("window_ms", "reserve_ahead_ms"), _window_problem),
    Rule(("failure_detection_interval_ms", "hold_ms"), _interval_problem),
    Rule(("ranges", "buckets"), _ranges_problem),
    Rule(_OWN, _headers_problem),
    Rule(("delay", "input"), _delay_problem),
    _same_problem("output", "input", "every message would be read again"),
    _same_problem("dead_letters", "input", "rejected records would come back forever"),
    _same_problem("dead_letters", "output", "consumers would read dead letters as messages"),
    Rule(("spark", "store", "input", "output", "dead_letters"), _master_problem),
)


# The timeline

_FIXED = {
    "buckets": "buckets",
    "dedupe_ms": "dedupe",
    "largest_body_bytes": "largest_value_bytes",
}
"""Settings of the timeline, by the names that a pipe has for them."""


def topic_settings(settings: PipeSettings) -> TopicSettings:
    """The settings of a pipe's timeline. Without `dedupe`, an id is free again when it has fired."""
    return TopicSettings(
        buckets=settings.buckets,
        dedupe_ms=settings.dedupe_ms,
        largest_body_bytes=settings.largest_value_bytes,
    )


def fixed_problem(settings: PipeSettings, topic: Topic) -> str | None:
    """Describes the first setting that differs from an existing timeline and is fixed there."""
    for limit in ("most_per_s", "most_in_flight"):
        if (most := getattr(topic.settings, limit)) is not None:
            return (
                f"the timeline {topic.name!r} has {limit} = {most}, which brokers keep and a pipe does not: "
                "name another pipe"
            )
    if topic.settings.target is not None:
        return (
            f"the timeline {topic.name!r} has a target, which gets its messages; name another pipe"
        )
    wanted = topic_settings(settings)
    for name, called in _FIXED.items():
        made, asked = getattr(topic.settings, name), getattr(wanted, name)
        if made != asked:
            unit = "ms" if name.endswith("_ms") else ""
            return (
                f"the timeline {topic.name!r} was made with {called} = {made}{unit}, which is fixed, not with"
                f" {asked}{unit}; write {called} = {made}{unit}, or name another pipe"
            )
    return None
