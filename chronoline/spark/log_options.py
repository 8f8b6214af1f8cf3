"""Options of the format `chronoline_log`, with the names that Spark's Kafka source has for them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from chronoline.core.errors import InvalidInput
from chronoline.log.contract import Head
from chronoline.log.factory import url_of
from chronoline.spark.options import Options

FORMAT = "chronoline_log"
EARLIEST, LATEST = -2, -1
"""Kafka's marks for the ends of one partition."""

_WORDS = {"earliest": EARLIEST, "latest": LATEST}
_LOG_EXAMPLE = "file:///var/lib/chronoline/log"
_SPARK_OWN = ("checkpointLocation", "queryName")
"""Options that Spark itself adds to those of a stream."""

OPTIONS = {
    "log": "The log: the string that `chronoline log init` prints, or a folder.",
    "topic": "The topic to read or to append to.",
    "startingOffsets": "Where to start: `earliest`, `latest`, or the next sequence of each partition such as"
    ' `{"0": 17, "1": -2}`, in which -2 is earliest and -1 latest. By default `earliest` for a batch,'
    " `latest` for a stream. A stream with a checkpoint continues from it.",
    "endingOffsets": "Where a batch ends, in the same form; exclusive. By default `latest`.",
    "partitions": "The partitions to read, such as `0,2`. By default all.",
    "maxOffsetsPerTrigger": "The most events in a micro-batch, shared by backlog. By default all.",
    "maxRecordsPerPartition": "About the most events of one task; a larger partition is split.",
    "failOnDataLoss": "Fails if retention has deleted events of the range, or if a repeated batch has another"
    " number of rows. `false` continues with a warning.",
}
"""The meaning of each option, for the reference."""

Offsets = int | Mapping[int, int]
"""`EARLIEST` or `LATEST` for all partitions, or for each its next sequence, or one of the two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSettings:
    """The options of a read."""

    log: str
    topic: str
    partitions: tuple[int, ...] | None
    start: Offsets
    end: Offsets
    most_per_trigger: int | None
    most_per_task: int
    fail_on_data_loss: bool

    @classmethod
    def of_batch(cls, given: Mapping[str, str]) -> Self:
        options = Options(FORMAT, given)
        settings = cls._parse(options, start="earliest", end="latest", stream=False)
        if LATEST in _words_of(settings.start):
            raise InvalidInput("a batch cannot begin at latest: nothing is there yet")
        if EARLIEST in _words_of(settings.end):
            raise InvalidInput("nothing can end at earliest: nothing is there before it")
        options.finish("path")
        return settings

    @classmethod
    def of_stream(cls, given: Mapping[str, str]) -> Self:
        options = Options(FORMAT, given)
        settings = cls._parse(options, start="latest", end=None, stream=True)
        options.finish("path", *_SPARK_OWN)
        return settings

    @classmethod
    def _parse(cls, options: Options, *, start: str, end: str | None, stream: bool) -> Self:
        most_per_task = options.whole("maxRecordsPerPartition", 500_000, low=1)
        assert most_per_task is not None
        return cls(
            log=url_of(options.required("log", _LOG_EXAMPLE)),
            topic=options.required("topic", "orders"),
            partitions=_partitions(options),
            start=_offsets(options, "startingOffsets", start),
            end=LATEST if end is None else _offsets(options, "endingOffsets", end),
            most_per_trigger=(
                options.whole("maxOffsetsPerTrigger", None, low=1) if stream else None
            ),
            most_per_task=most_per_task,
            fail_on_data_loss=options.boolean("failOnDataLoss", True),
        )

    def chosen(self, heads: Iterable[Head]) -> dict[int, Head]:
        """The ends of the partitions that are read."""
        found = {head.partition: head for head in heads}
        wanted = found if self.partitions is None else self.partitions
        for partition in wanted:
            if partition not in found:
                raise InvalidInput(
                    f"topic {self.topic!r} has the partitions 0 to {len(found) - 1}, not {partition}"
                )
        return {partition: found[partition] for partition in wanted}


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteSettings:
    """The options of a write."""

    log: str
    topic: str
    fail_on_data_loss: bool

    @classmethod
    def of_batch(cls, given: Mapping[str, str]) -> Self:
        return cls._parse(Options(FORMAT, given))

    @classmethod
    def of_stream(cls, given: Mapping[str, str]) -> Self:
        return cls._parse(Options(FORMAT, given), *_SPARK_OWN)

    @classmethod
    def _parse(cls, options: Options, *also_known: str) -> Self:
        settings = cls(
            log=url_of(options.required("log", _LOG_EXAMPLE)),
            topic=options.required("topic", "orders"),
            fail_on_data_loss=options.boolean("failOnDataLoss", True),
        )
        options.finish("path", *also_known)
        return settings


def resolve(offsets: Offsets, heads: Mapping[int, Head], option: str) -> dict[int, int]:
    """The sequence in each partition that `EARLIEST` or `LATEST` stands for. Numbers are kept."""
    if isinstance(offsets, Mapping) and set(offsets) != set(heads):
        raise InvalidInput(
            f"option {option!r} names the partitions {sorted(offsets)}, but {sorted(heads)} are read; name "
            f"each of them, with {EARLIEST} for earliest and {LATEST} for latest"
        )

    def sequence(head: Head) -> int:
        given = offsets if isinstance(offsets, int) else offsets[head.partition]
        ends = {EARLIEST: head.first_sequence, LATEST: head.next_sequence}
        return ends.get(given, given)

    return {partition: sequence(head) for partition, head in heads.items()}


def _words_of(offsets: Offsets) -> set[int]:
    given = {offsets} if isinstance(offsets, int) else set(offsets.values())
    return given & {EARLIEST, LATEST}


def _offsets(options: Options, name: str, default: str) -> Offsets:
    value = options.optional(name, default) or default
    word = _WORDS.get(value.strip().lower())
    if word is not None:
        return word
    try:
        parsed = {int(partition): sequence for partition, sequence in json.loads(value).items()}
    except (ValueError, AttributeError, TypeError):
        parsed = {}
    if not parsed or not all(type(each) is int and each >= EARLIEST for each in parsed.values()):
        raise options.problem(
            name, value, 'write earliest, latest, or a sequence for each partition: {"0": 17}'
        )
    return parsed


def _partitions(options: Options) -> tuple[int, ...] | None:
    value = options.optional("partitions")
    if value is None:
        return None
    parts = [part.strip() for part in value.split(",")]
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise options.problem("partitions", value, "write their numbers: 0,2")
    return tuple(sorted({int(part) for part in parts}))
