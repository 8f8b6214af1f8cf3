"""Generates the blocking client from the asynchronous one: `python -m scripts.unasync`.

Every public method of `AsyncClient` and `AsyncLease` becomes a blocking one of `Client` and `Lease`, with the
same arguments and docstring. A test checks that `sync.py` is up to date.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

_CLIENT = Path(__file__).parents[1] / "chronoline" / "client"
TARGET = _CLIENT / "sync.py"
_NOT_MADE = ("subscribe", "unsubscribe", "held", "renewed", "give_back")
_HEAD = '''"""The blocking client. Made by `python -m scripts.unasync`: edit the asynchronous one."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from chronoline.client.administration import (
    ALL_MESSAGES,
    BulkResult,
    MessagePage,
    MessageState,
    Progress,
    Selection,
)
from chronoline.client.aio import DEFAULT_PREFETCH, DEFAULT_TIMEOUT_S, AsyncClient
from chronoline.client.cluster import Cluster, PreferredBroker
from chronoline.client.event_loop import BlockingIterator, Home, run_in
from chronoline.client.leases import AsyncLease
from chronoline.client.messages import DeadLetter, Forecast, Headers, Message, ToSend
from chronoline.client.outcomes import Outcomes
from chronoline.client.schedules import Schedule
from chronoline.client.times import Delay
from chronoline.client.tls import Tls
from chronoline.client.topics import Topic, TopicSettings
from chronoline.core.message import DEFAULT_PRODUCER_GROUP, Header, SavedMessage
from chronoline.runtime.service import Closable

if TYPE_CHECKING:
    from pydantic import BaseModel

    Model = TypeVar("Model", bound=BaseModel)

Result = TypeVar("Result")


class Lease:
{lease_doc}

    def __init__(self, lease: AsyncLease, loop: asyncio.AbstractEventLoop) -> None:
        self._inner = lease
        self._loop = loop

    def __repr__(self) -> str:
        return repr(self._inner)

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return run_in(self._loop, work)

{lease_body}


class Client(Closable):
{client_doc}

    {client_init}
        self._inner = AsyncClient({client_arguments})
        self._home = Home(self._inner.close)

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self._home.run(work)

{client_body}
'''


def make() -> str:
    """Returns the text of `sync.py`."""
    client, lease = _class("aio.py", "AsyncClient"), _class("leases.py", "AsyncLease")
    init = next(each for each in client.body if _named(each) == "__init__")
    assert isinstance(init, ast.FunctionDef)
    return _HEAD.format(
        lease_doc=_doc(lease, 4),
        lease_body=_methods(lease),
        client_doc=_doc(client, 4),
        client_init=_signature(init) + "\n" + _doc(init, 8),
        client_arguments=_passed_on(init),
        client_body=_methods(client),
    )


def _class(file: str, name: str) -> ast.ClassDef:
    tree = ast.parse((_CLIENT / file).read_text("utf-8"))
    found = [each for each in tree.body if isinstance(each, ast.ClassDef) and each.name == name]
    return found[0]


def _named(node: ast.stmt) -> str:
    return node.name if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else ""


def _methods(owner: ast.ClassDef) -> str:
    made = [_attribute(name) for name in _attributes(owner)]
    for node in owner.body:
        name = _named(node)
        if name and not name.startswith("_") and name not in _NOT_MADE:
            assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            made.append(_method(node))
    return "\n\n".join(made)


def _attributes(owner: ast.ClassDef) -> list[tuple[str, str]]:
    """Returns the public attributes that a lease sets in `__init__`, with their types."""
    kinds = {"topic": "str", "topic_uid": "int", "version": "int"}
    return list(kinds.items()) if owner.name == "AsyncLease" else []


def _attribute(named: tuple[str, str]) -> str:
    name, kind = named
    return f"    @property\n    def {name}(self) -> {kind}:\n        return self._inner.{name}"


def _method(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    doc = f"\n{_doc(node, 8)}" if ast.get_docstring(node) else ""
    head = "    "
    if any(ast.unparse(each) == "property" for each in node.decorator_list):
        return (
            f"    @property\n{head}{_signature(node)}{doc}\n        return self._inner.{node.name}"
        )
    call = f"self._inner.{node.name}({_passed_on(node)})"
    return f"{head}{_signature(node)}{doc}\n{_body(node, call)}"


def _body(node: ast.FunctionDef | ast.AsyncFunctionDef, call: str) -> str:
    if node.returns is not None and "AsyncGenerator" in ast.unparse(node.returns):
        return (
            f"        leases = {call}\n"
            "        return BlockingIterator(\n"
            "            self._home, leases, lambda lease: Lease(lease, self._home.loop)\n"
            "        )"
        )
    if isinstance(node, ast.FunctionDef):
        return f"        return {call}"
    return f"        return self._run({call})"


def _signature(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    returns = ast.unparse(node.returns) if node.returns is not None else "None"
    returns = returns.replace("AsyncGenerator[AsyncLease, None]", "BlockingIterator[Lease]")
    return f"def {node.name}({ast.unparse(node.args)}) -> {returns}:"


def _passed_on(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    positional = [each.arg for each in node.args.args[1:]]
    named = [f"{each.arg}={each.arg}" for each in node.args.kwonlyargs]
    if node.args.kwarg is not None:
        named.append(f"**{node.args.kwarg.arg}")
    return ", ".join([*positional, *named])


def _doc(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, indent: int) -> str:
    text = ast.get_docstring(node, clean=True) or ""
    pad = " " * indent
    lines = [f"{pad}{line}" if line else "" for line in text.splitlines()]
    last = f"\n{pad}" if len(lines) > 1 else ""
    return f'{pad}"""{chr(10).join(lines).lstrip()}{last}"""'


def formatted() -> str:
    """Formats the text with ruff."""
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", TARGET.name, "-"]
    done = subprocess.run(command, input=make(), capture_output=True, text=True, check=True)
    return done.stdout


if __name__ == "__main__":
    TARGET.write_text(formatted(), "utf-8")
