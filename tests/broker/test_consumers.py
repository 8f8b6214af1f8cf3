"""The owners of consumers' names."""

from __future__ import annotations

import pytest

import chronoline.broker.grpc.consumers as module
from chronoline.broker.grpc.consumers import ConsumerNames
from chronoline.broker.principals import Principal
from chronoline.core.errors import ConsumerReplaced


class Stream:
    def __init__(self, token: str = "a", *topics: int) -> None:
        self.told: list[str] = []
        self.principal = Principal(token)
        self.topics = topics

    def is_subscribed(self, topic_uid: int) -> bool:
        return topic_uid in self.topics

    def leave(self) -> None:
        self.told.append("leave")

    def go_away(self, code: str, message: str) -> None:
        self.told.append(code)


def test_replaced_consumer_does_not_get_its_name_back() -> None:
    names, first, second = ConsumerNames(), Stream(), Stream()
    names.join("c", "1", first)
    names.join("c", "2", second)
    assert first.told == ["leave", "replaced"]
    with pytest.raises(ConsumerReplaced, match="'c' was replaced by a new connection"):
        names.join("c", "1", Stream())
    names.join("d", "1", Stream())  # of another name it is free
    assert second.told == []


def test_name_of_another_token_is_replaced_on_a_shared_topic_alone() -> None:
    names, first, second = ConsumerNames(), Stream("a", 1), Stream("b")
    names.join("c", "1", first)
    names.join("c", "2", second)
    names.subscribing("c", 2, second)
    assert first.told == []
    names.subscribing("c", 1, second)
    assert (first.told, second.told) == (["leave", "replaced"], [])
    with pytest.raises(ConsumerReplaced):
        names.join("c", "1", Stream("a"))
    names.join("c", "1", Stream("d"))  # the instance of another token


def test_stream_without_an_instance_always_gets_the_name() -> None:
    names, first, second = ConsumerNames(), Stream(), Stream()
    names.join("c", "", first)
    names.join("c", "", second)
    names.join("c", "", Stream())
    assert (first.told, second.told) == (["leave", "replaced"],) * 2


def test_end_of_a_replaced_stream_frees_nothing() -> None:
    names, first, second = ConsumerNames(), Stream(), Stream()
    names.join("c", "1", first)
    names.join("c", "1", second)
    names.leave("c", first)
    names.join("c", "1", Stream())
    assert second.told == ["leave", "replaced"]


def test_replaced_instances_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    # No setting: a small bound is reached soon.
    monkeypatch.setattr(module, "_REMEMBERED", 2)
    names = ConsumerNames()
    for instance in "1234":
        names.join("c", instance, Stream())
    names.join("c", "1", Stream())  # forgotten: the versions of its leases fence it
    for instance in "34":
        with pytest.raises(ConsumerReplaced):
            names.join("c", instance, Stream())
