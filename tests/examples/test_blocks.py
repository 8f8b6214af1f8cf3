"""No block of the documentation is untested: each is played, parsed or loaded, or listed with the reason.

A new block fails here until one of these holds:

- a test plays its page (`PLAYED`; the simplest is a page of docs/guides, which `test_guides` plays);
- it is `sh` in `PAGES_PARSED_ONLY`, with the reason: the command itself parses each `chronoline …`, and other
  programs are in `PROGRAMS`;
- it is `toml`, `yaml` or `json`: the settings, or a parser, load it;
- it is in `NOT_PLAYED`, with the reason;
- it is `text`: output or a drawing, in which no line is a command.

Commands in sentences and tables are parsed.
"""

from __future__ import annotations

import importlib.util
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from chronoline.core.errors import InvalidInput
from chronoline.node.settings import NodeSettings
from chronoline.pipe.settings import PipeSettings
from chronoline.timers.cluster import read_membership
from tests.examples.command_lines import commands, is_command, parse
from tests.examples.test_guides import GUIDES, PARSED_ONLY, TUTORIAL

ROOT = Path(__file__).parents[2]
FENCE = re.compile(
    r"^(?P<indent> *)(?P<fence>```+)(?P<info>[^\n]*)\n(?P<body>.*?)^ *(?P=fence) *$", re.M | re.S
)
SPAN = re.compile(r"(?<!`)`(chronoline [^`]+)`(?!`)")
LACKS = re.compile(r"Missing |Option .* requires an argument|there is no command ''$")
DRAWINGS = ("docs/design/", "docs/architecture.md")
"""Pages whose blocks without a language are drawings."""

PLAYED: dict[tuple[str, str], str] = {
    **{
        (str(page.relative_to(ROOT)), language): "tests/examples/test_guides.py"
        for page in [*GUIDES, TUTORIAL]
        for language in ("python", "sh")
    },
    **{
        (f"docs/{page}.md", "sh"): "tests/examples/test_guides.py"
        for page in ("guides/index", "log", "operations", "security", "timers", "tracing")
    },
    ("docs/guides/kafka-delay.md", "sh"): "tests/spark/pipes/test_pages.py",
    ("docs/pipe.md", "sh"): "tests/spark/pipes/test_pages.py",
    ("README.md", "python"): "tests/examples/test_broker_examples.py",
    ("README.md", "sh"): "tests/examples/test_guides.py",
    ("docs/broker.md", "sh"): "tests/examples/test_guides.py",
    ("docs/health.md", "sh"): "tests/examples/test_guides.py",
    ("docs/http.md", "sh"): "tests/broker/http/test_guide.py",
    ("docs/library.md", "python"): "tests/examples/test_examples.py",
    ("docs/library.md", "sql"): "tests/examples/test_examples.py",
    ("docs/limits.md", "sh"): "tests/examples/test_guides.py",
    ("docs/log.md", "python"): "tests/examples/test_examples.py",
    ("docs/schedules.md", "sh"): "tests/examples/test_guides.py",
    ("docs/sdk.md", "python"): "tests/client/test_guide.py",
    ("docs/targets.md", "sh"): "tests/examples/test_guides.py",
    ("docs/testing.md", "python"): "tests/testing/test_guide.py",
    ("docs/topics.md", "sh"): "tests/examples/test_guides.py",
}
"""The test that plays all blocks of a language of a page."""

NOT_PLAYED = {
    "docs/deployment.md": "makes a role and a database; the tutorial plays such ones",
    "docs/pipe.md": "the query needs receipts: tests/spark/pipes reads some with the same schema",
    "docs/spark-cluster.md": "needs Databricks",
    "docs/spark.md": "needs Spark: tests/spark runs the examples that the page links to",
}
"""Pages with Python or SQL that no test plays, and why. "docs/x.md: first line" is one block of a page."""

PAGES_PARSED_ONLY = {
    "CONTRIBUTING.md": "the checks themselves",
    "docs/benchmarks.md": "measures for minutes; tests/bench runs short cases",
    "docs/cluster.md": "needs machines with names; tests/torture/cluster starts brokers on etcd",
    "docs/deployment.md": "needs Docker and Kubernetes; tests/deploy checks the files",
    "docs/design/testing.md": "runs for an hour",
    "docs/releasing.md": "makes a release; tests/project/test_release.py builds and installs one",
    "docs/spark-cluster.md": "needs Spark, YARN and Kubernetes clusters",
}
"""Pages whose `sh` no test plays, and why. `PARSED_ONLY` of test_guides has blocks of played pages."""

