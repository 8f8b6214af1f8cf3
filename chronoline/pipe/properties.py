"""The translation of Kafka properties from the Java client to librdkafka.

Users write the properties that Kafka documents. Most names mean the same in both clients and pass unchanged;
the others are translated. A property without a translation is refused with its remedy: ignoring it could make
a connection less secure than the user asked for. Properties of the JVM concern nothing here, and those of
consumers only the reader.

A second table has librdkafka's own properties. It overrides the translation, and replaces refused
properties.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from chronoline.core.errors import InvalidInput

Value = str | int | float | bool
_PREFIX = "kafka."


def _names(listed: str) -> frozenset[str]:
    return frozenset(listed.split())


# Properties that a producer does not need: those of consumers and of the JVM.
_NOT_OURS = _names(
    """
    allow.auto.create.topics auto.commit.interval.ms auto.include.jmx.reporter auto.offset.reset
    check.crcs config.providers default.api.timeout.ms enable.auto.commit exclude.internal.topics
    fetch.max.bytes fetch.max.wait.ms fetch.min.bytes group.id group.instance.id group.protocol
    group.remote.assignor heartbeat.interval.ms isolation.level key.deserializer key.serializer max.block.ms
    max.partition.fetch.bytes max.poll.interval.ms max.poll.records metadata.max.idle.ms metric.reporters
    metrics.num.samples metrics.recording.level metrics.sample.window.ms partition.assignment.strategy
    sasl.kerberos.kinit.cmd sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor
    sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds
    sasl.login.refresh.window.factor sasl.login.refresh.window.jitter security.providers
    session.timeout.ms socket.connection.setup.timeout.max.ms ssl.keymanager.algorithm ssl.protocol
    ssl.provider ssl.secure.random.implementation ssl.trustmanager.algorithm value.deserializer
    value.serializer
    """
)

# Properties of reading, which librdkafka has too.
_CONSUMER = {
    "check.crcs": "check.crcs",
    "fetch.max.bytes": "fetch.max.bytes",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "fetch.min.bytes": "fetch.min.bytes",
    "isolation.level": "isolation.level",
    "max.partition.fetch.bytes": "max.partition.fetch.bytes",
}

_RENAMED = {
    "max.request.size": ("message.max.bytes",),
    "receive.buffer.bytes": ("socket.receive.buffer.bytes",),
    # In Java this time applies to the client and to the broker.
    "request.timeout.ms": ("request.timeout.ms", "socket.timeout.ms"),
    "send.buffer.bytes": ("socket.send.buffer.bytes",),
}

# Properties that name code of the JVM, or have no counterpart, and their remedies.
_REFUSED = {
    "interceptor.classes": "it names Java classes",
    "partitioner.class": "it names a Java class; keys are placed as Java's default partitioner places them, "
    "and `partitioner` there names another of librdkafka's",
    "sasl.client.callback.handler.class": "it names a Java class",
    "sasl.login.callback.handler.class": "it names a Java class",
    "sasl.login.class": "it names a Java class",
    "ssl.cipher.suites": "Java and OpenSSL name the suites differently; write OpenSSL's names there",
    "ssl.enabled.protocols": "librdkafka offers TLSv1.2 and TLSv1.3; `ssl.cipher.suites` there narrows it",
    "ssl.engine.factory.class": "it names a Java class",
    "transactional.id": "a pipe has no transactions: it publishes at least once",
}
_OAUTH_HANDLER = "OAuthBearerLoginCallbackHandler"  # librdkafka has its function built in

_VALUE = r"""(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s;"']+)"""
_OPTION = re.compile(rf"([\w.-]+)\s*=\s*({_VALUE})", re.DOTALL)
_JAAS = re.compile(rf"\s*([\w.$]+)\s+\w+((?:\s+[\w.-]+\s*=\s*{_VALUE})*)\s*;\s*", re.DOTALL)


def java_properties(properties: Mapping[str, Value]) -> dict[str, str]:
    """Properties of the Java client as text, without the prefix `kafka.`."""
    bare: dict[str, str] = {}
    for given, value in properties.items():
        name = given.removeprefix(_PREFIX)
        if not name:
            raise InvalidInput(f"{given!r} is not a property of Kafka")
        if bare.setdefault(name, _text(name, value)) != _text(name, value):
            raise InvalidInput(
                f"{name!r} is given twice, with {_PREFIX!r} and without; write it once"
            )
    return bare


def consumer_properties(java: Mapping[str, Value]) -> dict[str, str]:
    """The properties of the Java client about reading, by librdkafka's names.

    By default records of open and aborted transactions are read too, as the Java client does.
    """
    given = {"isolation.level": "read_uncommitted"} | java_properties(java)
    return {_CONSUMER[name]: value for name, value in given.items() if name in _CONSUMER}


def librdkafka_properties(
    java: Mapping[str, Value], own: Mapping[str, Value] | None = None
) -> dict[str, str]:
    """Translates properties of the Java client to librdkafka.

    `own` has librdkafka's names, which override the others; an empty one removes its name from both. Raises
    `InvalidInput` for a property that cannot be translated. Unknown names pass: librdkafka checks them.
    """
    wins = {name: _text(name, value) for name, value in (own or {}).items()}
    rest = {name: value for name, value in java_properties(java).items() if wins.get(name) != ""}
    found: dict[str, str] = {}
    for translate in (_truststore, _keystore, _jaas, _scalars):
        found |= translate(rest, wins)
    for name, value in rest.items():
        if name in _NOT_OURS:
            continue
        if name in _REFUSED and name not in wins:
            raise _untranslatable(name, _REFUSED[name])
        found |= dict.fromkeys(_RENAMED.get(name, (name,)), value)
    return {name: value for name, value in (found | wins).items() if value != ""}


def delivery_problem(properties: Mapping[str, str], delivery_timeout_ms: int) -> str | None:
    """Describes the first property of librdkafka that breaks the guarantees of a pipe's output."""
    for name in ("acks", "request.required.acks"):
        if properties.get(name, "all") not in ("all", "-1"):
            return f"{name} must be 'all': a message is deleted here when it is acknowledged there"
    for name in ("delivery.timeout.ms", "message.timeout.ms"):
        given = properties.get(name, "1")
        if not given.isdecimal() or not 1 <= int(given) <= delivery_timeout_ms:
            return (
                f"{name} must be from 1 to delivery_timeout_ms ({delivery_timeout_ms}), or left out, not "
                f"{given!r}: after the hold time another pipe would publish the message too"
            )
    return None


def _text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise InvalidInput(f"the property {name!r} must be text, a number or true or false")


def _untranslatable(name: str, why: str) -> InvalidInput:
    return InvalidInput(
        f"librdkafka cannot follow the Kafka property {name!r}: {why}. Write librdkafka's "
        f"own property into the table `producer`, and {name!r} = '' there to leave this one out"
    )


# Each removes the properties that it translates from `rest`, and returns librdkafka's.


def _truststore(rest: dict[str, str], own: Mapping[str, str]) -> dict[str, str]:
    kind = rest.pop("ssl.truststore.type", "JKS").upper()
    location = rest.pop("ssl.truststore.location", None)
    certificates = rest.pop("ssl.truststore.certificates", None)
    rest.pop("ssl.truststore.password", None)
    if certificates is not None:
        return {"ssl.ca.pem": certificates}
    if location is None or own.keys() & {
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.ca.certificate.stores",
    }:
        return {}
    if kind != "PEM":
        raise InvalidInput(
            f"librdkafka does not read truststores of type {kind}: write the certificates "
            f"as PEM, `keytool -list -rfc -keystore {location} > ca.pem`, and set ssl.truststore.type = "
            "'PEM' and ssl.truststore.location to that file; or name it in the table "
            "`producer` as `ssl.ca.location`"
        )
    return {"ssl.ca.location": location}


def _keystore(rest: dict[str, str], own: Mapping[str, str]) -> dict[str, str]:
    location = rest.pop("ssl.keystore.location", None)
    kind = rest.pop("ssl.keystore.type", _kind_by_name(location)).upper()
    password = rest.pop("ssl.keystore.password", "")
    found = {
        "ssl.certificate.pem": rest.pop("ssl.keystore.certificate.chain", ""),
        "ssl.key.pem": rest.pop("ssl.keystore.key", ""),
    }
    if location is None or own.keys() & {"ssl.keystore.location", "ssl.certificate.location"}:
        return found
    if kind == "PEM":
        return {"ssl.certificate.location": location, "ssl.key.location": location}
    if kind != "PKCS12":
        raise InvalidInput(
            f"librdkafka does not read keystores of type {kind}: convert it, `keytool "
            f"-importkeystore -srckeystore {location} -destkeystore client.p12 -deststoretype PKCS12`, and "
            "set ssl.keystore.type = 'PKCS12' and ssl.keystore.location to that file"
        )
    return {"ssl.keystore.location": location, "ssl.keystore.password": password}


def _kind_by_name(location: str | None) -> str:
    """The type by the file's name: with the default, JKS, Java reads PKCS12 too."""
    return "PKCS12" if (location or "").lower().endswith((".p12", ".pfx")) else "JKS"


def _jaas(rest: dict[str, str], own: Mapping[str, str]) -> dict[str, str]:
    config = rest.pop("sasl.jaas.config", None)
    if rest.get("sasl.login.callback.handler.class", "").endswith(f".{_OAUTH_HANDLER}"):
        del rest["sasl.login.callback.handler.class"]
    if config is None or own.keys() & {"sasl.username", "sasl.mechanism", "sasl.mechanisms"}:
        return {}
    module, options = _read_jaas(config)
    if module in ("PlainLoginModule", "ScramLoginModule") and "tokenauth" not in options:
        return _named(options, username="sasl.username", password="sasl.password")
    if module == "Krb5LoginModule":
        return _named(
            options,
            principal="sasl.kerberos.principal",
            keyTab="sasl.kerberos.keytab",
            serviceName="sasl.kerberos.service.name",
        )
    if module == "OAuthBearerLoginModule" and "sasl.oauthbearer.token.endpoint.url" in rest:
        return {"sasl.oauthbearer.method": "oidc"} | _named(
            options,
            clientId="sasl.oauthbearer.client.id",
            clientSecret="sasl.oauthbearer.client.secret",
            scope="sasl.oauthbearer.scope",
        )
    raise InvalidInput(
        f"librdkafka cannot log in as {module} of sasl.jaas.config does; it knows "
        "PlainLoginModule, ScramLoginModule without tokens, Krb5LoginModule, and OAuthBearerLoginModule with "
        "a token endpoint. Write `sasl.mechanism` and what it needs into the table `producer`"
    )


def _read_jaas(config: str) -> tuple[str, dict[str, str]]:
    """The login module's class without its package, and its options. Errors do not repeat secrets."""
    read = _JAAS.fullmatch(config)
    if read is None:
        raise InvalidInput(
            "sasl.jaas.config cannot be read; write one module, as in: "
            'org.apache.kafka.common.security.plain.PlainLoginModule required username="…" password="…";'
        )
    options = {name: _unquoted(value) for name, value in _OPTION.findall(read[2])}
    return read[1].rpartition(".")[2], options


def _unquoted(value: str) -> str:
    if value[0] not in "\"'":
        return value
    return re.sub(r"\\(.)", r"\1", value[1:-1], flags=re.DOTALL)


def _named(options: Mapping[str, str], **names: str) -> dict[str, str]:
    return {theirs: options[name] for name, theirs in names.items() if name in options}


def _scalars(rest: dict[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """Translates properties with the same name and different values."""
    found = {}
    if "ssl.endpoint.identification.algorithm" in rest:
        given = rest.pop("ssl.endpoint.identification.algorithm")
        found["ssl.endpoint.identification.algorithm"] = given.lower() or "none"
    if "buffer.memory" in rest:
        found["queue.buffering.max.kbytes"] = str(_whole(rest, "buffer.memory") // 1024)
    if _words(rest.get("ssl.enabled.protocols", "")) == {"TLSv1.2", "TLSv1.3"}:
        del rest["ssl.enabled.protocols"]  # librdkafka's default
    return found


def _whole(rest: dict[str, str], name: str) -> int:
    value = rest.pop(name)
    if not value.isdecimal():
        raise InvalidInput(f"the Kafka property {name!r} must be a whole number, not {value!r}")
    return int(value)


def _words(listed: str) -> set[str]:
    return {word.strip() for word in listed.split(",")}
