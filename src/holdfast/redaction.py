"""Fields that nobody should see: known by their names, wherever they stand. Pure."""

import binascii
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

__all__ = ["HIDDEN", "Redaction", "scrub"]

HIDDEN = "[hidden]"
_NAMES = (
    "password", "passwd", "secret", "client_secret", "token", "access_token", "refresh_token",
    "authorization", "api_key", "private_key", "cookie",
)  # fmt: skip
_LEAST = 4  # characters: shorter values stand in any text by chance


class Redaction:
    """`names` come to those that are always hidden; case, - and _ do not count."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = frozenset(map(_plain, (*_NAMES, *names)))

    def hide(self, data: bytes, places: Sequence[str] | None = ()) -> bytes:
        """JSON without the values of such fields. `places`: the names of positional arguments;
        None: they have names that nobody here knows, so any of them may be such a field."""
        try:
            value = msgspec.json.decode(data)
        except msgspec.MsgspecError:
            return data
        hidden = self._hidden(value)
        if isinstance(hidden, dict) and isinstance(hidden.get("args"), list):
            args = hidden["args"]
            hidden["args"] = [
                HIDDEN if places is None or self.is_secret(name) else arg
                for arg, name in _placed(args, places or ())
            ]
        return data if hidden == value else msgspec.json.encode(hidden)

    def values(self, data: bytes, places: Sequence[str] | None = ()) -> frozenset[str]:
        """The texts that stand in such fields, to be found again in what somebody says. `places` as
        for `hide`: None, and all texts among the positional arguments are such."""
        try:
            value = msgspec.json.decode(data)
        except msgspec.MsgspecError:
            return frozenset()
        found = set(self._texts(value, inside=False))
        if isinstance(value, dict) and isinstance(value.get("args"), list):
            for arg, name in _placed(value["args"], places or ()):
                inside = places is None or self.is_secret(name)
                found |= set(self._texts(arg, inside=inside))
        said = {way for text in found for way in _ways(text)}
        return frozenset(text for text in said if len(text) >= _LEAST)

    def _hidden(self, value: Any) -> Any:
        match value:
            case dict():
                return {
                    name: HIDDEN if self.is_secret(name) else self._hidden(inner)
                    for name, inner in value.items()
                }
            case list():
                return [self._hidden(inner) for inner in value]
        return value

    def _texts(self, value: Any, *, inside: bool) -> Iterator[str]:
        match value:
            case dict():
                for name, inner in value.items():
                    yield from self._texts(inner, inside=inside or self.is_secret(name))
            case list():
                for inner in value:
                    yield from self._texts(inner, inside=inside)
            case str() if inside:
                yield value
            case int() | float() if inside and not isinstance(value, bool):
                yield str(value)

    def is_secret(self, name: Any) -> bool:
        """Whether it is the name of a field that is hidden."""
        return isinstance(name, str) and _plain(name) in self._names


def scrub(text: str, values: Iterable[str]) -> str:
    """The text without these values, longest first: one may be part of another."""
    for value in sorted(values, key=len, reverse=True):
        text = text.replace(value, HIDDEN)
    return text


def _ways(text: str) -> Iterator[str]:
    """How a value may be said: as a text; and what was given as bytes, which stands in JSON as
    base64, as bytes and as the text that they are."""
    yield from _spelled(text)
    try:
        raw = binascii.a2b_base64(text, strict_mode=True)
    except ValueError:  # none of bytes
        return
    yield from (repr(raw)[2:-1], repr(b'"' + raw)[3:-1])
    yield from _spelled(raw.decode("utf-8", "backslashreplace"))


def _spelled(text: str) -> Iterator[str]:
    """As it is, and in the repr or JSON of something, where lines and quotes are escaped: a single
    quote where there is a double one too."""
    yield from (text, repr(text)[1:-1], repr('"' + text)[2:-1])
    yield from (json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1])


def _plain(name: str) -> str:
    return re.sub(r"[-_\s]", "", name).casefold()


def _placed(args: Sequence[Any], places: Sequence[str]) -> Iterator[tuple[Any, str]]:
    for n, arg in enumerate(args):
        yield arg, places[n] if n < len(places) else ""
