"""The filter for the log lines of librdkafka."""

import logging

import pytest

from chronoline.pipe.librdkafka import RepeatFilter

LINE = "%s [%s] %s"  # as librdkafka's binding writes it
REFUSED = "host:9092/bootstrap: Connect failed: Connection refused (after 3ms in state CONNECT)"


def said(name: str, every_s: float, caplog: pytest.LogCaptureFixture) -> list[str]:
    logger = logging.getLogger(name)
    logger.addFilter(RepeatFilter(every_s))
    for number in range(3):
        logger.error("FAIL %d", number)
    logger.warning("TERM")
    return caplog.messages


def test_first_line_of_each_kind_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert said("seldom", 60, caplog) == ["FAIL 0", "TERM"]


def test_next_line_is_logged_after_a_while(caplog: pytest.LogCaptureFixture) -> None:
    assert said("often", 0, caplog) == ["FAIL 0", "FAIL 1", "FAIL 2", "TERM"]


def test_suppressed_lines_are_counted(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    seldom = RepeatFilter(10)
    logger = logging.getLogger("counted")
    logger.addFilter(seldom)
    for moment_s in (0.0, 1.0, 2.0, 10.0):
        monkeypatch.setattr("chronoline.pipe.librdkafka.time.monotonic", lambda s=moment_s: s)
        logger.error("FAIL at %d", moment_s)
    assert caplog.messages == ["FAIL at 0", "FAIL at 10 (and 2 more such lines)"]


def test_line_of_another_client_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("clients")
    logger.addFilter(RepeatFilter(60))
    for name in ("rdkafka#producer-1", "rdkafka#producer-2", "rdkafka#producer-1"):
        logger.error(LINE, "FAIL", name, REFUSED)
    assert [message.split()[1] for message in caplog.messages] == [
        "[rdkafka#producer-1]",
        "[rdkafka#producer-2]",
    ]


def test_new_line_of_a_client_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("kinds")
    logger.addFilter(RepeatFilter(60))
    for text in (REFUSED, REFUSED.replace("3ms", "12ms"), "SSL handshake failed", REFUSED):
        logger.error(LINE, "FAIL", "rdkafka#producer-1", text)
    assert caplog.messages == [
        f"FAIL [rdkafka#producer-1] {REFUSED}",
        "FAIL [rdkafka#producer-1] SSL handshake failed (and 1 more such lines)",
    ]


def test_kinds_of_lines_are_bounded(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No setting: a small bound is reached soon.
    monkeypatch.setattr("chronoline.pipe.librdkafka._MOST_KINDS", 3)
    logger = logging.getLogger("words")
    logger.addFilter(RepeatFilter(60))
    for length in range(1, 9):
        logger.error(LINE, "FAIL", "rdkafka#producer-1", "x" * length)
    assert len(caplog.messages) == 3


def test_oldest_client_is_forgotten_among_many(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No setting: a small bound is reached soon.
    monkeypatch.setattr("chronoline.pipe.librdkafka._MOST_SPEAKERS", 2)
    logger = logging.getLogger("many")
    logger.addFilter(RepeatFilter(60))
    for number in (1, 2, 2, 3, 3, 1):
        logger.error(LINE, "FAIL", f"rdkafka#producer-{number}", REFUSED)
    assert [message.split()[1][-2] for message in caplog.messages] == ["1", "2", "3", "1"]
