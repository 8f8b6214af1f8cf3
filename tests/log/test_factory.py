"""URLs of logs: opening, preparation, and errors."""

import json
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronoline.core.errors import InvalidInput, StoreError, StoreUnavailable
from chronoline.log import Log
from chronoline.log.factory import (
    connection_string,
    open_parts,
    parts_on_one_machine,
    prepare,
    template,
    url_of,
)
from chronoline.log.index.sqlite import SqliteIndex
from chronoline.log.objects.local import LocalObjects
from chronoline.log.objects.remote import RemoteObjects
from chronoline.testing.postgres import PostgresServer
from chronoline_bench.servers.aws import DynamoDBServer, S3Server
from tests.log.objects.bucket import s3, s3_url
from tests.log.objects.google import gs_url

__all__ = ["gs_url", "s3", "s3_url"]  # fixtures

POSTGRES = "postgresql://user@host:5432/database"
DYNAMODB = "dynamodb://table?region=eu-central-1"


def use(url: str) -> None:
    """A log that works, and that another finds again."""
    with Log(url) as log:
        log.create_topic("t", partitions=2)
        log.append("t", value=b"one", partition=1)
    with Log(url) as log:
        assert [event.value for event in log.read("t", follow=False)] == [b"one"]


# Opening


def test_a_folder_has_its_index_beside_its_objects(tmp_path: Path) -> None:
    folder = tmp_path / "a folder % ä"
    objects, index = open_parts(f"file://{quote(str(folder))}")
    assert isinstance(objects, LocalObjects)
    assert isinstance(index, SqliteIndex)
    index.close()
    assert {path.name for path in folder.iterdir()} >= {"objects", "index.db"}
    use(f"file://{quote(str(folder))}")


def test_a_path_is_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Log(tmp_path / "50% log") as log:
        log.create_topic("t")
    monkeypatch.chdir(tmp_path)
    with Log(Path("50% log")) as log:
        assert [topic.name for topic in log.topics()] == ["t"]


@pytest.mark.parametrize("place", ["log", "./log", "~/log", "/absolute/log"])
def test_a_path_as_text_is_a_folder_too(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = Path("/absolute/log") if place.startswith("/") else tmp_path / "log"
    assert url_of(place) == folder.as_uri()


def test_a_folder_may_have_another_index(tmp_path: Path) -> None:
    index = f"sqlite:///{tmp_path}/other.db"
    use(connection_string(f"file://{tmp_path}/log", index))
    assert (tmp_path / "other.db").exists()
    assert not (tmp_path / "log" / "index.db").exists()
    objects, opened = open_parts(f"file://{tmp_path}/log", index)
    assert opened.find_topic("t")
    opened.close()
    objects.close()


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("file:///mnt/log", ["objects", "index"]),
        ("FILE:///mnt/log", ["objects", "index"]),
        ("file:///mnt/log?index=postgresql://host/db", ["objects"]),
        ("file:///mnt/log?index=sqlite:////x.db", ["objects", "index"]),
        ("s3://b?index=SQLITE:////x.db", ["index"]),
        ("s3://b/p?index=sqlite%3A%2F%2F%2F%2Fx.db", ["index"]),
        ("s3://b/p?index=dynamodb://table", []),
        ("", []),
    ],
)
def test_local_parts_of_a_log(url: str, parts: list[str]) -> None:
    assert parts_on_one_machine(url) == parts


def test_a_bucket_with_an_index(s3_url: str, tmp_path: Path) -> None:
    index = f"sqlite:///{tmp_path}/index.db"
    objects, opened = open_parts(s3_url, index)
    assert isinstance(objects, RemoteObjects)
    opened.close()
    use(connection_string(s3_url, index))
    assert len(list(objects.list())) == 1


# Connection strings


