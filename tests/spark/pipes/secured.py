"""A Kafka server with doors that ask for a password, one of them by TLS; rights are denied unless granted."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import (  # the library's only place of these classes
    AclBinding,
    AclOperation,
    AclPermissionType,
)
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType  # as above

from chronoline_bench.servers.kafka import KafkaServer
from tests.spark.pipes.places import PATIENCE_S

USERS = {"pipe": "pipe's secret", "other": "other's secret"}
_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
_PASSWORD = "changeit"
_SECURED, _PASSWORDS = "listener.name.secured", "listener.name.passwords"


class SecuredKafkaServer(KafkaServer):
    """Behind the plain door stands the administrator, who may do everything."""

    @property
    def secured_bootstrap(self) -> str:
        return f"127.0.0.1:{self._port + 2}"

    @property
    def plaintext_bootstrap(self) -> str:
        """It asks for a password, without TLS."""
        return f"127.0.0.1:{self._port + 3}"

    @property
    def certificate(self) -> Path:
        """As PEM: what a client trusts."""
        return self.data_dir / "ca.pem"

    def properties(self, user: str, password: str | None = None) -> dict[str, Any]:
        """Returns the properties of a user's Java client."""
        secret = USERS[user] if password is None else password
        return {
            "bootstrap.servers": self.secured_bootstrap,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f'{_MODULE} required username="{user}" password="{secret}";',
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.certificate),
        }

    def grant(self, user: str, kind: ResourceType, name: str, operation: AclOperation) -> None:
        granted = AclBinding(
            kind,
            name,
            ResourcePatternType.LITERAL,
            f"User:{user}",
            "*",
            operation,
            AclPermissionType.ALLOW,
        )
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        admin.create_acls([granted])[granted].result(PATIENCE_S)

    def _prepare(self) -> None:
        if not self.certificate.exists():
            self.data_dir.mkdir(parents=True, exist_ok=True)
            self._make_certificate()
        super()._prepare()

    def _make_certificate(self) -> None:
        store = [
            *("-keystore", str(self.data_dir / "server.p12"), "-storetype", "PKCS12"),
            *("-storepass", _PASSWORD, "-alias", "server"),
        ]
        make = [
            "-genkeypair",
            "-keyalg",
            "EC",
            "-dname",
            "CN=127.0.0.1",
            "-ext",
            "SAN=IP:127.0.0.1",
        ]
        show = ["-exportcert", "-rfc", "-file", str(self.certificate)]
        for action in (make, show):
            subprocess.run(["keytool", *action, *store], check=True, capture_output=True)

    def _settings(self) -> dict[str, str]:
        plain = super()._settings()
        users = " ".join(f'user_{name}="{secret}"' for name, secret in USERS.items())
        return plain | {
            "listeners": f"{plain['listeners']},SECURED://{self.secured_bootstrap},"
            f"PASSWORDS://{self.plaintext_bootstrap}",
            "listener.security.protocol.map": (
                f"{plain['listener.security.protocol.map']},SECURED:SASL_SSL,PASSWORDS:SASL_PLAINTEXT"
            ),
            "inter.broker.listener.name": "PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            f"{_SECURED}.plain.sasl.jaas.config": f"{_MODULE} required {users};",
            f"{_PASSWORDS}.plain.sasl.jaas.config": f"{_MODULE} required {users};",
            f"{_SECURED}.ssl.keystore.location": str(self.data_dir / "server.p12"),
            f"{_SECURED}.ssl.keystore.password": _PASSWORD,
            f"{_SECURED}.ssl.keystore.type": "PKCS12",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        }
