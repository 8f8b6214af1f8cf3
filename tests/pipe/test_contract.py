"""The contract of a pipe's input, rule by rule, and against a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from chronoline.core.limits import MAX_TIME_MS
from chronoline.core.message import NewMessage
from chronoline.pipe.contract import Contract, Malformed, SourceRecord
from chronoline.stores.inputs import Cancel, Reschedule
from tests.pipe.contract_model import ACTION, DEADLINE, ID, Header, ReadRecord, Record, read

WHEN = b"2026-01-31T12:00:00.123Z"
WHEN_MS = 1_769_860_800_123


def ask(records: Sequence[Record], **contract: Any) -> list[ReadRecord]:
    return [answer(record, **contract) for record in records]


def answer(record: Record, **contract: Any) -> ReadRecord:
    """Reads a record by the contract, and answers in the words of the model."""
    given: dict[str, Any] = {"topic": record.topic, "producer_group": "pipe", **contract}
    headers = record.headers or ()
    found = Contract(**given).read(
        SourceRecord(
            record.partition, record.offset, record.key, record.value, headers, record.time_ms
        )
    )
    own = {given.get(f"{each}_header", default) for each, default in OWN.items()}
    others = tuple(header for header in headers if header[0] not in own)
    fields: dict[str, Any] = {
        "partition": record.partition,
        "offset": record.offset,
        "key": record.key,
        "value": record.value,
        "headers": others,
    }
    match found:
        case Malformed(reason):
            fields |= {"action": "reject", "reason": reason, "headers": headers}
        case Cancel(name):
            fields |= {"action": "cancel", "id": name}
        case Reschedule(name, due):
            fields |= {"action": "reschedule", "id": name, "due": due}
        case NewMessage():
            assert found.producer_group == "pipe"
            fields |= {"action": "create", "id": found.id, "due": found.due, "key": found.key}
            fields |= {"value": found.body, "headers": found.headers}
    return ReadRecord(**fields)


OWN = {"id": ID, "deadline": DEADLINE, "action": ACTION}


def message(*headers: Header, id: bytes | None = b"u1", deadline: bytes | None = WHEN) -> Record:
    return Record(headers=((ID, id), (DEADLINE, deadline), *headers))


DEADLINES = {
    "1970-01-01T00:00:00Z": 0,
    "2026-01-31T12:00:00Z": WHEN_MS - 123,
    "2026-01-31t12:00:00z": WHEN_MS - 123,
    "2026-01-31 12:00:00": WHEN_MS - 123,
    "2026-01-31T12:00:00.123": WHEN_MS,
    "2026-01-31T12:00:00.1": WHEN_MS - 23,
    "2026-01-31T12:00:00.12": WHEN_MS - 3,
    "2026-01-31T12:00:00.1230": WHEN_MS,
    "2026-01-31T12:00:00.1220001": WHEN_MS,
    "2026-01-31T12:00:00.122" + "0" * 2_000 + "1+00:00": WHEN_MS,
    "2026-01-31T11:59:59.9999999999999": WHEN_MS - 123,
    "2026-01-31T13:30:00.123+01:30": WHEN_MS,
    "2026-01-30T12:01:00.123-23:59": WHEN_MS,
    "2026-01-31T12:00:00.123-00:00": WHEN_MS,
    "2024-02-29T00:00:00Z": 1_709_164_800_000,
    "2000-02-29T00:00:00Z": 951_782_400_000,
    "1969-12-31T23:59:59.9995Z": 0,
    "1969-12-31T23:30:00-01:00": 1_800_000,
    "9999-12-31T23:59:59.999Z": MAX_TIME_MS,
    "9999-12-31T23:59:59.998001Z": MAX_TIME_MS,
    "2026-03-29T02:30:00Z": 1_774_751_400_000,  # an hour that zones with summer time skip
}

NO_DEADLINES = {
    "is not a time as in RFC 3339": [
        "",
        "tomorrow",
        " 2026-01-31T12:00:00Z",
        "2026-01-31T12:00:00Z ",
        "2026-01-31T12:00:00Z\n",
        "2026-01-31T12:00Z",
        "2026-01-31",
        "2026-1-31T12:00:00Z",
        "20260131T120000Z",
        "2026-01-31T12:00:00,5Z",
        "2026-01-31T12:00:00.Z",
        "2026-01-31T12:00:00+0100",
        "2026-01-31T12:00:00+01",
        "2026-01-31T12:00:00Z+01:00",
        "2026-01-31T12:00:00 Z",
        "2026-01-31T12:00:00-+1:00",
        "+2026-01-31T12:00:00Z",
        "12026-01-31T12:00:00Z",
        "\uff12\uff10\uff12\uff16-01-31T12:00:00Z",
        "1769860800123",
        "2026-01-31T12:00:00[UTC]",
        "2026-01-31T12:00:00Z\0",
    ],
    "names a day that does not exist": [
        "2026-02-30T00:00:00Z",
        "2023-02-29T00:00:00Z",
        "2100-02-29T00:00:00Z",
        "2026-04-31T00:00:00Z",
        "2026-13-01T00:00:00Z",
        "2026-00-01T00:00:00Z",
        "2026-01-00T00:00:00Z",
    ],
    "names a time of day that does not exist": [
        "2026-01-31T24:00:00Z",
        "2026-01-31T12:60:00Z",
        "2026-01-31T12:00:61Z",
        "2026-01-31T99:99:99Z",
    ],
    "is a leap second": ["2016-12-31T23:59:60Z", "2016-12-31T23:59:60.5+00:00"],
    "has an offset that does not exist": ["2026-01-31T12:00:00+24:00", "2026-01-31T12:00:00-00:60"],
    "is not between 1970 and the year 9999": [
        "1969-12-31T23:59:59.999Z",
        "1970-01-01T00:00:00+00:01",
        "9999-12-31T23:59:59.9990001Z",
        "9999-12-31T23:59:59-00:01",
        "0000-01-01T00:00:00Z",
        "0001-01-01T00:00:00Z",
    ],
}


def test_deadlines() -> None:
    asked = ask([message(deadline=text.encode()) for text in DEADLINES])
    found = {text: each.due for text, each in zip(DEADLINES, asked, strict=True)}
    assert found == DEADLINES
    assert {each.action for each in asked} == {"create"}


def test_invalid_deadline_is_rejected_with_a_reason() -> None:
    cases = [(why, text) for why, texts in NO_DEADLINES.items() for text in texts]
    asked = ask([message(deadline=text.encode()) for _, text in cases])
    for (why, text), each in zip(cases, asked, strict=True):
        assert each.action == "reject", text
        assert each.reason is not None
        assert why in each.reason, text
        assert each.due is None


def test_reason_repeats_only_short_printable_values() -> None:
    long, wild, binary, soon = ask(
        [message(deadline=given) for given in (b"x" * 65, b"a\x1b[2J", b"\xff\xfe", b"soon")],
    )
    plain = "deadline is not a time as in RFC 3339, such as 2026-01-31T12:00:00.123Z"
    assert [long.reason, wild.reason, binary.reason] == [plain] * 3
    assert soon.reason == plain.replace("deadline", "deadline 'soon'")


GOOD_IDS = ["a", " ", "x" * 128, "é" * 128, "😀" * 128, "a\nb", "'; drop table x", "e\u0301"]
BAD_IDS = {
    b"": "id is empty",
    b"x" * 129: "id has 129 characters; at most 128 are allowed",
    "😀".encode() * 129: "id has 129 characters; at most 128 are allowed",
    b"a\0b": "id contains a NUL character",
    b"\xff": "id is not valid UTF-8",
    b"\xc0\x80": "id is not valid UTF-8",  # a NUL, written too long
    b"\xed\xa0\x80": "id is not valid UTF-8",  # half of a pair
    b"\xf4\x90\x80\x80": "id is not valid UTF-8",  # past the last character
    b"\xe2\x82": "id is not valid UTF-8",  # cut off
}


def test_ids_are_counted_in_characters() -> None:
    asked = ask([message(id=text.encode()) for text in GOOD_IDS])
    assert [each.id for each in asked] == GOOD_IDS
    assert [each.reason for each in asked] == [None] * len(GOOD_IDS)


def test_invalid_id_is_rejected_with_a_reason() -> None:
    asked = ask([message(id=given) for given in BAD_IDS])
    assert [each.reason for each in asked] == list(BAD_IDS.values())
    assert {(each.action, each.id) for each in asked} == {("reject", None)}


def test_own_headers_are_there_once_and_have_a_value() -> None:
    twice = message((ID, b"u2"), (DEADLINE, WHEN), (DEADLINE, WHEN), (ACTION, b"cancel"))
    lower = Record(headers=((ID.lower(), b"u1"), (DEADLINE.upper(), WHEN)))
    asked = ask(
        [Record(), Record(headers=()), lower, message(id=None, deadline=None), twice],
    )
    missing = f"header {ID} is missing; header {DEADLINE} is missing"
    assert [each.reason for each in asked] == [
        missing,
        missing,
        missing,
        f"header {ID} has no value; header {DEADLINE} has no value",
        f"header {ID} is given 2 times; give it once",
    ]
    assert [each.headers for each in asked] == [
        (),
        (),
        lower.headers,
        ((ID, None), (DEADLINE, None)),
        twice.headers,
    ]


def test_other_headers_pass_unchanged() -> None:
    others = (
        ("b", b"1"),
        ("a", bytes(range(256))),
        ("b", None),
        ("", b""),
        ("ä", b"2"),
        ("b", b"1"),
        # The trace of the sender, or anything of that name.
        ("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        ("traceparent", b"mine"),
    )
    record = Record(
        headers=(others[0], (DEADLINE, WHEN), *others[1:4], (ID, b"u1"), *others[4:]),
        key=b"",
        value=bytes(range(256)),
        partition=7,
        offset=1 << 40,
    )
    (asked,) = ask([record])
    assert asked == ReadRecord(
        partition=7,
        offset=1 << 40,
        action="create",
        id="u1",
        due=WHEN_MS,
        key=b"",
        value=bytes(range(256)),
        headers=others,
    )


def test_actions() -> None:
    cancel, again, late = ask(
        [
            Record(headers=((ID, b"u1"), (ACTION, b"cancel"), ("a", b"1")), key=b"k"),
            message((ACTION, b"cancel"), deadline=b"is not looked at"),
            message((ACTION, b"reschedule")),
        ],
    )
    assert (cancel.action, cancel.id, cancel.due) == ("cancel", "u1", None)
    assert (cancel.key, cancel.headers) == (b"k", (("a", b"1"),))
    assert (again.action, again.id, again.due) == ("cancel", "u1", None)
    assert (late.action, late.id, late.due) == ("reschedule", "u1", WHEN_MS)


def test_invalid_action_is_rejected_with_a_reason() -> None:
    wanted = "; write cancel or reschedule, or leave it out"
    cases = {
        Record(headers=((ACTION, b"cancel"),)): f"header {ID} is missing",
        Record(headers=((ACTION, b"reschedule"), (ID, b"u1"))): f"header {DEADLINE} is missing",
        message((ACTION, b"Cancel")): f"header {ACTION} is 'Cancel'{wanted}",
        message((ACTION, b"create")): f"header {ACTION} is 'create'{wanted}",
        message((ACTION, b"")): f"header {ACTION} is something else{wanted}",
        message((ACTION, b"\xff")): f"header {ACTION} is something else{wanted}",
        message((ACTION, None)): f"header {ACTION} has no value",
        message((ACTION, b"cancel"), (ACTION, b"cancel")): (
            f"header {ACTION} is given 2 times; give it once"
        ),
    }
    asked = ask(list(cases))
    assert [each.reason for each in asked] == list(cases.values())


def test_delay_sets_deadline_and_id_of_plain_records() -> None:
    at = {"topic": "orders", "partition": 3, "offset": 42, "time_ms": 1_000_000_000_001}
    records = [
        Record(**at),  # type: ignore[arg-type]  # mypy takes one type for all values
        Record(time_ms=2, headers=(("a", None),)),
        message(),
        Record(headers=((ID, b"u1"),)),
        Record(headers=((DEADLINE, WHEN),)),
        Record(headers=((ID, b"u1"), (ACTION, b"reschedule"))),
        Record(headers=((ID, b"u1"), (ACTION, b"cancel"))),
        Record(time_ms=-1),
        Record(time_ms=MAX_TIME_MS),
        Record(topic="x" * 125),
    ]
    asked = ask(records, delay_ms=5_000)
    hint = "; the delay is for records without any of these headers"
    assert [(each.action, each.id, each.due, each.reason) for each in asked] == [
        ("create", "orders-3-42", 1_000_000_005_001, None),
        ("create", "in-0-0", 5_002, None),
        ("create", "u1", WHEN_MS, None),
        ("reject", None, None, f"header {DEADLINE} is missing{hint}"),
        ("reject", None, None, f"header {ID} is missing{hint}"),
        ("reject", None, None, f"header {DEADLINE} is missing{hint}"),
        ("cancel", "u1", None, None),
        ("reject", None, None, "the record has no time to which the delay could be added"),
        ("reject", None, None, "the record's time and the delay end after the year 9999"),
        ("reject", None, None, "id has 129 characters; at most 128 are allowed"),
    ]
    assert asked[1].headers == (("a", None),)


def test_limits_count_what_would_be_stored() -> None:
    full = message(*[("a", b"x" * 255)] * 256)
    most = 65_536
    cases: dict[Record, str | None] = {
        full: None,
        message(*[("a", b"")] * 257): "there are 257 headers; at most 256 are allowed",
        message(
            ("a", b"x" * most)
        ): f"the headers have {most + 1} bytes; at most {most} are allowed",
        message(("é" * 127 + "x", b"")): None,
        message(("é" * 128, b""), ("é" * 129, b"")): "the name of a header has more than 255 bytes",
        message(("a\0", b"")): "the name of a header contains a NUL character",
        Record(headers=full.headers, key=b"k" * most, value=b"v" * 100): None,
        Record(headers=full.headers, key=b"k" * (most + 1), value=b"v" * 101): (
            f"key has {most + 1} bytes; at most {most} are allowed; "
            "value has 101 bytes; at most 100 are allowed"
        ),
    }
    asked = ask(list(cases), largest_value_bytes=100)
    assert [each.reason for each in asked] == list(cases.values())
    assert [each.headers for each in asked if each.reason] == [
        record.headers for record, reason in cases.items() if reason
    ]


def test_unreadable_headers_are_rejected_with_their_problem() -> None:
    record = SourceRecord(0, 0, b"k", b"v", (), 1, "the headers are odd")
    contract = Contract(topic="in", producer_group="pipe", delay_ms=0)
    assert contract.read(record) == Malformed("the headers are odd")


def test_the_names_of_headers_are_settings() -> None:
    names = {"id_header": "ü", "deadline_header": "at 'x'", "action_header": "do"}
    headers = (("at 'x'", WHEN), ("ü", b"u1"), (ID, b"other"), ("do", b"reschedule"))
    asked, missing = ask([Record(headers=headers), message()], **names)
    assert (asked.action, asked.id, asked.due) == ("reschedule", "u1", WHEN_MS)
    assert asked.headers == ((ID, b"other"),)
    assert missing.reason == "header ü is missing; header at 'x' is missing"


# Against the model

NUMBER = st.one_of(st.integers(0, 99), st.sampled_from([0, 1, 12, 23, 24, 28, 29, 30, 31, 59, 60]))
YEAR = st.one_of(st.integers(0, 9999), st.sampled_from([0, 1969, 1970, 2000, 2024, 2100, 9999]))


ZONES = st.sampled_from(["", "Z", "z", "+00:00", "-00:00", "+14:00", "-23:59", "+24:00", "+5:00"])
FRACTIONS = st.one_of(st.just(""), st.just(".9990"), st.from_regex(r"\A\.[0-9]{1,30}\Z"))
MOMENTS = st.builds(
    "{:04}-{:02}-{:02}{}{:02}:{:02}:{:02}{}{}".format,
    st.one_of(st.integers(1970, 9999), st.sampled_from([1969, 2026, 2100, 9999])),
    *(st.integers(1, 12), st.integers(1, 28), st.sampled_from("Tt ")),
    *(st.integers(0, 23), st.integers(0, 59), st.integers(0, 59)),
    FRACTIONS,
    ZONES,
).map(str.encode)
ODD_MOMENTS = st.builds(
    "{:04}-{:02}-{:02}{}{:02}:{:02}:{:02}{}{}".format,
    YEAR,
    *(NUMBER, NUMBER, st.sampled_from("TTt _")),
    *(NUMBER, NUMBER, NUMBER),
    FRACTIONS,
    ZONES,
).map(str.encode)
DEADLINES_DRAWN = st.one_of(
    MOMENTS, MOMENTS, ODD_MOMENTS, st.binary(max_size=40), st.text(max_size=40).map(str.encode)
)
IDS = st.one_of(
    *[st.text(min_size=1, max_size=20).map(str.encode)] * 3,
    st.binary(max_size=12),
    st.integers(126, 130).map(lambda size: "é".encode() * size),
)
OTHERS = st.tuples(
    st.one_of(st.text(max_size=5), st.sampled_from(["a", ID.lower(), "x" * 256])),
    st.none() | st.binary(max_size=20),
)
ACTIONS = st.sampled_from([b"cancel", b"reschedule", b"create", b"", None, b"\xff"])


@st.composite
def records(draw: st.DrawFn) -> Record:
    """Half of them as they should be, if their ids, deadlines and other headers happen to be."""
    asked = draw(st.sampled_from([None, b"cancel", b"reschedule"]))
    own = [(ID, draw(IDS)), (DEADLINE, draw(DEADLINES_DRAWN))]
    own += [(ACTION, asked)] if asked else []
    if draw(st.booleans()):
        odd = [
            (name, draw(values))
            for name, values in zip(OWN.values(), (IDS, MOMENTS, ACTIONS), strict=True)
        ]
        own = draw(
            st.lists(st.sampled_from([*own, *odd, (ID, None), (DEADLINE, None)]), max_size=4)
        )
    headers = draw(st.permutations([*own, *draw(st.lists(OTHERS, max_size=4))]))
    small = st.none() | st.binary(max_size=20)
    return Record(
        headers=tuple(headers) or draw(st.sampled_from([None, ()])),
        key=draw(small),
        value=draw(small),
        topic=draw(st.sampled_from(["in", "x" * 124])),
        partition=draw(st.integers(0, 100)),
        offset=draw(st.integers(0, 1 << 62)),
        time_ms=draw(st.integers(-5, MAX_TIME_MS + 1)),
    )


@pytest.mark.parametrize("delay_ms", [None, 0, 3_600_000])
def test_the_contract_answers_as_the_model_does(delay_ms: int | None) -> None:
    actions = set()

    @example(message())
    @example(message((ACTION, b"cancel")))
    @example(message((ACTION, b"reschedule")))
    @example(message((ACTION, b"odd")))
    @given(records())
    def check(record: Record) -> None:
        found = answer(record, delay_ms=delay_ms)
        actions.add(found.action)
        assert found == read(record, delay_ms=delay_ms)

    check()
    assert actions == {"create", "cancel", "reschedule", "reject"}