def test_a_connection_string_is_written_in_one_way() -> None:
    written = connection_string("s3://bucket/a b/?region=eu-west-1", "postgresql://u:p@h/d?x=1&y=2")
    assert written == (
        "s3://bucket/a%20b?region=eu-west-1&index=postgresql%3A%2F%2Fu%3Ap%40h%2Fd%3Fx%3D1%26y%3D2"
    )
    assert connection_string(written) == written
    assert connection_string(written, "postgresql://u:p@h/d?x=1&y=2") == written
    assert connection_string("file:///a b/") == "file:///a%20b"
    assert (
        connection_string("file:/a", "sqlite:////b.db")
        == "file:///a?index=sqlite%3A%2F%2F%2F%2Fb.db"
    )


texts = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), max_size=20)
prefixes = st.text("aä /0-_.:;,=+&@'()$!€🙂", max_size=12).map(
    lambda text: "/".join(part for part in text.split("/") if part.strip("."))
)
indexes = st.one_of(
    texts.map(lambda text: f"postgresql://user:{text}@host/{text}?options={text}"),
    texts.map(lambda text: f"sqlite:////{quote(text)}.db"),
    st.just(DYNAMODB),
)


@given(prefix=prefixes, index=indexes)
def test_a_connection_string_of_a_bucket_is_read_back(prefix: str, index: str) -> None:
    url = f"s3://bucket/{quote(prefix)}?endpoint={quote('http://h:1/%20', safe='')}"
    written = connection_string(url, index)
    assert connection_string(written) == written
    assert connection_string(url, index=index) == connection_string(written, index)
    assert written.isascii()
    with pytest.raises(InvalidInput, match="another index"):
        connection_string(written, index + "x")


@given(folder=st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), min_size=1))
def test_a_connection_string_of_a_folder_is_read_back(folder: str) -> None:
    if folder.strip("/."):
        written = connection_string(f"file:///x{quote(folder)}", POSTGRES)
        assert connection_string(written) == written
        assert written.startswith(
            f"file:///x{quote(str(Path('/x' + folder))[2:])}?index=postgresql"
        )


@pytest.mark.parametrize(
    ("url", "index", "said"),
    [
        ("", None, "a bare path; write one of: file:///folder, s3://bucket/prefix"),
        ("folder/log", None, "a bare path"),
        ("/folder/log", None, "a bare path"),
        ("C:\\log", None, "no log can be at c"),
        ("ftp://host/log", None, "no log can be at ftp"),
        ("postgresql://me:hush@host/db", None, "no log can be at postgresql"),
        ("memory:", None, "no log can be at memory"),
        ("file://folder/log", None, "three slashes"),
        ("file:log", None, "three slashes"),
        ("file:///", None, "names no folder"),
        ("file:///log?region=a", None, "no option of file:// is region; known: index"),
        ("file:///log#1", None, "# is written %23"),
        ("file:///log%00", None, "control character"),
        ("s3://", POSTGRES, "not the name of a bucket"),
        ("s3://key:hush@bucket", POSTGRES, "credentials"),
        ("s3://bucket?secret=hush", POSTGRES, "credentials"),
        ("s3://bucket", "", "no index can be at a bare path"),
        ("s3://bucket", "index.db", "no index can be at a bare path"),
        ("s3://bucket", "mysql://me:hush@host", "no index can be at mysql; write one of: sqlite:"),
        ("s3://bucket", "sqlite:///index.db", "four slashes"),
        ("s3://bucket", "sqlite://index.db", "four slashes"),
        ("s3://bucket", "sqlite:////index.db?mode=ro", "has parameters"),
        ("s3://bucket", "dynamodb://key:hush@table", "credentials"),
        ("s3://bucket?index=postgresql://u:hush&more@h", None, "cannot be read"),
    ],
)
def test_invalid_url_is_refused_with_a_reason(url: str, index: str | None, said: str) -> None:
    for call in (open_parts, connection_string, prepare, template):
        with pytest.raises(InvalidInput, match=said) as caught:
            call(url, index)
        assert "hush" not in str(caught.value)


