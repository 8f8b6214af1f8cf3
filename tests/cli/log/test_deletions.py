"""`chronoline log delete` and `delete-group` ask first, and say what they did."""

import pytest

from chronoline.core.errors import TopicNotFound
from chronoline.log import Log
from tests.cli.log.command import Command


def test_a_topic_is_deleted(command: Command, log: Log) -> None:
    log.append("t", value=b"")
    assert command("delete", "t", "--yes") == "deleted topic 't' with 1 event\n"
    assert command("topics").startswith("There are no topics yet")
    with pytest.raises(TopicNotFound):
        log.append("t", value=b"")


def test_deleting_asks_first(command: Command, log: Log) -> None:
    list(log.read("t", group="g", follow=False))
    for arguments in (["delete", "t"], ["delete-group", "t", "g"]):
        for answer in ("n\n", ""):
            refused = command._invoke(arguments, answer).exception
            assert str(refused) == "nothing was done: answer y, or say --yes"
    assert [topic.name for topic in log.topics()] == ["t"]
    assert len(log.groups("t")) == 4
    assert "deleted group 'g' of 't'\n" in command("delete-group", "t", "g", input="y\n")
    assert "deleted topic 't' with 0 events\n" in command("delete", "t", input="y\n")


def test_what_is_not_there_is_not_asked_about(command: Command, log: Log) -> None:
    assert "no topic named 'never'" in command.refusal("delete", "never")
    assert "no group named 'g' reads 't'" in command.refusal("delete-group", "t", "g")
