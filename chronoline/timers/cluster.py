"""The list of nodes: a file of the operator that is read again when it has changed.

    staying = ["10.0.0.1:7253", "10.0.0.2:7253"]
    joining = ["10.0.0.3:7253"]
    leaving = []

Every node reads the same list. A node that is not in it refuses to start.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

from chronoline.core.errors import InvalidInput
from chronoline.timers.membership import Membership

_LISTS = ("staying", "joining", "leaving")
_DEFAULT_PORT = 7253
_HIGHEST_PORT = 65_535


def read_membership(path: Path, me: str) -> Membership:
    """Reads the file. Raises `InvalidInput`, which names the problem."""
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise InvalidInput(
            f"the list of nodes {str(path)!r} cannot be read: {error.strerror}"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"the list of nodes {str(path)!r} is not TOML: {error}") from None
    if unknown := sorted(set(table) - set(_LISTS)):
        raise InvalidInput(f"{path.name} has {unknown[0]!r}; there are: {', '.join(_LISTS)}")
    lists = [tuple(map(_address, _strings(path, name, table.get(name, [])))) for name in _LISTS]
    everybody = [address for each in lists for address in each]
    if len(set(everybody)) < len(everybody):
        twice = next(address for address in everybody if everybody.count(address) > 1)
        raise InvalidInput(f"{path.name} names {twice} twice")
    membership = Membership(*lists)
    if not membership.after:
        raise InvalidInput(
            f"{path.name} leaves no node to keep timers: name some that stay or join"
        )
    if me not in everybody:
        raise InvalidInput(
            f"{path.name} does not name this node, {me}; it names {', '.join(sorted(everybody))}. Say which "
            "of them it is by --timers, or add it"
        )
    return membership


def _strings(path: Path, name: str, value: object) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(each, str) and each for each in value):
        raise InvalidInput(f'{name} in {path.name} must be a list such as ["10.0.0.1:7253"]')
    return value


def _address(text: str) -> str:
    """The address with its port; 7253 if it has none."""
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        return f"{text}:{_DEFAULT_PORT}"
    if not host or not port.isdecimal() or not 0 < int(port) <= _HIGHEST_PORT:
        raise InvalidInput(f"{text!r} is no address; one is 10.0.0.1:7253")
    return text