PROGRAMS = {
    "curl": "tests play the pages of HTTP and timers",
    "docker": "needs an engine; tests/deploy checks the files",
    "git": "clones a tag of a release",
    "install": "writes into /etc",
    "kubectl": "needs a cluster; tests/deploy checks the manifests",
    "make": "its targets are looked up",
    "openssl": "tests/deploy/test_deployment_page.py runs its commands",
    "pg_dump": "tests/upgrade/test_restore.py runs it with these options",
    "pip": "installs; tests/project/test_release.py installs into empty environments",
    "printf": "writes a file of passwords",
    "python": "its modules are looked up",
    "python3": "its modules are looked up",
    "spark-class": "runs until it is stopped; needs several machines",
    "spark-submit": "needs a cluster; the command behind pipe_submit.py is parsed",
    "systemctl": "needs systemd; tests/deploy checks the units",
    "useradd": "makes a user of the system",
    "venv-pack": "needs a cluster that unpacks it",
    **dict.fromkeys(
        (".", "cat", "cd", "cp", "export", "grep", "mkdir", "seq", "sh", "umask"), "of the shell"
    ),
}
"""Programs beside ours, and why a page that is not played may call them."""


class Block(NamedTuple):
    page: str
    line: int
    language: str
    body: str
    is_marked: bool = True
    """Whether the page names the language: only then a player sees the block."""

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(root: Path) -> Iterator[Block]:
    for name, text in pages_of(root):
        for found in FENCE.finditer(text):
            language = (found["info"].split() or [""])[0]
            body = re.sub(rf"^{found['indent']}", "", found["body"], flags=re.M)
            if not language and not name.startswith(DRAWINGS):
                first = body.split(maxsplit=1)[:1]
                language = "sh" if program(first) in {"chronoline", *PROGRAMS} else ""
            line = text.count("\n", 0, found.start()) + 1
            yield Block(name, line, language, body, bool(found["info"].split()))


def pages_of(root: Path) -> Iterator[tuple[str, str]]:
    pages = [root / "README.md", root / "CONTRIBUTING.md", *sorted(root.glob("docs/**/*.md"))]
    for page in (page for page in pages if page.exists()):
        yield page.relative_to(root).as_posix(), page.read_text("utf-8")


def program(words: list[str]) -> str:
    return words[0].rpartition("/")[2] if words else ""


def problems(root: Path, folder: Path) -> Iterator[str]:
    """Yields a line for each block that no test covers, with what to do about it."""
    for block in blocks(root):
        try:
            yield from (f"{block.place}: {problem}" for problem in problems_of(block, folder))
        except (InvalidInput, ValueError, yaml.YAMLError) as error:
            yield f"{block.place}: {error}"


def problems_of(block: Block, folder: Path) -> Iterator[str]:
    match block.language:
        case "sh":
            yield from problems_of_shell(block)
        case "python" | "sql":
            if (block.page, block.language) not in PLAYED and not reason(block):
                yield (
                    f"no test plays this {block.language}: play the page and add it to PLAYED, or give"
                    " a reason in NOT_PLAYED (tests/examples/test_blocks.py)"
                )
        case "toml":
            load_settings(block.body, folder)
        case "yaml":
            yaml.safe_load(block.body)
        case "json":
            json.loads(block.body)
        case "text":
            for line in block.body.splitlines():
                found = re.match(r"\s*(\$ )?(chronoline ([a-z]+)(?: .*)?)$", line)
                if found and (found[1] or is_command(found[3])):
                    yield from problems_of_commands(found[2])
        case "" if block.page.startswith(DRAWINGS):
            pass
        case _:
            yield (
                f"give the block one of the languages sh, python, toml, yaml, json, sql, text; not"
                f" {block.language!r}"
            )


def reason(block: Block) -> str | None:
    first = block.body.partition("\n")[0]
    return NOT_PLAYED.get(f"{block.page}: {first}", NOT_PLAYED.get(block.page))


def problems_of_shell(block: Block) -> Iterator[str]:
    if (block.page, "sh") not in PLAYED:
        for words in commands(block.body):
            if program(words) not in {"chronoline", *PROGRAMS}:
                yield (
                    f"no test runs {program(words)!r}: play the page, or add the program with a reason to"
                    " PROGRAMS (tests/examples/test_blocks.py)"
                )
    elif not block.is_marked and block.body.partition("\n")[0] not in PARSED_ONLY:
        yield (
            "no test plays a block without a language: mark it as sh, or give a reason in PARSED_ONLY"
            " (tests/examples/test_guides.py)"
        )
    yield from problems_of_commands(block.body)


def problems_of_commands(text: str) -> Iterator[str]:
    for words in commands(text):
        named, given = program(words), [each for each in words[1:] if each != "…"]
        if named == "spark-submit" and "pipe_submit.py" in (
            names := [program([each]) for each in given]
        ):
            named, given = "chronoline", given[names.index("pipe_submit.py") + 1 :]
        if named == "chronoline" and given != ["--help"]:
            try:
                parse(given)
            except ValueError as error:
                yield f"`chronoline {' '.join(given)}`: {error}"
        elif named in ("python", "python3") and given[:1] == ["-m"]:
            if importlib.util.find_spec(given[1]) is None:
                yield f"there is no module {given[1]}"
        elif named == "make":
            targets = re.findall(r"^(\w[\w-]*):", (ROOT / "Makefile").read_text("utf-8"), re.M)
            unknown = [each for each in given if "=" not in each and each not in targets]
            yield from (f"the Makefile has no target {each}" for each in unknown)


