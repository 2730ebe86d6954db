"""A call of a function as bytes, checked against the function's own signature. Pure."""

import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import zip_longest
from types import SimpleNamespace
from typing import Any

import msgspec

from holdfast.errors import InvalidInput, PayloadRefused
from holdfast.tasks.payload import convert, decode, encode

__all__ = ["Signature"]


class _Arguments(msgspec.Struct, gc=False):
    args: list[Any] = []
    kwargs: dict[str, Any] = {}


class Signature:
    """How a function is called. What was a date comes back as a date: by its annotations."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._signature = inspect.signature(function)

    def __str__(self) -> str:
        return f"{self._function.__name__}{self._signature}"

    def pack(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
        """The call as JSON, the same for equal calls however they are spelled."""
        if kwargs or len(args) != len(self._places) or self._picky:
            bound = self._bind(args, kwargs)
            args, kwargs = bound.args, bound.kwargs
        try:
            payload = encode({"args": list(args), "kwargs": kwargs})
        except PayloadRefused as error:
            raise self._unstorable(args, kwargs, error) from None
        self.unpack(payload)  # what the worker could not read is refused here
        return payload

    def unpack(self, payload: bytes) -> tuple[list[Any], dict[str, Any]]:
        """The call again; `PayloadRefused` where it does not fit the function (any more)."""
        call = decode(payload, _Arguments)
        args, kwargs = call.args, call.kwargs
        places = self._places
        try:
            if len(args) > len(places):
                kind = self._rest
                args = [
                    *map(convert, args, places),
                    *(convert(value, kind) for value in args[len(places) :]),
                ]
            elif args:
                args = [
                    value if kind is Any else convert(value, kind)
                    for value, kind in zip(args, places, strict=False)
                ]
            if kwargs:
                kinds, others = self._kinds, self._other_kinds
                kwargs = {name: convert(v, kinds.get(name, others)) for name, v in kwargs.items()}
            if kwargs or len(args) != len(places) or self._picky:
                self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise PayloadRefused(f"the stored arguments do not fit {self}: {error}") from None
        except PayloadRefused as error:
            raise PayloadRefused(f"arguments of {self}: {self._unfit(call)}{error}") from None
        return args, kwargs

    def _unfit(self, call: "_Arguments") -> str:
        """The name of the first argument that does not fit: its value is not told."""
        placed = zip(self.places, self._places, call.args, strict=False)
        named = ((name, self._kinds.get(name, Any), value) for name, value in call.kwargs.items())
        for name, kind, value in (*placed, *named):
            try:
                convert(value, kind)
            except PayloadRefused:
                return f"{name}: "
        return ""

    def _unstorable(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], error: PayloadRefused
    ) -> PayloadRefused:
        """The error of the first argument that cannot be stored even alone, with its name."""
        rest = "*" + "".join(p.name for p in self._of(inspect.Parameter.VAR_POSITIONAL))
        placed = zip_longest(self.places[: len(args)], args, fillvalue=rest)
        for name, value in (*placed, *kwargs.items()):
            try:
                encode(value)
            except PayloadRefused as alone:
                return PayloadRefused(f"argument {name} of {self}: {alone}")
        return PayloadRefused(f"arguments of {self}: {error}")

    def value_of(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """What a call gives as the argument `name`, by default or otherwise."""
        bound = self._bind(args, kwargs)
        bound.apply_defaults()
        return bound.arguments[name]

    @cached_property
    def places(self) -> tuple[str, ...]:
        """The names of positional arguments."""
        found = self._of(inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        return tuple(parameter.name for parameter in found)

    def has(self, name: str) -> bool:
        return name in self._signature.parameters

    @property
    def required(self) -> list[str]:
        """The names of arguments that must be given."""
        several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        parameters = self._signature.parameters.values()
        return [p.name for p in parameters if p.default is p.empty and p.kind not in several]

    def result(self, data: bytes) -> Any:
        return decode(data, self.returns)

    @property
    def returns(self) -> Any:
        return self._hints.get("return", Any)

    def schema(self) -> dict[str, Any]:
        """Its arguments by name, as JSON Schema; what has no schema may be anything."""
        definitions: dict[str, Any] = {}
        properties = {name: _schema(kind, definitions) for name, kind in self._kinds.items()}
        open_ended = bool(self._of(inspect.Parameter.VAR_KEYWORD))
        return {
            "type": "object",
            "properties": properties,
            "required": [name for name in self.required if name in properties],
            "additionalProperties": open_ended,
        } | ({"$defs": definitions} if definitions else {})

    def _bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> inspect.BoundArguments:
        try:
            return self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise InvalidInput(f"{error}; it is called as {self}") from None

    @cached_property
    def _hints(self) -> dict[str, Any]:
        try:
            return typing.get_type_hints(self._function, include_extras=True)
        except (NameError, TypeError, AttributeError):  # names that only a type checker sees
            return self._hints_one_by_one()

    def _hints_one_by_one(self) -> dict[str, Any]:
        """So that one that cannot be read does not take the others with it."""
        plain = inspect.unwrap(self._function)
        hints: dict[str, Any] = {}
        for name, hint in getattr(plain, "__annotations__", {}).items():
            alone = SimpleNamespace(__annotations__={name: hint})
            with suppress(NameError, TypeError, AttributeError):
                names = getattr(plain, "__globals__", {})
                hints |= typing.get_type_hints(alone, globalns=names, include_extras=True)
        return hints

    def _kind(self, parameter: inspect.Parameter) -> Any:
        return self._hints.get(parameter.name, Any)

    def _of(self, *kinds: Any) -> list[inspect.Parameter]:
        return [p for p in self._signature.parameters.values() if p.kind in kinds]

    @cached_property
    def _places(self) -> list[Any]:
        found = self._of(inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        return [self._kind(parameter) for parameter in found]

    @cached_property
    def _rest(self) -> Any:
        found = self._of(inspect.Parameter.VAR_POSITIONAL)
        return self._kind(found[0]) if found else Any

    @cached_property
    def _kinds(self) -> dict[str, Any]:
        named = self._of(inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        return {parameter.name: self._kind(parameter) for parameter in named}

    @cached_property
    def _other_kinds(self) -> Any:
        found = self._of(inspect.Parameter.VAR_KEYWORD)
        return self._kind(found[0]) if found else Any

    @cached_property
    def _picky(self) -> bool:
        """Whether arguments must be given by name."""
        return any(p.default is p.empty for p in self._of(inspect.Parameter.KEYWORD_ONLY))


def _schema(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    if kind is Any:
        return {}
    try:
        (schema,), found = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    except (TypeError, ValueError, NotImplementedError):  # a model of somebody else's
        return {}
    definitions |= found
    return schema
