"""What is said of the words of librdkafka."""

import logging

import pytest

from chronoline.pipe.librdkafka import Seldom


def said(name: str, every_s: float, caplog: pytest.LogCaptureFixture) -> list[str]:
    logger = logging.getLogger(name)
    logger.addFilter(Seldom(every_s))
    for number in range(3):
        logger.error("FAIL %d", number)
    logger.warning("TERM")
    return caplog.messages


def test_a_line_of_each_level_is_said_and_the_others_are_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert said("seldom", 60, caplog) == ["FAIL 0", "TERM"]


def test_after_a_while_the_next_is_said(caplog: pytest.LogCaptureFixture) -> None:
    assert said("often", 0, caplog) == ["FAIL 0", "FAIL 1", "FAIL 2", "TERM"]


def test_those_that_were_not_said_are_counted(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    seldom = Seldom(10)
    logger = logging.getLogger("counted")
    logger.addFilter(seldom)
    for moment_s in (0.0, 1.0, 2.0, 10.0):
        monkeypatch.setattr("chronoline.pipe.librdkafka.time.monotonic", lambda s=moment_s: s)
        logger.error("FAIL at %d", moment_s)
    assert caplog.messages == ["FAIL at 0", "FAIL at 10 (and 2 more such lines)"]
