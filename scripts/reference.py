"""Generates docs/reference from the code: `python -m scripts.reference`. A test finds stale pages."""

from __future__ import annotations

import ast
import asyncio
import importlib
import inspect
import json
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import typer
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from chronoline.stores.memory import MemoryStore

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "docs" / "reference"
_NOTE = "This page is made from the code by `make reference`."
_SPARK = {
    "timeline_reader": "chronoline, for reading",
    "timeline_writer": "chronoline, for writing",
    "log_options": "chronoline_log",
}
"""The modules that read options, with the headings of their tables."""


def pages() -> dict[str, str]:
    """Returns the generated pages by file name."""
    made: dict[str, Callable[[], Iterable[str]]] = {
        "commands.md": commands,
        "settings.md": settings,
        "metrics.md": metrics,
        "http.md": http,
        "grpc.md": grpc,
        "spark.md": spark,
    }
    return {name: "\n".join([*make(), ""]) for name, make in made.items()}


def heading(title: str, text: str) -> Iterator[str]:
    yield from (f"# {title}", "", f"{text} {_NOTE}", "")


def table(names: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    rows = [[cell.replace("|", "\\|").replace("\n", " ").strip() for cell in row] for row in rows]
    if rows:
        names = list(names)
        yield f"| {' | '.join(names)} |"
        yield f"|{' --- |' * len(names)}"
        yield from (f"| {' | '.join(row)} |" for row in rows)
        yield ""


def code(text: object) -> str:
    return f"`{text}`" if str(text) else ""


def sentence(text: str | None) -> str:
    return inspect.cleandoc(text or "").partition("\n\n")[0]


# The command


def commands() -> Iterator[str]:
    from chronoline.cli.main import _COMMANDS, command_line  # noqa: PLC0415 - it loads every command

    yield from heading("Commands", "Every command of `chronoline`, with its options.")
    ours = [name for name in _COMMANDS if name != "bench"]  # of another distribution
    yield from command("chronoline", typer.main.get_command(command_line(ours)))


_EXAMPLE = re.compile(r"^(?:chronoline |  )", re.M)
"""A line of help that is a command, or aligned: its paragraph is not wrapped."""


def command(name: str, found: Any) -> Iterator[str]:
    inner: Mapping[str, Any] = getattr(found, "commands", {})
    if not inner:
        yield from (f"## {name}", "")
        words, *rest = re.split(r"\n\s*\n", inspect.cleandoc(found.help or ""))
        yield from (plain(words), "")
        for paragraph in rest:
            words = plain(paragraph)
            as_it_is = _EXAMPLE.search(words) is not None
            yield from (("```text", words, "```", "") if as_it_is else (literal(words), ""))
        shown = [each for each in found.params if not getattr(each, "hidden", False)]
        yield from table(("option", "", "default"), map(option, shown))
    for each in inner:
        if not inner[each].hidden:
            yield from command(f"{name} {each}", inner[each])


def option(found: Any) -> tuple[str, str, str]:
    names = ", ".join([*found.opts, *found.secondary_opts])
    if found.param_type_name == "argument":
        names = found.metavar or found.name.upper()
    elif found.metavar and not getattr(found, "is_flag", False):
        names = f"{names} {found.metavar}"
    default = "" if callable(found.default) or found.default in (None, False, ()) else found.default
    if found.required:
        default = "required"
    return code(names), plain(getattr(found, "help", None) or ""), code(default)


def literal(text: str) -> str:
    """Returns text in which only backticks mean something in Markdown."""
    return re.sub(r"([*<])", r"\\\1", text)


def plain(text: str) -> str:
    """Returns help without the markup of rich and the control characters of click."""
    return (
        re.sub(r"(?<!\\)\[/?[a-z ]*\]", "", text)
        .replace("\b\n", "")
        .replace("\b", "")
        .replace("\\[", "[")
        .strip()
    )


# Settings


def settings() -> Iterator[str]:
    from chronoline.broker.limits import Limits  # noqa: PLC0415 - each page loads its own
    from chronoline.node.settings import NodeSettings  # noqa: PLC0415
    from chronoline.pipe.settings import PipeSettings  # noqa: PLC0415

    yield from heading("Settings", "The settings of nodes and pipes.")
    yield 'Durations are milliseconds or text such as `"10s"`; sizes are bytes or text such as `"16MiB"`.'
    yield ""
    for title, prefix, model in (
        ("A node", "CHRONOLINE_NODE_", NodeSettings),
        ("A pipe", "CHRONOLINE_PIPE_", PipeSettings),
    ):
        yield from (f"## {title}", "")
        yield "In a TOML file, or in the environment: "
        yield f"`name` is `{prefix}NAME`, `name` in `[table]` is `{prefix}TABLE__NAME`."
        yield "Options override the environment, and the environment overrides the file."
        yield "A table can be inline TOML, and an empty variable removes an optional setting."
        yield ""
        yield from table(("setting", "default", ""), fields(model, {}))
        for name, inner in model.tables.items():
            yield from (f"### {name}", "", sentence(inner.__doc__), "")
            explained = docstrings(Limits) if name == "limits" else {}
            yield from table(("setting", "default", ""), fields(inner, explained, f"{name}."))


def fields(
    model: type[BaseModel], explained: Mapping[str, str], before: str = ""
) -> Iterator[tuple[str, str, str]]:
    said = {**explained, **docstrings(model)}
    tables = getattr(model, "tables", {})
    for name, field in model.model_fields.items():
        if name not in tables:
            yield code(before + (field.alias or name)), default_of(field), said.get(name, "")


def default_of(field: Any) -> str:
    default = field.default
    if field.is_required():
        return "required"
    if default is PydanticUndefined or default in (None, "", ()):
        return ""
    return code(",".join(map(str, default)) if isinstance(default, tuple) else str(default))


def docstrings(found: type) -> dict[str, str]:
    """Returns the strings below the attributes of a class."""
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(found))).body
    assert isinstance(body, ast.ClassDef)
    said = {}
    for line, below in zip(body.body, body.body[1:], strict=False):
        if isinstance(line, ast.AnnAssign) and isinstance(below, ast.Expr):
            value = below.value
            if isinstance(line.target, ast.Name) and isinstance(value, ast.Constant):
                said[line.target.id] = sentence(str(value.value))
    return said