def problems_in_sentences(root: Path) -> Iterator[str]:
    """Yields commands in sentences and tables that are refused; they may lack arguments."""
    for name, text in pages_of(root):
        for span in SPAN.findall(FENCE.sub("", text)):
            for words in commands(span):
                try:
                    parse([each for each in words[1:] if each not in ("…", "--help")])
                except ValueError as error:
                    if not LACKS.match(str(error)):
                        yield f"{name}: `{span}`: {error}"


def load_settings(body: str, folder: Path) -> None:
    table = tomllib.loads(body)
    file = folder / "page.toml"
    file.write_text(body, "utf-8")
    if "staying" in table:
        read_membership(file, table["staying"][0])
    elif "input" in table:
        PipeSettings.load(file, {}, {})
    else:
        NodeSettings.load(file, {}, {})


def test_every_block_is_tested(tmp_path: Path) -> None:
    if found := list(problems(ROOT, tmp_path)):
        pytest.fail("\n".join(found))


def test_commands_in_sentences_exist() -> None:
    assert list(problems_in_sentences(ROOT)) == []


def test_wrong_command_in_a_sentence_is_found(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text(
        "`chronoline token` and `chronoline topic pause --reason x` lack a part.\n\n"
        "| | |\n| --- | --- |\n| x | `chronoline up --nodez 3`, then `chronoline gone` |\n"
    )
    assert list(problems_in_sentences(tmp_path)) == [
        "README.md: `chronoline up --nodez 3`: No such option: --nodez",
        "README.md: `chronoline gone`: there is no command 'gone'",
    ]


def test_lists_name_pages_and_tests_that_are_there() -> None:
    guides = {each.relative_to(ROOT).as_posix() for each in [*GUIDES, TUTORIAL]}
    for page, test in ((page, test) for (page, _), test in PLAYED.items() if page not in guides):
        assert (ROOT / page).exists(), page
        name = page.rpartition("/")[2].removesuffix(".md").lower()
        assert name in (ROOT / test).read_text("utf-8").lower(), f"{test} does not read {page}"
    used = {
        reason(each)
        for each in blocks(ROOT)
        if each.language in ("python", "sql") and (each.page, each.language) not in PLAYED
    }
    assert set(NOT_PLAYED.values()) <= used


def test_commands_that_are_parsed_only_have_a_reason() -> None:
    commands_of = [each for each in blocks(ROOT) if each.language == "sh"]
    pages = {each.page for each in commands_of if (each.page, "sh") not in PLAYED}
    assert pages == set(PAGES_PARSED_ONLY)
    assert set(PARSED_ONLY) <= {
        each.body.partition("\n")[0] for each in commands_of if each.page not in pages
    }


def test_reasons_name_tests_that_are_there() -> None:
    lists = (NOT_PLAYED, PAGES_PARSED_ONLY, PARSED_ONLY, PROGRAMS)
    reasons = " ".join(reason for each in lists for reason in each.values())
    for test in re.findall(r"\btests/[\w/.]*\w", reasons):
        assert (ROOT / test).exists(), test


@pytest.mark.parametrize(
    ("block", "problem"),
    [
        ("```sh\nchronoline up --stoer x\n```", "No such option: --stoer"),
        ("```sh\nseq 3 | chronoline sent x  # it's a comment\n```", "there is no command 'sent'"),
        ("```\nchronoline topic create\n```", "Missing parameter"),
        ("```sh\nspark-submit --x y pipe_submit.py pipe ran\n```", "there is no command 'ran'"),
        ("```sh\npython -m chronoline_bench.gone\n```", "there is no module"),
        ("```sh\nmake gone\n```", "no target gone"),
        ("```sh\nrm -r x\n```", "no test runs 'rm'"),
        ("```text\n$ chronoline gone\n```", "there is no command 'gone'"),
        ("```python\nx = 1\n```", "no test plays this python"),
        ("```sql\nSELECT 1\n```", "no test plays this sql"),
        ("```toml\n[limits]\nframes = 1\n```", "frames"),
        ("```toml\nname = 'a'\n[input]\ntopics = 'x'\n```", "topics"),
        ("```toml\nstaying = ['a:1', 'a:1']\n```", "twice"),
        ("```json\n{'a': 1}\n```", "Expecting property name"),
        ("```yaml\na: [\n```", "while parsing"),
        ("```\nx ─► y\n```", "give the block one of the languages"),
    ],
)
def test_untested_block_is_found(tmp_path: Path, block: str, problem: str) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "new.md").write_text(f"# New\n\n{block}\n")
    (found,) = problems(tmp_path, tmp_path)
    assert found.startswith("docs/new.md:3: ")
    assert problem in found


def test_block_that_no_player_sees_is_found(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("```\nchronoline status\n```\n")
    (found,) = problems(tmp_path, tmp_path)
    assert "no test plays a block without a language" in found


def test_tested_blocks_are_no_problem(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text(
        '```sh\nA=1 chronoline send tea --in 5s --body "a; b" > out && sudo -u me chronoline status\n```\n'
        '```text\nchronoline is not a command here\n```\n```toml\ngrpc = "127.0.0.1:1"\n```\n'
        "```python\nprint(1)\n```\n"
    )
    assert list(problems(tmp_path, tmp_path)) == []
