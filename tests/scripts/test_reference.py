"""The generated pages of docs/reference are up to date."""

from __future__ import annotations

from scripts.reference import TARGET, pages


def test_reference_is_up_to_date() -> None:
    made = pages()
    assert {path.name for path in TARGET.glob("*.md")} == made.keys()
    for name, text in made.items():
        assert (TARGET / name).read_text("utf-8") == text, f"{name} is stale: run `make reference`"


def test_pages_name_what_users_look_for() -> None:
    made = pages()
    assert "## chronoline send" in made["commands.md"]
    assert "`limits.frame_bytes`" in made["settings.md"]
    assert "The largest frame" in made["settings.md"]
    assert "`topic_paused`" in made["metrics.md"]
    assert "## PUT /v1/topics/{topic}/messages/{id}" in made["http.md"]
    assert "| `leases[].version` | integer | The version of the lease. |" in made["http.md"]
    assert "| `messages[].until_ms` |" in made["http.md"]
    assert "`CreateTopicRequest`" in made["grpc.md"]
    assert "`most_in_flight`" in made["grpc.md"]
    assert "`failOnDataLoss`" in made["spark.md"]


def test_enum_inside_a_message_has_a_table_of_its_own() -> None:
    move, _, kinds = (
        pages()["grpc.md"].partition("## MoveBatch\n")[2].partition("## MoveBatch.Kind\n")
    )
    assert "`topic_uid`" in move
    assert "`KIND_BURY`" in kinds.partition("## ")[0]