# Metrics


def metrics() -> Iterator[str]:
    from chronoline.broker.metrics import FAMILIES, LATENESS  # noqa: PLC0415

    yield from heading(
        "Metrics", "The metrics of a broker, of a node of timers and of a pipe, at `/metrics`."
    )
    yield from (
        "The metrics of nodes have the label `cluster` and the tags of the settings. Where one is not of a",
        "topic, `topic` is empty. As soon as a node has a token, `/metrics` asks for one with",
        "[the right](../security.md#rights) `observe`. Messages in the store are counted at most every ten",
        "seconds. The metrics of a deleted topic end within five seconds. The type says how to read a",
        "metric, not the end of its name: counters of the broker end in `_count` or `_errors`, too, and two",
        "gauges in `_total`.",
        "",
    )
    columns = ("name", "type", "labels", "")
    yield from ("## The broker", "")
    yield from table(
        columns,
        [
            *(
                (
                    code(name),
                    "gauge" if each.gauge else "counter",
                    ", ".join(map(code, each.labels)),
                    each.help,
                )
                for name, each in FAMILIES.items()
            ),
            (code("chronoline_lateness_seconds"), "histogram", code("topic"), LATENESS),
        ],
    )
    yield from ("## Timers", "")
    yield from table(columns, timer_metrics())
    yield from ("## A pipe", "")
    yield from table(columns, pipe_metrics())


def timer_metrics() -> Iterator[tuple[str, str, str, str]]:
    """Found where they are made: without samples a metric does not tell its labels."""
    from chronoline.node.timer_service import _TAG_GAUGES  # noqa: PLC0415

    for module in ("timers/metrics.py", "node/timer_service.py"):
        tree = ast.parse((ROOT / "chronoline" / module).read_text("utf-8"))
        for call in (each for each in ast.walk(tree) if isinstance(each, ast.Call)):
            texts = [
                each.value
                for argument in call.args
                for each in getattr(argument, "elts", [argument])
                if isinstance(each, ast.Constant) and isinstance(each.value, str)
            ]
            kind = getattr(call.func, "id", "").lower()
            if (
                kind in ("counter", "gauge", "histogram")
                and texts[0:1]
                and texts[0].startswith("chrono")
            ):
                name, said, *labels = texts
                total = "_total" * (kind == "counter")
                yield code(name + total), kind, ", ".join(map(code, labels)), said
    for _, suffix, said in _TAG_GAUGES:
        yield code(f"chronoline_timers_tagged{suffix}"), "gauge", code("tag"), said


