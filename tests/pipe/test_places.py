"""Places of topics."""

import pickle
from typing import Any

import pytest

from chronoline.core.errors import InvalidInput
from chronoline.pipe.places import Place

SECRETS = {"sasl.jaas.config": 'x.PlainLoginModule required username="u" password="hidden";'}


def test_a_place_travels_and_keeps_its_secrets_when_printed() -> None:
    for place in (
        Place.of_kafka("t", "a:1,b:2", SECRETS, producer={"sasl.password": "hidden"}),
        Place.of_log("t", "file:///x?index=postgresql%3A%2F%2Fu%3Ahidden%40h%2Fd"),
    ):
        assert pickle.loads(pickle.dumps(place)) == place
        assert "hidden" not in repr(place)


def test_java_and_librdkafka_get_the_same_properties() -> None:
    place = Place.of_kafka("t", "a:1", SECRETS | {"kafka.client.id": "c"}, producer={"acks": "all"})
    assert place.java() == SECRETS | {"bootstrap.servers": "a:1", "client.id": "c"}
    assert place.librdkafka() == {
        "bootstrap.servers": "a:1",
        "client.id": "c",
        "sasl.username": "u",
        "sasl.password": "hidden",
        "acks": "all",
    }


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"kind": "queue", "topic": "t"}, "not on 'queue'"),
        ({"kind": "kafka", "topic": "a b", "bootstrap": "h:1"}, "not a name of a Kafka topic"),
        ({"kind": "kafka", "topic": "..", "bootstrap": "h:1"}, "not a name of a Kafka topic"),
        ({"kind": "kafka", "topic": "t"}, "are not named"),
        ({"kind": "kafka", "topic": "t", "bootstrap": "h:1,"}, "are not named"),
        ({"kind": "kafka", "topic": "t", "bootstrap": "h:1", "log": "file:///x"}, "a log too"),
        (
            {
                "kind": "kafka",
                "topic": "t",
                "bootstrap": "h:1",
                "properties": {"kafka.bootstrap.servers": "i:1"},
            },
            "name its servers once",
        ),
        ({"kind": "log", "topic": "", "log": "file:///x"}, "empty"),
        ({"kind": "log", "topic": "t"}, "chronoline log init"),
        (
            {"kind": "log", "topic": "t", "log": "file:///x", "bootstrap": "h:1"},
            "nothing of Kafka's",
        ),
    ],
)
def test_invalid_place_is_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        Place(**wrong)
