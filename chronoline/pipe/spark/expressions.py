"""The contract of a pipe's input, as DataFrame expressions: the action of a record, or its problems.

The headers of a record have an id, a deadline, and optionally an action. Every record becomes
one row, in which `action` is

- `create`: put it on the timeline as `id`, due at `due` (UTC milliseconds);
- `cancel`, `reschedule`: the action of the header, for the waiting message `id`;
- `reject`: the record is malformed; `reason` describes all problems. `id` and `due` are null.

Key, value and the other headers stay unchanged, in order, with repeated names and nulls. The pipe's own
headers are removed, except from rejected records, which are kept whole so that they can be repaired.

Everything is a Spark expression: no record passes through Python here. Nothing depends on the time zone of
the session or on ANSI mode. A malformed record yields a null and a reason, never an error that would stop the
query. Dates are counted in days and times in milliseconds, without timestamps, which round fractions down.

Columns that begin with `_` hold values that later steps use more than once, so that Spark computes them once.
Higher-order functions and regular expressions are slow: a valid record needs one regular expression, and
lambdas only for headers that are not the pipe's.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from chronoline.core.limits import (
    MAX_HEADER_BYTES,
    MAX_HEADERS,
    MAX_KEY_BYTES,
    MAX_NAME_BYTES,
    MAX_TIME_MS,
)
from chronoline.core.topic import DEFAULT_SETTINGS

CREATE, CANCEL, RESCHEDULE, REJECT = "create", "cancel", "reschedule", "reject"
MAX_ID_CHARACTERS = 128

_HEADERS = "array<struct<key:string,value:binary>>"
_DAY_MS, _HOUR_MS, _MINUTE_MS, _SECOND_MS = 86_400_000, 3_600_000, 60_000, 1_000
_LAST_HOUR, _LAST_MINUTE, _LEAP_SECOND = 23, 59, 60
# Only the form; \z, since $ lets a newline follow. The digits are checked afterwards.
_RFC_3339 = (
    r"\A[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}"
    r"(?:\.[0-9]+)?(?:[Zz]|[+-][0-9]{2}:[0-9]{2})?\z"
)
_FRACTION_FROM = len("2026-01-31T12:00:00.") + 1
_OFFSET_SIZE = len("+01:00")
_SHOWN = r"\A[ -~]{1,64}\z"
"""Text of a record that a reason may repeat: short, and without control characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """The headers, the delay and the limits by which records of an input are read."""

    id_header: str = "chronosMessageId"
    deadline_header: str = "chronosDeadline"
    action_header: str = "chronosAction"
    delay_ms: int | None = None
    """Records without the pipe's headers are due this long after their own time; None: they are rejected."""
    largest_value_bytes: int = DEFAULT_SETTINGS.largest_body_bytes
    """The limit of the timeline."""


def read_records(records: DataFrame, contract: Contract) -> DataFrame:
    """Reads the records of Kafka's source, or of a source with the same columns.

    The input is `key, value, topic, partition, offset, timestamp, headers`, in which `headers` may be null.
    The result is `partition, offset, action, id, due, reason, key, value, headers`, in which `headers` is an
    empty array instead.
    """
    steps = [
        [F.coalesce(F.col("headers"), _no_headers()).alias("_headers")],
        _found(contract),
        [*_texts(), _others(contract).alias("_others")],
        [*_deadline_parts(), *_others_parts()],
        _read(contract),
        [_reason(contract).alias("_reason")],
    ]
    for step in steps:
        records = records.select("*", *step)
    fine = F.col("_reason") == ""
    return records.select(
        F.col("partition").cast("int").alias("partition"),
        F.col("offset").cast("long").alias("offset"),
        F.when(fine, F.col("_asked")).otherwise(REJECT).alias("action"),
        F.when(fine, F.col("_name")).alias("id"),
        F.when(fine & (F.col("_asked") != CANCEL), F.col("_due")).alias("due"),
        F.when(~fine, F.col("_reason")).alias("reason"),
        "key",
        "value",
        F.when(fine, F.col("_others")).otherwise(F.col("_headers")).alias("headers"),
    )


# Finding the headers


def _found(contract: Contract) -> list[Column]:
    """The position of the first of each own header, from 1, or 0; and the number of times it is given."""
    names = F.col("_headers")["key"]
    found = []
    for what, name in _own(contract).items():
        times = F.size(names) - F.size(F.array_remove(names, name))
        found += [
            F.array_position(names, name).cast("int").alias(f"_{what}_at"),
            times.alias(f"_{what}_times"),
        ]
    return found


def _own(contract: Contract) -> dict[str, str]:
    return {
        "id": contract.id_header,
        "deadline": contract.deadline_header,
        "action": contract.action_header,
    }


def _times(what: str) -> Column:
    return F.col(f"_{what}_times")


def _own_times() -> Column:
    return _times("id") + _times("deadline") + _times("action")


def _texts() -> list[Column]:
    """The values of own headers, null if there are none; bytes that are not UTF-8 stay unchanged."""
    headers = F.col("_headers")
    return [
        F.get(headers, F.col(f"_{what}_at") - 1)["value"].cast("string").alias(f"_{what}")
        for what in ("id", "deadline", "action")
    ]


