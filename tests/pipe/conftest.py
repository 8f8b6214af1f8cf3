"""Topics of the shared Kafka server, one for each test that asks."""

import itertools
from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from chronoline_bench.servers.kafka import KafkaServer

NewKafkaTopic = Callable[..., str]

_numbers = itertools.count()


@pytest.fixture
def new_topic(kafka_server: KafkaServer) -> NewKafkaTopic:
    """Makes an empty topic with these partitions; named arguments are settings of the topic."""

    def make(partitions: int = 1, **settings: str) -> str:
        name = f"pipe-{next(_numbers)}"
        if settings:
            config = {setting.replace("_", "."): value for setting, value in settings.items()}
            admin = AdminClient({"bootstrap.servers": kafka_server.bootstrap})
            admin.create_topics([NewTopic(name, partitions, 1, config=config)])[name].result(60)
        else:
            kafka_server.create_topic(name, partitions)
        return name

    return make
