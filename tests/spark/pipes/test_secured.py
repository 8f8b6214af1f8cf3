"""A pipe on a Kafka cluster with TLS, passwords and rights: the same properties serve Spark and us alike."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin._acl import AclOperation  # the library's only place of these classes
from confluent_kafka.admin._resource import ResourceType  # as above
from pyspark.sql import SparkSession

from chronoline.pipe.checks import check_pipe
from chronoline.pipe.kafka import KafkaTopic
from chronoline.pipe.settings import PipeSettings
from chronoline.pipe.spark.pipe import Pipe
from chronoline.testing.postgres import PostgresServer
from tests.certificates import Authority
from tests.spark.pipes.places import OnServers
from tests.spark.pipes.scene import Scene, now_ms, until
from tests.spark.pipes.secured import SecuredKafkaServer

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def kafka(spare_kafka: SecuredKafkaServer) -> SecuredKafkaServer:
    return spare_kafka


@pytest.fixture(scope="module")
def scene(kafka: SecuredKafkaServer, postgres_server: PostgresServer) -> Iterator[Scene]:
    """Published and read through the plain door."""
    with OnServers(kafka, postgres_server) as place, Scene(place) as scene:
        kafka.grant("pipe", ResourceType.TOPIC, scene.input, AclOperation.READ)
        kafka.grant("pipe", ResourceType.TOPIC, scene.output, AclOperation.WRITE)
        kafka.grant("pipe", ResourceType.TOPIC, scene.dead_letters, AclOperation.WRITE)
        kafka.grant("pipe", ResourceType.GROUP, scene.name, AclOperation.READ)
        yield scene


def settings(scene: Scene, properties: dict[str, Any], **more: Any) -> PipeSettings:
    topics = {"input": scene.input, "output": scene.output, "dead_letters": scene.dead_letters}
    tables = {name: {"topic": topic, "kafka": properties} for name, topic in topics.items()}
    return scene.settings(**tables, **more)


def problems(found: PipeSettings) -> dict[str, str]:
    return {
        finding.part: finding.words
        for finding in check_pipe(found, lambda: "not looked at")
        if not finding.fine
    }


def test_records_pass_and_malformed_ones_are_relayed(
    kafka: SecuredKafkaServer, scene: Scene, spark: SparkSession
) -> None:
    found = settings(scene, kafka.properties("pipe"))
    assert problems(found) == {}
    with Pipe(found, spark):
        due_ms = now_ms() + 1_000
        sent = scene.send_all([scene.record(f"m{number}", due_ms) for number in range(20)])
        wrong = scene.send("no deadline")
        scene.wait_out(sent)
        until(lambda: wrong in scene.relayed(), "the malformed one is relayed")
        assert not scene.account()


def test_passwords_without_tls_pass_too(kafka: SecuredKafkaServer, scene: Scene) -> None:
    door = {"bootstrap.servers": kafka.plaintext_bootstrap, "security.protocol": "SASL_PLAINTEXT"}
    assert problems(settings(scene, kafka.properties("pipe") | door)) == {}
    said = problems(settings(scene, kafka.properties("pipe", password="guessed") | door))
    assert "Authentication failed" in said["input"]


def test_missing_rights_are_named(kafka: SecuredKafkaServer, scene: Scene) -> None:
    kafka.grant("other", ResourceType.TOPIC, scene.input, AclOperation.DESCRIBE)
    kafka.grant("other", ResourceType.TOPIC, scene.output, AclOperation.DESCRIBE)
    said = problems(settings(scene, kafka.properties("other")))
    assert f"this user may not read the Kafka topic {scene.input!r}" in said["input"]
    assert f"this user may not write the Kafka topic {scene.output!r}" in said["output"]
    assert "denies this user" in said["dead letters"]


def test_failed_authentication_is_reported_without_the_password(
    kafka: SecuredKafkaServer, scene: Scene, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    said = problems(settings(scene, kafka.properties("pipe", password="guessed")))
    assert "refuses the login: " in said["input"]
    assert "Authentication failed" in said["input"]
    assert "guessed" not in str(said)
    stranger = kafka.properties("pipe") | {"ssl.truststore.location": str(Authority(tmp_path).file)}
    of_input = (
        each for each in check_pipe(settings(scene, stranger), lambda: "") if each.part == "input"
    )
    assert "certificate verify failed" in next(of_input).words
    # A server that waits for TLS does not answer at all.
    monkeypatch.setattr(KafkaTopic.__init__, "__kwdefaults__", {"timeout_s": 1.0})
    plain = settings(scene, {"bootstrap.servers": kafka.secured_bootstrap})
    of_input = (each for each in check_pipe(plain, lambda: "") if each.part == "input")
    assert "Check its address, that it runs, and security.protocol" in next(of_input).words