def _others(contract: Contract) -> Column:
    headers, own = F.col("_headers"), list(_own(contract).values())
    others = F.filter(headers, lambda one: ~F.coalesce(one["key"].isin(*own), F.lit(False)))
    return F.when(F.size(headers) == _own_times(), _no_headers()).otherwise(others)


def _no_headers() -> Column:
    return F.array().cast(_HEADERS)


# Reading them


def _deadline_parts() -> list[Column]:
    """The parts of the deadline; valid only if `_deadline_form` is true."""
    text = F.col("_deadline")
    has_offset = F.substring(text, -_OFFSET_SIZE, 1).isin("+", "-")
    offset = F.when(has_offset, F.substring(text, -_OFFSET_SIZE, _OFFSET_SIZE)).otherwise("+00:00")
    tail = F.when(has_offset, _OFFSET_SIZE).otherwise(
        F.when(F.substring(text, -1, 1).isin("Z", "z"), 1).otherwise(0)
    )
    digits = F.length(text) - (_FRACTION_FROM - 1) - tail  # negative if there is no fraction
    parts = {
        "form": text.rlike(_RFC_3339),
        "day": F.unix_date(F.substring(text, 1, 10).try_cast("date")),
        "hour": _number(text, 12),
        "minute": _number(text, 15),
        "second": _number(text, 18),
        "fraction": F.substring(text, F.lit(_FRACTION_FROM), digits),
        "offset_sign": F.when(F.substring(offset, 1, 1) == "-", -1).otherwise(1),
        "offset_hour": _number(offset, 2),
        "offset_minute": _number(offset, 5),
    }
    return [part.alias(f"_deadline_{name}") for name, part in parts.items()]


def _number(text: Column, position: int) -> Column:
    return F.substring(text, position, 2).try_cast("long")


def _part(name: str) -> Column:
    return F.col(f"_deadline_{name}")


def _deadline_ms() -> Column:
    """The deadline in UTC, rounded up to the millisecond; without an offset it is UTC."""
    fraction = _part("fraction")
    thousandths = F.rpad(F.substring(fraction, 1, 3), 3, "0").try_cast("long")
    rest = F.rtrim(F.substring(fraction, F.lit(4), F.length(fraction)), F.lit("0"))
    offset_ms = _part("offset_hour") * _HOUR_MS + _part("offset_minute") * _MINUTE_MS
    return (
        _part("day").cast("long") * _DAY_MS
        + _part("hour") * _HOUR_MS
        + _part("minute") * _MINUTE_MS
        + _part("second") * _SECOND_MS
        + thousandths
        + F.when(rest == "", 0).otherwise(1)
        - _part("offset_sign") * offset_ms
    )


def _read(contract: Contract) -> list[Column]:
    """The action, the id and the due time of a record."""
    name, due = F.col("_id"), _deadline_ms()
    if contract.delay_ms is not None:
        name = F.when(_bare(), _position()).otherwise(name)
        due = F.when(_bare(), _delayed_ms(contract.delay_ms)).otherwise(due)
    asked = F.when(_times("action") == 0, CREATE).otherwise(F.col("_action"))
    return [asked.alias("_asked"), name.alias("_name"), due.alias("_due")]


def _bare() -> Column:
    """A record without any own header."""
    return _own_times() == 0


def _position() -> Column:
    """The id of a record without one: unique, and the same when the record is read again."""
    return F.concat_ws("-", F.col("topic"), F.col("partition"), F.col("offset"))


def _delayed_ms(delay_ms: int) -> Column:
    """The record's time plus the delay, rounded up; null without a time, which Kafka writes as -1."""
    micros = F.unix_micros(F.col("timestamp"))
    record_ms = F.unix_millis(F.col("timestamp")) + F.when(micros % 1_000 > 0, 1).otherwise(0)
    return F.when(micros >= 0, record_ms + F.lit(delay_ms).cast("long"))


# Checking them


def _reason(contract: Contract) -> Column:
    """All problems of a record; empty if there are none."""
    id_problem = _given_problem(contract, "id", _name_problem())
    deadline_problem = _given_problem(contract, "deadline", _deadline_problem())
    deadline_problem = F.when(_needs_deadline(), deadline_problem)
    if contract.delay_ms is not None:
        id_problem = F.when(_bare(), _name_problem()).otherwise(id_problem)
        deadline_problem = F.when(_bare(), _delay_problem()).otherwise(deadline_problem)
    return F.concat_ws(
        "; ",
        _action_problem(contract),
        id_problem,
        deadline_problem,
        _size_problem("key", MAX_KEY_BYTES),
        _size_problem("value", contract.largest_value_bytes),
        *_others_problems(),
    )


def _given_problem(contract: Contract, what: str, otherwise: Column) -> Column:
    name, times = _own(contract)[what], _times(what)
    missing = f"header {name} is missing"
    if contract.delay_ms is not None:
        missing += "; the delay is for records without any of these headers"
    return (
        F.when(times == 0, F.lit(missing))
        .when(times > 1, _words(f"header {name} is given ", times, " times; give it once"))
        .when(F.col(f"_{what}").isNull(), F.lit(f"header {name} has no value"))
        .otherwise(otherwise)
    )


