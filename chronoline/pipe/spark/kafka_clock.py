"""The clock of a Kafka cluster, by Spark's Java client: librdkafka has no call for it.

The controller reports when it last caught up with its own log, which is now. The call needs the permission to
describe the cluster. Without it, or on a cluster that does not report the time, the result is None.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from chronoline.pipe.places import Place

logger = logging.getLogger(__name__)

_TIMEOUT_MS = 5_000
_FOR_GOOD = (
    "AuthorizationException",
    "UnsupportedVersionException",
    "is not a class",
    "not callable",
)
"""Permanent errors: the permission or the call is missing."""


class KafkaClock:
    """Reads the time of one cluster; after a permanent error it returns None."""

    def __init__(self, spark: SparkSession, place: Place) -> None:
        self._spark = spark
        self._place = place
        self._admin: Any = None
        self._refused = False

    def __call__(self) -> int | None:
        if self._refused:
            return None
        try:
            return self._ask()
        except (Py4JError, ConnectionError) as error:
            words = str(error)
            self._refused = any(each in words for each in _FOR_GOOD)
            logger.info("the clock of Kafka cannot be read: %s", words.splitlines()[0])
            return None

    def close(self) -> None:
        admin, self._admin = self._admin, None
        if admin is not None:
            with suppress(Py4JError, ConnectionError):
                admin.close()

    def _ask(self) -> int | None:
        if self._admin is None:
            jvm: Any = self._spark._jvm
            properties = jvm.java.util.Properties()
            for name, value in self._place.java().items():
                properties.setProperty(name, value)
            properties.setProperty("default.api.timeout.ms", str(_TIMEOUT_MS))
            properties.setProperty("request.timeout.ms", str(_TIMEOUT_MS))
            self._admin = jvm.org.apache.kafka.clients.admin.Admin.create(properties)
        quorum = self._admin.describeMetadataQuorum().quorumInfo().get()
        for voter in quorum.voters():
            caught_up = voter.lastCaughtUpTimestamp()
            if voter.replicaId() == quorum.leaderId() and caught_up.isPresent():
                return int(caught_up.getAsLong())
        return None