def pipe_metrics() -> Iterator[tuple[str, str, str, str]]:
    from chronoline.pipe.counters import Counters  # noqa: PLC0415
    from chronoline.pipe.metrics import PipeCollector  # noqa: PLC0415
    from chronoline.pipe.status import PipeStatus  # noqa: PLC0415
    from chronoline.stores.contract import Counts  # noqa: PLC0415

    empty = PipeStatus(
        name="",
        on_timeline=Counts(waiting=0, processing=0, available=0),
        dead_letters=0,
        nodes=(),
        partitions=(),
        input_problem=None,
    )
    for each in PipeCollector("", "", Counters(), lambda: empty).collect():
        labels = dict.fromkeys(
            name for sample in each.samples for name in sample.labels if name != "le"
        )
        total = "_total" * (each.type == "counter")
        yield code(each.name + total), each.type, ", ".join(map(code, labels)), each.documentation


# HTTP


def http() -> Iterator[str]:
    yield from heading("HTTP", "Every request of the HTTP interface.")
    yield from (
        "A node serves the same, with all schemas, as `/openapi.json`. [The guide](../http.md) has examples.",
        "",
    )
    described = openapi()
    for path, methods in described["paths"].items():
        for method, each in methods.items():
            yield from (f"## {method.upper()} {path}", "")
            yield from (sentence(each.get("description")), "")
            yield from table(
                ("parameter", "in", ""),
                (
                    (code(one["name"]), one["in"], sentence(one.get("description")))
                    for one in each.get("parameters", ())
                ),
            )
            yield from table(
                ("field", "type", ""), fields_in(described, each.get("requestBody", {}))
            )
            answers = (found for status, found in each["responses"].items() if status < "3")
            for answer in answers:
                yield from table(("in the answer", "type", ""), fields_in(described, answer))
            yield from ("Answers: " + ", ".join(map(code, each["responses"])), "")


def openapi() -> dict[str, Any]:
    from chronoline.node.broker_service import BrokerService  # noqa: PLC0415

    async def ask() -> dict[str, Any]:
        at = ("127.0.0.1", 0)
        with MemoryStore() as store:
            async with BrokerService(store, grpc_address=at, http_address=at) as node:
                assert node.http is not None
                url = f"http://127.0.0.1:{node.http.port}/openapi.json"
                answer = await asyncio.to_thread(urlopen, url)
                found: dict[str, Any] = json.load(answer)
                return found

    return asyncio.run(ask())