@pytest.mark.parametrize("url", ["s3://bucket/p?region=eu-west-1", "gs://bucket", "az://bucket"])
def test_bucket_without_an_index_is_refused_with_advice(url: str) -> None:
    with pytest.raises(InvalidInput, match="has no index") as caught:
        open_parts(url)
    example = str(caught.value).split()[-1]
    assert connection_string(example) == example
    assert example.startswith(url)


@pytest.mark.parametrize(
    ("library", "url", "index", "command"),
    [
        ("obstore", "s3://bucket", "sqlite:////tmp/i.db", "chronoline[aws]"),
        ("boto3", "s3://bucket", "sqlite:////tmp/i.db", "chronoline[aws]"),
        ("botocore", "file://{folder}", "dynamodb://table", "chronoline[aws]"),
        ("psycopg", "file://{folder}", "postgresql://h/d", "chronoline[postgres]"),
    ],
)
def test_missing_driver_names_the_install_command(
    library: str, url: str, index: str, command: str, tmp_path: Path
) -> None:
    script = f"import sys; sys.modules[{library!r}] = None\n" + (
        "from chronoline.log.factory import open_parts\n"
        f"open_parts({url.format(folder=tmp_path)!r}, {index!r})"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True
    )
    assert "MissingExtra" in done.stderr
    assert f"pip install '{command}'" in done.stderr


# Preparation


def test_a_folder_is_made_ready(tmp_path: Path) -> None:
    url = prepare(f"file://{tmp_path}/log")
    assert url == f"file://{tmp_path}/log"
    use(url)
    assert prepare(url) == url


def test_a_bucket_is_made_ready_with_a_file(s3: S3Server, tmp_path: Path) -> None:
    url = prepare(s3.url("prepared-1", "p"), f"sqlite:///{tmp_path}/index.db")
    use(url)
    assert prepare(url) == url
    with Log(url) as log:
        assert [topic.name for topic in log.topics()] == ["t"]


def test_a_bucket_is_made_ready_with_a_database(
    s3: S3Server, postgres_server: PostgresServer
) -> None:
    url = prepare(s3.url("prepared-2"), postgres_server.create_database("log ä%"))
    use(url)
    assert prepare(url) == url


def test_a_bucket_is_made_ready_with_a_table(s3: S3Server, dynamodb_server: DynamoDBServer) -> None:
    url = prepare(s3.url("prepared-3"), dynamodb_server.url("prepared"))
    use(url)
    assert prepare(url) == url


def test_the_region_of_the_environment_is_written_down(
    s3: S3Server,
    dynamodb_server: DynamoDBServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3.endpoint)
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", dynamodb_server.endpoint)
    monkeypatch.setenv("AWS_REGION", "eu-west-3")
    url = prepare("s3://prepared-4", "dynamodb://prepared-4")
    assert url == connection_string(
        "s3://prepared-4?region=eu-west-3", "dynamodb://prepared-4?region=eu-west-3"
    )
    for variable in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(variable)
    use(url)
    with pytest.raises(InvalidInput, match=r"names no region.*add region="):
        prepare("s3://prepared-4", POSTGRES)


