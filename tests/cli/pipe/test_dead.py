"""`dead`: the dead letters that a store keeps, with why and whence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from chronoline.core.message import NewMessage
from chronoline.core.topic import TopicSettings
from chronoline.pipe.intake import ORIGIN_HEADER, REASON_HEADER
from chronoline.stores.factory import open_store
from chronoline.stores.inputs import InputRecord, Intake, Rejected
from tests.cli.pipe.command import pipe, printed, refusal, store_url

DIED_MS = 1_767_225_600_000
FIRST = {
    "id": "letter-0",
    "former_id": None,
    "died": "2026-01-01T00:00:00.000Z",
    "reason": "rejected",
    "why": "header chronosDeadline is missing",
    "topic": "a/topic",
    "partition": 3,
    "offset": 0,
    "due": "2026-01-01T00:00:00.000Z",
    "attempts": 0,
}
LAST = {
    "id": "poison\x1b",
    "former_id": None,
    "died": "2026-01-01T00:00:00.001Z",
    "reason": "attempts",
    "why": None,
    "topic": None,
    "partition": None,
    "offset": None,
    "due": "2026-01-01T00:00:00.001Z",
    "attempts": 1,
}


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    """Of a pipe that rejected two records, and could not publish a message."""
    url = store_url(tmp_path)
    with open_store(url) as store:
        topic = store.create_topic("p", TopicSettings(max_attempts=1), now_ms=DIED_MS)
        (claim,) = store.claim_inputs("s", {3: 0}, "n", until_ms=DIED_MS + 1_000, now_ms=DIED_MS)
        records = [InputRecord(number, Rejected(letter(number))) for number in range(2)]
        intake = Intake(claim, records, 0, 2)
        store.take_in(topic.uid, [intake], producer_group="p", now_ms=DIED_MS)
        misleading = ((ORIGIN_HEADER, b"elsewhere/1/2"),)
        poison = NewMessage(id="poison\x1b", due=DIED_MS + 1, headers=misleading)
        store.create(topic.uid, [poison], now_ms=DIED_MS + 1)
        leased = store.reserve(
            topic.uid, topic.all_buckets, consumer="c", limit=1, lease_ms=1_000, now_ms=DIED_MS + 1
        ).leased
        moves = [(each.lease, DIED_MS + 100) for each in leased]
        store.retry(topic.uid, moves, now_ms=DIED_MS + 1)
    return ["dead", "--name=p", f"--store={url}"]


def letter(number: int) -> NewMessage:
    headers = (
        (ORIGIN_HEADER, b"its own"),
        (REASON_HEADER, b"header chronosDeadline is missing"),
        (ORIGIN_HEADER, b"a/topic/3/%d" % number),
    )
    return NewMessage(id=f"letter-{number}", due=DIED_MS, headers=headers)


def test_letters_are_listed_with_reason_and_origin(arguments: list[str]) -> None:
    assert printed(*arguments).splitlines() == [
        "2026-01-01T00:00:00.000Z  letter-0  a/topic/3/0",
        "    rejected: header chronosDeadline is missing",
        "2026-01-01T00:00:00.000Z  letter-1  a/topic/3/1",
        "    rejected: header chronosDeadline is missing",
        "2026-01-01T00:00:00.001Z  poison\N{REPLACEMENT CHARACTER}",
        "    attempts: due 2026-01-01T00:00:00.001Z, 1 attempts failed",
    ]


def test_letters_as_json(arguments: list[str]) -> None:
    first, _, last = json.loads(printed(*arguments, "--json"))
    assert (first, last) == (FIRST, LAST)


def test_letter_that_gave_up_its_id_names_it(arguments: list[str], tmp_path: Path) -> None:
    with open_store(store_url(tmp_path)) as store:
        topic = store.find_topic("p")
        assert topic is not None
        (claim,) = store.claim_inputs("s", {3: 0}, "n", until_ms=DIED_MS + 1_000, now_ms=DIED_MS)
        again = InputRecord(2, NewMessage(id="letter-0", due=DIED_MS))
        store.take_in(topic.uid, [Intake(claim, [again], 0, 3)], producer_group="p", now_ms=DIED_MS)
    found = {each["former_id"]: each for each in json.loads(printed(*arguments, "--json"))}
    kept = found["letter-0"]
    assert kept == FIRST | {"id": kept["id"], "former_id": "letter-0"}
    assert f"{kept['id']} (was letter-0)  a/topic/3/0" in printed(*arguments)


def test_limit_shows_the_oldest_letters(arguments: list[str]) -> None:
    answer = pipe(*arguments, "--limit=1", "--json")
    assert json.loads(answer.stdout) == [FIRST]
    assert answer.stderr == "There are more than 1: --limit shows more.\n"
    assert pipe(*arguments, "--limit=3").stderr == ""
    assert pipe(*arguments, "--limit=0").exit_code == 2


def test_missing_letters_are_reported(tmp_path: Path) -> None:
    url = store_url(tmp_path)
    with open_store(url) as store:
        store.create_topic("p", now_ms=DIED_MS)
    arguments = ["dead", "--name=p", f"--store={url}"]
    none = "The store keeps no dead letters of the pipe 'p'."
    assert printed(*arguments) == f"{none}\n"
    assert json.loads(printed(*arguments, "--json")) == []
    half = {"CHRONOLINE_PIPE_DEAD_LETTERS__TOPIC": "d"}
    assert printed(*arguments, **half) == f"{none}\n"
    whole = half | {"CHRONOLINE_PIPE_DEAD_LETTERS__LOG": str(tmp_path)}
    assert printed(*arguments, **whole) == f"{none} They are moved to the topic 'd'.\n"


def test_unknown_pipe_is_refused_and_creates_nothing(arguments: list[str], tmp_path: Path) -> None:
    assert "no pipe named 'q' has ever run" in refusal(*arguments, "--name=q")
    nowhere = tmp_path / "nowhere"
    assert "there is no store" in refusal(*arguments, f"--store={store_url(nowhere)}")
    assert not nowhere.exists()