def fields_in(described: dict[str, Any], body: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """The fields of a request, or of an answer."""
    content = body.get("content", {}).get("application/json", {})
    yield from fields_of(described, content.get("schema", {}))


def fields_of(
    described: dict[str, Any], schema: dict[str, Any], within: str = ""
) -> Iterator[tuple[str, str, str]]:
    """The fields of an object, each with those inside it: `leases[].version`."""
    for name, field in resolved(described, schema).get("properties", {}).items():
        kinds = [resolved(described, kind) for kind in field.get("anyOf", [field])]
        types = {str(kind.get("type", "any")) for kind in kinds}
        said = (each.get("description") for each in (field, *kinds) if "properties" not in each)
        yield (
            code(within + name),
            ", ".join(sorted(types - {"null"})),
            sentence(next(filter(None, said), None)),
        )
        for kind in kinds:
            yield from fields_of(described, kind, f"{within}{name}.")
            yield from fields_of(described, kind.get("items", {}), f"{within}{name}[].")


def resolved(described: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    if "$ref" not in schema:
        return schema
    found: dict[str, Any] = described["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return found


# gRPC

_RPC = re.compile(r"rpc (\w+)\((.+?)\) returns \((.+?)\);")
_FIELD = re.compile(r"((?:optional |repeated )?[\w.<>, ]+?) (\w+) = (\d+);")
_TYPE = re.compile(r"^ *(service|message|enum|oneof) (\w+) \{")
_COLUMNS = {
    "service": ("request", "takes", "returns", ""),
    "message": ("field", "type", ""),
    "enum": ("value", ""),
}


def grpc() -> Iterator[str]:
    yield from heading("gRPC", "The services and messages of the protocol.")
    yield from ("[The protocol](../protocol.md) says how they are used.", "")
    text = (ROOT / "chronoline" / "wire" / "v1" / "chronoline.proto").read_text("utf-8")
    for title, said, names, rows in proto_types(text.partition("\npackage ")[2]):
        yield from (f"## {title}", "", *([said, ""] if said else []))
        yield from table(names, rows)


ProtoType = tuple[str, str, tuple[str, ...], list[tuple[str, ...]]]
"""Name, comment, names of the columns, and rows."""


def proto_types(text: str) -> list[ProtoType]:
    """Returns services, messages and enums; one that is nested comes after the message that has it."""
    found: list[ProtoType] = []
    open_types: list[ProtoType] = []
    comment: list[str] = []
    for line in text.splitlines():
        if line.strip().startswith("//"):
            comment.append(line.strip().removeprefix("//").strip())
            continue
        said, comment = " ".join(comment), []
        if opened := _TYPE.match(line):
            if opened[1] == "oneof":
                open_types.append(open_types[-1])
            else:
                name = ".".join([*(outer[0] for outer in open_types[-1:]), opened[2]])
                open_types.append((name, said, _COLUMNS[opened[1]], []))
                found.append(open_types[-1])
        if open_types:
            rows = open_types[-1][3]
            rows += [(*map(code, call), said) for call in _RPC.findall(line)]
            inside = line.partition("{")[2] if opened else line
            rows += [
                (code(name), *([code(kind.strip())] if kind.strip() else []), said * (not opened))
                for kind, name, _ in _FIELD.findall(inside)
            ]
            if "}" in line:
                open_types.pop()
    return found


# Spark


def spark() -> Iterator[str]:
    yield from heading(
        "Options for Spark",
        "The options of the DataFrame formats `chronoline` and `chronoline_log`.",
    )
    yield "[Spark](../spark.md) shows them at work. Names are the same in any case."
    yield "A time has its zone, or is `now`, `+1h`, `-10m`; a duration is `250ms`, `90s`, `1.5h` or `7d`."
    yield ""
    for module, title in _SPARK.items():
        name = f"chronoline.spark.{module}"
        tree = ast.parse((ROOT / f"{name.replace('.', '/')}.py").read_text("utf-8"))
        meanings = importlib.import_module(name).OPTIONS
        found = {option: (kind, default) for option, kind, default in spark_options(tree)}
        if found.keys() != meanings.keys():
            raise ValueError(f"OPTIONS of {name} and the options that it reads differ")
        rows = ((code(each), *found[each], meanings[each]) for each in meanings)
        yield from (f"## {title}", "")
        yield from table(("option", "type", "default", ""), rows)


def spark_options(tree: ast.Module) -> Iterator[tuple[str, str, str]]:
    """Yields name, type and default of each option that a module reads."""
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call) or not call.args:
            continue
        called = call.func
        if isinstance(called, ast.Name) and called.id == "_offsets":
            yield ast.literal_eval(call.args[1]), "text", ""
        if isinstance(called, ast.Attribute) and getattr(called.value, "id", "") == "options":
            name, *rest = call.args
            if called.attr not in ("finish", "problem") and isinstance(name, ast.Constant):
                yield str(name.value), *kind_of(called.attr, rest)


def kind_of(kind: str, rest: list[ast.expr]) -> tuple[str, str]:
    words = [ast.unparse(each) for each in rest]
    if kind == "required":
        return "text", "required"
    if kind == "choice" and isinstance(rest[0], ast.Tuple):
        return "one of " + ", ".join(code(ast.literal_eval(each)) for each in rest[0].elts), code(
            words[1].strip("'")
        )
    kinds = {
        "optional": "text",
        "whole": "whole number",
        "duration_ms": "duration",
        "moment_ms": "time",
        "boolean": "true or false",
        "choice": "text",
    }
    literal = isinstance(rest[0], ast.Constant) if rest else False
    return kinds[kind], code(words[0].strip("'")) if literal and words[0] != "None" else ""


def main() -> None:
    TARGET.mkdir(exist_ok=True)
    for name, text in pages().items():
        (TARGET / name).write_text(text, "utf-8")


if __name__ == "__main__":
    main()