def _action_problem(contract: Contract) -> Column:
    action = F.col("_action")
    said = F.when(action.rlike(_SHOWN), _words("'", action, "'")).otherwise("something else")
    wanted = f"; write {CANCEL} or {RESCHEDULE}, or leave it out"
    other = F.when(
        ~action.isin(CANCEL, RESCHEDULE),
        _words(f"header {contract.action_header} is ", said, wanted),
    )
    return F.when(_times("action") > 0, _given_problem(contract, "action", other))


def _name_problem() -> Column:
    name, size = F.col("_name"), F.length("_name")
    most = f" characters; at most {MAX_ID_CHARACTERS} are allowed"
    return (
        F.when(~F.is_valid_utf8(name), F.lit("id is not valid UTF-8"))
        .when(name == "", F.lit("id is empty"))
        .when(size > MAX_ID_CHARACTERS, _words("id has ", size, most))
        .when(name.contains("\0"), F.lit("id contains a NUL character"))
    )


def _needs_deadline() -> Column:
    """The deadline is ignored in a cancel, and in a record with an unknown action."""
    reschedule = (_times("action") == 1) & (F.col("_action") == RESCHEDULE)
    return (_times("action") == 0) | F.coalesce(reschedule, F.lit(False))


def _deadline_problem() -> Column:
    """The first broken rule; each rule assumes that the rules before it hold."""
    text, second = F.col("_deadline"), _part("second")
    said = F.when(text.rlike(_SHOWN), _words("deadline '", text, "' ")).otherwise("deadline ")
    hours = (_part("hour") <= _LAST_HOUR) & (_part("minute") <= _LAST_MINUTE)
    offsets = (_part("offset_hour") <= _LAST_HOUR) & (_part("offset_minute") <= _LAST_MINUTE)
    rules = [
        (_part("form"), "is not a time as in RFC 3339, such as 2026-01-31T12:00:00.123Z"),
        (_part("day").isNotNull(), "names a day that does not exist"),
        (hours & (second <= _LEAP_SECOND), "names a time of day that does not exist"),
        (second < _LEAP_SECOND, "is a leap second, which no clock here has; write the next one"),
        (offsets, "has an offset that does not exist"),
        (F.col("_due").between(0, MAX_TIME_MS), "is not between 1970 and the year 9999"),
    ]
    return F.coalesce(*(F.when(~rule, _words("", said, words)) for rule, words in rules))


def _delay_problem() -> Column:
    due = F.col("_due")
    return F.when(
        due.isNull(), F.lit("the record has no time to which the delay could be added")
    ).when(due > MAX_TIME_MS, F.lit("the record's time and the delay end after the year 9999"))


def _size_problem(column: str, most_bytes: int) -> Column:
    size = F.octet_length(column)
    return F.when(size > most_bytes, _too_much(f"{column} has ", size, "bytes", most_bytes))


def _others_parts() -> list[Column]:
    """All names in one text, which is valid only if each of them is, and the bytes of names and values."""
    names, values = F.col("_others")["key"], F.col("_others")["value"].cast("array<string>")
    total = F.octet_length(F.array_join(names, "")) + F.octet_length(F.array_join(values, ""))
    # A comma separates names, so that two invalid halves do not form a valid whole; a NUL is a missing name.
    return [F.array_join(names, ",", "\0").alias("_names"), total.alias("_bytes")]


def _others_problems() -> list[Column]:
    others, count = F.col("_others"), F.size("_others")
    names, total = F.col("_names"), F.col("_bytes")
    fine = (
        F.is_valid_utf8(names) & ~names.contains("\0") & (F.octet_length(names) <= MAX_NAME_BYTES)
    )
    each = F.concat_ws("; ", F.array_distinct(F.transform(others, _header_name_problem)))
    return [
        F.when(count > MAX_HEADERS, _too_much("there are ", count, "headers", MAX_HEADERS)),
        F.when(
            total > MAX_HEADER_BYTES,
            _too_much("the headers have ", total, "bytes", MAX_HEADER_BYTES),
        ),
        F.when(~fine, F.nullif(each, F.lit(""))),
    ]


def _header_name_problem(header: Column) -> Column:
    """The problem of a header's name. It may be empty; otherwise the rules of names apply."""
    name, what = header["key"], "the name of a header"
    return (
        F.when(name.isNull(), F.lit("a header has no name"))
        .when(~F.is_valid_utf8(name), F.lit(f"{what} is not valid UTF-8"))
        .when(
            F.octet_length(name) > MAX_NAME_BYTES,
            F.lit(f"{what} has more than {MAX_NAME_BYTES} bytes"),
        )
        .when(name.contains("\0"), F.lit(f"{what} contains a NUL character"))
    )


def _too_much(what: str, number: Column, unit: str, most: int) -> Column:
    return _words(what, number, f" {unit}; at most {most} are allowed")


def _words(before: str, said: Column, after: str) -> Column:
    return F.concat(F.lit(before), said.cast("string"), F.lit(after))
