"""Command lines of pages: shell text into commands, and the options that the real parser finds in them."""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

import typer

from chronoline.cli.main import command_line

_SEPARATORS = ";|&()\n"
_COMMENT = re.compile(r"('[^']*'|\"[^\"]*\")|(?:^|(?<=\s))#[^\n]*", re.M)
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_OF_THE_SHELL = {"exec", "then", "do", "else", "if", "while", "!"}


@functools.cache
def _root() -> Any:
    return typer.main.get_command(command_line())  # typer's groups are its own


def parse(arguments: Sequence[str]) -> dict[str, Any]:
    """The options of a command line, by their names. Raises `ValueError` where the command refuses it."""
    command = _root()
    left = list(arguments)
    while hasattr(command, "commands"):
        if not left or left[0] not in command.commands:
            raise ValueError(f"there is no command {' '.join(left[:1])!r}")
        command = command.commands[left.pop(0)]
    try:
        with command.make_context(command.name, left) as made:
            return dict(made.params)
    except typer.TyperException as error:
        raise ValueError(str(error)) from None


def is_command(name: str) -> bool:
    return name in _root().commands


def commands(text: str) -> Iterator[list[str]]:
    """The simple commands of a shell text, as words: without assignments, redirections and comments."""
    text = _COMMENT.sub(lambda found: found[1] or "", text.replace("\\\n", " "))
    lexer = shlex.shlex(text, posix=True, punctuation_chars=_SEPARATORS + "<>")
    lexer.whitespace = " \t\r"
    lexer.whitespace_split = True
    lexer.commenters = ""
    words: list[str] = []
    is_file = False
    for token in [*lexer, "\n"]:
        if set(token) <= set(_SEPARATORS):
            if words := _without_prefix(words):
                yield words
            words, is_file = [], False
        elif set(token) <= set("<>&"):
            is_file = True
        elif is_file:
            is_file = False
        else:
            words.append(token)


def _without_prefix(words: list[str]) -> list[str]:
    while words and (_ASSIGNMENT.match(words[0]) or words[0] in _OF_THE_SHELL):
        words = words[1:]
    if words[:1] == ["sudo"]:
        words = words[3:] if words[1:2] == ["-u"] else words[1:]
    return words
