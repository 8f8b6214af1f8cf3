from __future__ import annotations

import sys

import pytest

from chronoline.core.errors import InvalidInput
from chronoline.core.rights import ALL_RIGHTS, Right, RightKind, Rights

PRODUCE, CONSUME = RightKind.PRODUCE, RightKind.CONSUME
OBSERVE, ADMINISTER = RightKind.OBSERVE, RightKind.ADMINISTER


def rights(*texts: str) -> Rights:
    return Rights.parse(texts)


@pytest.mark.parametrize(
    "text",
    [
        "produce",
        "produce:orders-*",
        "produce:orders-*:billing",
        "produce:*:billing",
        "consume:a:b",
        "observe:a",
        "administer",
        "timers",
        "node",
    ],
)
def test_right_is_written_as_it_was_read(text: str) -> None:
    assert str(Right.parse(text)) == text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is no right: it begins with one of produce"),
        ("Produce", "is no right"),
        ("write:a", "is no right"),
        ("produce:a:b:c", "too many parts; its form is produce:[topics]:[producer groups]"),
        ("observe:a:b", "too many parts; its form is observe:[topics]"),
        ("node:a", "too many parts; its form is node"),
        ("consume:", "the pattern of topics in 'consume:' is empty"),
        ("consume:a:", "the pattern of consumers"),
        ("consume:\0", "contains a NUL"),
    ],
)
def test_wrong_right_is_refused_with_its_form(text: str, said: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        Right.parse(text)
    assert said in str(refused.value)


def test_too_many_rights_are_refused() -> None:
    with pytest.raises(InvalidInput, match="101 rights"):
        rights(*["observe"] * 101)


def test_right_counts_for_its_topics_and_names_alone() -> None:
    given = rights("produce:orders-*:billing", "consume:mails:worker-*")
    assert given.allows(PRODUCE, "orders-eu", "billing")
    assert not given.allows(PRODUCE, "orders-eu", "billing2")
    assert not given.allows(PRODUCE, "mails", "billing")
    assert given.allows(CONSUME, "mails", "worker-7")
    assert not given.allows(CONSUME, "mails", "another")
    assert not given.allows(OBSERVE, "mails")
    assert not given.allows(ADMINISTER, "mails")


def test_any_topic_or_name_can_be_asked_for() -> None:
    given = rights("produce:orders-*:billing")
    assert given.allows(PRODUCE, None, "billing")
    assert given.allows(PRODUCE, "orders-eu")
    assert not given.allows(PRODUCE, None, "shipping")
    assert not given.allows(PRODUCE, "mails")


def test_administering_includes_observing_and_nothing_else() -> None:
    given = rights("administer:a")
    assert given.allows(ADMINISTER, "a")
    assert given.allows(OBSERVE, "a")
    assert not given.allows(OBSERVE, "b")
    assert not given.allows(PRODUCE, "a", "g")
    assert not given.allows(CONSUME, "a", "c")
    assert not rights("observe:a").allows(ADMINISTER, "a")


@pytest.mark.parametrize("kind", RightKind)
def test_all_rights_allow_every_kind(kind: RightKind) -> None:
    assert ALL_RIGHTS.allows(kind, "any", "any")
    assert not rights().allows(kind, "any", "any")


@pytest.mark.parametrize("tricky", ["a.c", "a[b]c", "a?c", "a\\c", "a/../c", "a\nc"])
def test_only_the_star_is_special_in_a_pattern(tricky: str) -> None:
    exact = rights(f"observe:{tricky}")
    assert exact.allows(OBSERVE, tricky)
    assert not exact.allows(OBSERVE, "abc")
    assert rights("observe:a*c").allows(OBSERVE, tricky)
    assert not rights("observe:a*c").allows(OBSERVE, tricky + "d")


def test_topic_with_any_right_is_touched() -> None:
    assert rights("consume:a:w").touches("a")
    assert not rights("consume:a:w").touches("b")
    assert not rights("node", "timers").touches("a")


def test_pattern_of_many_stars_fails_at_once() -> None:
    rights = Rights.parse(["produce:" + "*a" * 60])
    assert rights.allows(RightKind.PRODUCE, "a" * 200)
    assert not rights.allows(RightKind.PRODUCE, "a" * 200 + "b")


def test_text_that_is_no_name_is_not_remembered() -> None:
    rights, text = Rights.parse(["produce:a"]), "x" * 1_000
    before = sys.getrefcount(text)
    assert ALL_RIGHTS.allows(PRODUCE, text, text)
    assert not rights.allows(PRODUCE, text)
    assert sys.getrefcount(text) == before


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        ("a*b*c", ["abc", "axbxc", "abbcc", "abcbc"], ["ab", "ac", "abcx", "xabc", "acb"]),
        ("*ab", ["ab", "aab", "abab"], ["aba", "b"]),
        ("ab*", ["ab", "abab"], ["a", "bab"]),
        ("a**b", ["ab", "axb"], ["a"]),
        ("*aa*aa", ["aaaa", "aaxaa"], ["aaa", "aa"]),
        ("a.c", ["a.c"], ["abc"]),
    ],
)
def test_stars_stand_for_any_characters(
    pattern: str, inside: list[str], outside: list[str]
) -> None:
    rights = Rights.parse([f"produce:{pattern}"])
    assert all(rights.allows(RightKind.PRODUCE, each) for each in inside)
    assert not any(rights.allows(RightKind.PRODUCE, each) for each in outside)
