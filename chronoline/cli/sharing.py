"""Options that several commands share, written once."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

Given = ParamSpec("Given")
Made = TypeVar("Made")

Command = Callable[..., None]


def sharing(
    make: Callable[..., Made],
) -> Callable[[Callable[Concatenate[Made, Given], None]], Command]:
    """Gives a command the options that `make` takes, after its own.

    The command is called with what `make` made of them, before the rest.
    """
    shared = inspect.signature(make, eval_str=True).parameters

    def decorate(command: Callable[Concatenate[Made, Given], None]) -> Command:
        signature = inspect.signature(command, eval_str=True)
        _, *own = signature.parameters.values()

        @functools.wraps(command)
        def run(**given: Any) -> None:
            made = make(**{name: given.pop(name) for name in shared})
            command(made, **given)  # type: ignore[call-arg]  # by name, as typer calls

        by_name = inspect.Parameter.KEYWORD_ONLY
        parameters = [each.replace(kind=by_name) for each in (*own, *shared.values())]
        # This is what typer reads.
        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]  # it may be set
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        return run

    return decorate


def default(shown: str) -> str:
    """How the help says what holds where nothing is given, if something else than the option decides it."""
    return f"[dim]\\[default: {shown}][/]"
