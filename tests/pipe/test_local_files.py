"""Local files are found without creating them."""

from __future__ import annotations

from pathlib import Path

import pytest

from chronoline.core.errors import TopicNotFound
from chronoline.log import Log
from chronoline.pipe.places import Place, check_log, missing_file


def test_a_file_is_missing_until_it_is_there(tmp_path: Path) -> None:
    file = tmp_path / "a file.db"
    url = f"sqlite:///{tmp_path}/a%20file.db"
    assert missing_file(url) == file
    file.touch()
    assert missing_file(url) is None
    assert missing_file("postgresql://h/d") is None


def test_a_log_is_missing_until_it_is_made(tmp_path: Path) -> None:
    place = Place.of_log("in", (tmp_path / "log").as_uri())
    with pytest.raises(TopicNotFound, match=r"there is no '.*/log', and so there is no topic 'in'"):
        check_log(place)
    (tmp_path / "log").mkdir()
    with pytest.raises(TopicNotFound, match=r"there is no '.*/log/objects'"):
        check_log(place)
    Log(place.log).close()
    check_log(place)


def test_an_index_in_a_file_is_looked_for(tmp_path: Path) -> None:
    place = Place.of_log("in", f"s3://bucket/x?index=sqlite%3A%2F%2F%2F{tmp_path}/index.db")
    with pytest.raises(TopicNotFound, match=r"there is no '.*/index.db'"):
        check_log(place)
    (tmp_path / "index.db").touch()
    check_log(place)


def test_kafka_is_not_on_this_machine() -> None:
    check_log(Place.of_kafka("in", "h:1"))