def test_the_region_is_written_down_for_other_servers_too(
    s3: S3Server, dynamodb_server: DynamoDBServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-west-3")
    table = f"dynamodb://prepared-5?endpoint={quote(dynamodb_server.endpoint, safe='')}"
    url = prepare(s3.url("prepared-5"), table)
    assert url.count("region=eu-west-3") == 1  # of the bucket, and in the index's URL:
    assert url.count("region%3Deu-west-3") == 1
    for variable in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(variable)
    use(url)
    assert "region=us-east-1" in prepare(s3.url("prepared-6"), dynamodb_server.url("prepared-6"))
    with pytest.raises(InvalidInput, match="names no region"):
        prepare(s3.url("prepared-7"), table)


def test_a_bucket_of_another_provider_has_to_be_there(gs_url: str, tmp_path: Path) -> None:
    url = prepare(gs_url, f"sqlite:///{tmp_path}/index.db")
    use(url)
    with pytest.raises(StoreUnavailable, match="'others' does not exist; make it first"):
        prepare(gs_url.replace("events", "others"), f"sqlite:///{tmp_path}/index.db")


def test_refusal_lists_what_was_made(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise StoreUnavailable("no")

    monkeypatch.setattr("chronoline.log.factory.tie", refuse)
    url, index = s3.url("prepared-8"), f"sqlite:///{tmp_path}/index.db"
    with pytest.raises(StoreError, match="no; made before that, the bucket 'prepared-8' stays"):
        prepare(url, index)
    with pytest.raises(StoreUnavailable, match=r"^no$"):
        prepare(url, index)


def test_a_refusal_leaves_no_bucket(
    s3: S3Server, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    index = postgres_server.create_database("taken")
    prepare(f"file://{tmp_path}/log", index)
    with pytest.raises(StoreError, match="holds one log"):
        prepare(s3.url("refused"), index)
    with pytest.raises(StoreUnavailable, match="PostgreSQL cannot be reached"):
        prepare(s3.url("refused"), "postgresql://localhost:9/nowhere")
    with pytest.raises(StoreUnavailable, match="'refused' does not exist"):
        open_parts(s3.url("refused"), f"sqlite:///{tmp_path}/index.db")
    assert not (tmp_path / "index.db").exists()


# Templates


def test_a_template_makes_what_the_url_names() -> None:
    made = json.loads(template("s3://bucket/a b", "dynamodb://table"))
    bucket, table = made["Resources"]["Bucket"], made["Resources"]["Table"]
    assert bucket["Type"] == "AWS::S3::Bucket"
    assert bucket["Properties"]["BucketName"] == "bucket"
    assert set(bucket["Properties"]["PublicAccessBlockConfiguration"].values()) == {True}
    assert "VersioningConfiguration" not in bucket["Properties"]
    assert table["Type"] == "AWS::DynamoDB::Table"
    assert table["Properties"]["TableName"] == "table"
    assert {bucket["DeletionPolicy"], table["DeletionPolicy"]} == {"Retain"}


def test_a_template_puts_out_the_connection_string() -> None:
    made = json.loads(template("s3://bucket/a b", "dynamodb://table"))
    output = made["Outputs"]["ConnectionString"]["Value"]["Fn::Sub"]
    assert output.replace("${AWS::Region}", "eu-west-3") == connection_string(
        "s3://bucket/a b?region=eu-west-3", "dynamodb://table?region=eu-west-3"
    )
    made = json.loads(template("s3://bucket?region=eu-west-1", POSTGRES))
    assert list(made["Resources"]) == ["Bucket"]
    output = made["Outputs"]["ConnectionString"]["Value"]["Fn::Sub"]
    assert output == connection_string("s3://bucket?region=eu-west-1", POSTGRES)


def test_a_template_is_of_one_region() -> None:
    made = json.loads(template("s3://bucket?region=eu-west-1", "dynamodb://table"))
    output = made["Outputs"]["ConnectionString"]["Value"]["Fn::Sub"]
    assert output == connection_string(
        "s3://bucket?region=eu-west-1", "dynamodb://table?region=eu-west-1"
    )
    assert "Make the stack in eu-west-1" in made["Description"]


@pytest.mark.parametrize(
    ("url", "index", "said"),
    [
        ("file:///log", None, "S3 alone"),
        ("gs://bucket", POSTGRES, "S3 alone"),
        ("s3://bucket?endpoint=http://host", POSTGRES, "leave out endpoint="),
        ("s3://bucket", "dynamodb://table?endpoint=http://host", "leave out endpoint="),
        ("s3://bucket?region=eu-west-1", "dynamodb://table?region=eu-west-2", "in one region"),
        ("s3://bucket", "postgresql://me:hush@host/db", "PGPASSWORD"),
        ("s3://bucket", "postgresql://host/db?user=me&password=hush", "PGPASSWORD"),
    ],
)
def test_template_refuses_unsupported_urls(url: str, index: str | None, said: str) -> None:
    with pytest.raises(InvalidInput, match=said) as caught:
        template(url, index)
    assert "hush" not in str(caught.value)
