"""Java's names and librdkafka's."""

import pytest
from confluent_kafka import Producer

from chronoline.core.errors import InvalidInput
from chronoline.pipe.properties import (
    Value,
    consumer_properties,
    java_properties,
    librdkafka_properties,
)

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
KERBEROS = "com.sun.security.auth.module.Krb5LoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
OAUTH_HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
LOGIN = {"sasl.username": "u", "sasl.password": "p"}

SAME: dict[str, Value] = {
    "bootstrap.servers": "a:1,b:2",
    "client.id": "pipe",
    "client.dns.lookup": "use_all_dns_ips",
    "compression.type": "zstd",
    "linger.ms": "5",
    "metadata.max.age.ms": "10000",
    "reconnect.backoff.max.ms": "1000",
    "retries": "3",
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.kerberos.service.name": "kafka",
    "ssl.key.password": "secret",
}


@pytest.mark.parametrize(
    ("java", "expected"),
    [
        ({}, {}),
        (SAME, SAME),
        ({"kafka.security.protocol": "SSL"}, {"security.protocol": "SSL"}),
        (
            {"enable.idempotence": False, "batch.size": 5},
            {"enable.idempotence": "false", "batch.size": "5"},
        ),
        ({"max.request.size": "9"}, {"message.max.bytes": "9"}),
        ({"buffer.memory": "33554432"}, {"queue.buffering.max.kbytes": "32768"}),
        ({"request.timeout.ms": "7"}, {"request.timeout.ms": "7", "socket.timeout.ms": "7"}),
        ({"send.buffer.bytes": "8"}, {"socket.send.buffer.bytes": "8"}),
        (
            {"ssl.endpoint.identification.algorithm": ""},
            {"ssl.endpoint.identification.algorithm": "none"},
        ),
        (
            {"ssl.endpoint.identification.algorithm": "HTTPS"},
            {"ssl.endpoint.identification.algorithm": "https"},
        ),
        ({"ssl.enabled.protocols": "TLSv1.3, TLSv1.2"}, {}),
        ({"group.id": "g", "max.poll.records": "1", "metric.reporters": "x.Y"}, {}),
        ({"never.heard.of": "1"}, {"never.heard.of": "1"}),
        # Logging in
        ({"sasl.jaas.config": f'{PLAIN} required username="u" password="p";'}, LOGIN),
        ({"sasl.jaas.config": f" {SCRAM}  REQUIRED\n username=u\n password='p' ; "}, LOGIN),
        (
            {"sasl.jaas.config": f'{PLAIN} required username="u" password="a\\"b;c\\\\d=\\e";'},
            {"sasl.username": "u", "sasl.password": 'a"b;c\\d=e'},
        ),
        (
            {
                "sasl.jaas.config": f'{KERBEROS} required useKeyTab=true keyTab="/k" principal="u@R" '
                'serviceName="kafka";'
            },
            {
                "sasl.kerberos.keytab": "/k",
                "sasl.kerberos.principal": "u@R",
                "sasl.kerberos.service.name": "kafka",
            },
        ),
        (
            {
                "sasl.jaas.config": f'{OAUTH} required clientId="i" clientSecret="s" scope="x";',
                "sasl.login.callback.handler.class": OAUTH_HANDLER,
                "sasl.oauthbearer.token.endpoint.url": "https://login/token",
            },
            {
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.client.id": "i",
                "sasl.oauthbearer.client.secret": "s",
                "sasl.oauthbearer.scope": "x",
                "sasl.oauthbearer.token.endpoint.url": "https://login/token",
            },
        ),
        # TLS
        (
            {"ssl.truststore.type": "PEM", "ssl.truststore.location": "/ca.pem"},
            {"ssl.ca.location": "/ca.pem"},
        ),
        ({"ssl.truststore.type": "PEM", "ssl.truststore.certificates": "C"}, {"ssl.ca.pem": "C"}),
        (
            {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": "/me.pem",
                "ssl.key.password": "p",
            },
            {
                "ssl.certificate.location": "/me.pem",
                "ssl.key.location": "/me.pem",
                "ssl.key.password": "p",
            },
        ),
        (
            {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.certificate.chain": "C",
                "ssl.keystore.key": "K",
            },
            {"ssl.certificate.pem": "C", "ssl.key.pem": "K"},
        ),
        (
            {
                "ssl.keystore.type": "pkcs12",
                "ssl.keystore.location": "/me",
                "ssl.keystore.password": "p",
            },
            {"ssl.keystore.location": "/me", "ssl.keystore.password": "p"},
        ),
        ({"ssl.keystore.location": "/me.p12"}, {"ssl.keystore.location": "/me.p12"}),
    ],
)
def test_java_properties_are_translated(java: dict[str, Value], expected: dict[str, str]) -> None:
    assert librdkafka_properties(java) == expected


