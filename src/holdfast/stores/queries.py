"""Reads named statements from .sql files: `-- name: verb`, then its SQL with `:parameters`."""

import re
from collections.abc import Iterator
from importlib.resources.abc import Traversable

__all__ = ["load", "numbered", "parameters"]

_NAME = re.compile(r"^-- name: (\S+)\s*$", re.MULTILINE)
# A colon before a name; not a cast (::), not inside a quoted text.
_PARAMETER = re.compile(r"'(?:[^']|'')*'|(?<![:\w]):([a-z_][a-z0-9_]*)")


def load(folder: Traversable) -> dict[str, str]:
    """All statements of the folder's .sql files, by name."""
    found: dict[str, str] = {}
    for name, text in _statements(folder):
        if name in found:
            raise ValueError(f"two statements are named {name}")
        found[name] = text
    return found


def parameters(sql: str) -> list[str]:
    """The names of a statement's parameters, in the order of their first use."""
    return list(dict.fromkeys(m[1] for m in _PARAMETER.finditer(sql) if m[1]))


def numbered(sql: str) -> tuple[str, list[str]]:
    """The statement with $1, $2 … for its parameters, and their names in that order."""
    names = parameters(sql)
    places = {name: f"${n}" for n, name in enumerate(names, 1)}
    return _PARAMETER.sub(lambda m: places[m[1]] if m[1] else m[0], sql), names


def _statements(folder: Traversable) -> Iterator[tuple[str, str]]:
    for file in sorted(folder.iterdir(), key=lambda f: f.name):
        if file.name.endswith(".sql"):
            _, *parts = _NAME.split(file.read_text("utf-8"))
            yield from zip(parts[::2], map(str.strip, parts[1::2]), strict=True)