@pytest.mark.parametrize(
    ("java", "said"),
    [
        ({"ssl.truststore.location": "/t.jks"}, "keytool -list -rfc -keystore /t.jks > ca.pem"),
        (
            {"ssl.truststore.location": "/t.p12", "ssl.truststore.type": "PKCS12"},
            "truststores of type PKCS12",
        ),
        ({"ssl.keystore.location": "/k.jks"}, "-srckeystore /k.jks .* -deststoretype PKCS12"),
        (
            {"sasl.jaas.config": f'{SCRAM} required tokenauth=true username="secret";'},
            "without tokens",
        ),
        ({"sasl.jaas.config": f'{OAUTH} required clientId="secret";'}, "with a token endpoint"),
        (
            {"sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;"},
            "IAMLoginModule",
        ),
        ({"sasl.jaas.config": 'username="secret"'}, "PlainLoginModule required username"),
        ({"sasl.login.callback.handler.class": "x.Y"}, "Java class"),
        ({"partitioner.class": "x.Y"}, "places them"),
        ({"transactional.id": "x"}, "no transactions"),
        ({"ssl.cipher.suites": "TLS_AES_256_GCM_SHA384"}, "OpenSSL's names"),
        ({"ssl.enabled.protocols": "TLSv1.3"}, "ssl.cipher.suites"),
        ({"buffer.memory": "much"}, "whole number"),
        ({"linger.ms": "1", "kafka.linger.ms": "2"}, "given twice"),
        ({"kafka.": "1"}, "not a property"),
    ],
)
def test_untranslatable_property_is_refused_with_advice(java: dict[str, Value], said: str) -> None:
    with pytest.raises(InvalidInput, match=said) as refusal:
        librdkafka_properties(java)
    assert "secret" not in str(refusal.value)


def test_invalid_value_is_refused() -> None:
    nested: dict[str, Value] = {"acks": {"a": 1}}  # type: ignore[dict-item] # as a settings file may have it
    with pytest.raises(InvalidInput, match="'acks' must be text"):
        java_properties(nested)


@pytest.mark.parametrize(
    ("java", "own", "expected"),
    [
        ({"linger.ms": "1"}, {"linger.ms": "2"}, {"linger.ms": "2"}),
        ({"linger.ms": "1"}, {"linger.ms": ""}, {}),
        (
            {"ssl.truststore.location": "/t.jks"},
            {"ssl.ca.location": "/c"},
            {"ssl.ca.location": "/c"},
        ),
        (
            {"ssl.keystore.location": "/k.jks", "ssl.keystore.password": "p"},
            {"ssl.certificate.location": "/c", "ssl.key.location": "/k"},
            {"ssl.certificate.location": "/c", "ssl.key.location": "/k"},
        ),
        (
            {"sasl.jaas.config": "x.IAMLoginModule required;"},
            {"sasl.mechanism": "PLAIN"},
            {"sasl.mechanism": "PLAIN"},
        ),
        ({"transactional.id": "x"}, {"transactional.id": ""}, {}),
        ({"ssl.cipher.suites": "A"}, {"ssl.cipher.suites": "B"}, {"ssl.cipher.suites": "B"}),
        (
            {"partitioner.class": "x.Y"},
            {"partitioner.class": "", "partitioner": "random"},
            {"partitioner": "random"},
        ),
    ],
)
def test_librdkafkas_own_properties_win(
    java: dict[str, Value], own: dict[str, Value], expected: dict[str, str]
) -> None:
    assert librdkafka_properties(java, own) == expected


def test_librdkafka_accepts_the_translation() -> None:
    login: dict[str, Value] = {
        "sasl.jaas.config": f'{SCRAM} required username="u" password="p";',
        "max.request.size": 1_048_576,
        "buffer.memory": 33_554_432,
        "request.timeout.ms": 30_000,
        "ssl.endpoint.identification.algorithm": "",
    }
    producer = Producer({**librdkafka_properties(SAME | login), "log_level": 0})  # else it raises
    assert isinstance(producer, Producer)


def test_a_consumer_reads_as_the_java_client_does() -> None:
    assert consumer_properties({}) == {"isolation.level": "read_uncommitted"}
    given: dict[str, Value] = {
        "kafka.isolation.level": "read_committed",
        "fetch.max.wait.ms": 100,
        "max.poll.records": 7,
        "acks": "all",
    }
    assert consumer_properties(given) == {
        "isolation.level": "read_committed",
        "fetch.wait.max.ms": "100",
    }
