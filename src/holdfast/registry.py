"""Durable functions by name, and what they ask for. Knows no store; runs nothing by itself."""

import inspect
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar, ParamSpec, TypeVar, overload

from holdfast.errors import InvalidInput, UnknownType
from holdfast.function import Function, Isolation, KeyFunction, Soon, Traits, Wishes
from holdfast.tasks.cron import Cron
from holdfast.tasks.durations import Duration, duration, longer_than_nothing
from holdfast.tasks.names import (
    check_labels,
    check_name,
    check_number,
    check_priority,
    check_tries,
    check_type,
)
from holdfast.tasks.retry import RetryPolicy

__all__ = ["Durable", "Registry", "durable", "functions", "module_name"]

P = ParamSpec("P")
T = TypeVar("T")  # what calling the function itself gives: a coroutine, or its result
R = TypeVar("R")  # what the task results in
MAINS = ("__main__", "__mp_main__")  # a program, and the same program imported by its child
_FOR_GOOD = timedelta(days=36_500)
_LEAST_MEMORY = 64 * 1024 * 1024


class Registry:
    """Functions by (name, version); what is not found here is looked for below."""

    additions: ClassVar[int] = 0  # to all registries

    def __init__(self, below: "Registry | None" = None) -> None:
        self._own: dict[tuple[str, str], Function[..., Any, Any]] = {}
        self._below = below
        self._all: dict[tuple[str, str], Function[..., Any, Any]] = {}
        self._as_of = -1
        self.durable = Durable(self)

    def __iter__(self) -> Iterator[Function[..., Any, Any]]:
        return iter(self.all().values())

    def all(self) -> Mapping[tuple[str, str], Function[..., Any, Any]]:
        """Asked for with every task that starts, so it is put together once for each change."""
        if self._as_of != Registry.additions:
            self._as_of = Registry.additions
            self._all = {**(self._below.all() if self._below else {}), **self._own}
        return self._all

    def add(self, function: Function[..., Any, Any]) -> None:
        there = self._own.get((function.name, function.version))
        if there and not _same(there, function):
            raise InvalidInput(
                f"two functions are registered as {function.name!r}: {_origin(there)} and "
                f"{_origin(function)}; give one of them another name="
            )
        if function.traits.cron and (other := self._on_schedule(function)):
            raise InvalidInput(
                f"two versions of {function.name!r} have a cron, {other.version!r} and "
                f"{function.version!r}; leave it to the one that shall run"
            )
        self._own[function.name, function.version] = function
        Registry.additions += 1

    def _on_schedule(self, function: Function[..., Any, Any]) -> Function[..., Any, Any] | None:
        """Another version of it that has a cron."""
        versions = (f for f in self._own.values() if f.name == function.name and f.traits.cron)
        return next((f for f in versions if f.version != function.version), None)

    def find(self, name: str, version: str | None = None) -> Function[..., Any, Any]:
        """By its name, or by the last part of it where that is unambiguous. Where no version is
        named, the one without any, or the only one. Raises `UnknownType`."""
        if found := self.all().get((name, version or "")):
            return found
        fits = [one for one in self._fitting(name) if version in (None, one.version)]
        if len(fits) == 1:
            return fits[0]
        raise UnknownType(name, map(_named, self), among=map(_named, fits))

    def full_name(self, name: str) -> str:
        """Of all versions of a function; as it stands where none is known by it."""
        names = {function.name for function in self._fitting(name)}
        if len(names) > 1:
            raise UnknownType(name, map(_named, self), among=names)
        return names.pop() if names else name

    def _fitting(self, name: str) -> list[Function[..., Any, Any]]:
        exact = [function for function in self if function.name == name]
        return exact or [
            function
            for function in self
            if name in (function.name.rpartition(":")[2], function.name.rpartition(".")[2])
        ]


class Durable:
    """The decorator. An object, so that it reads the same on a module, a class and an app."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> Function[P, Soon[R], R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Function[P, R, R]: ...
    @overload
    def __call__(
        self,
        /,
        *,
        name: str | None = None,
        queue: str = "default",
        tags: Iterable[str] = (),
        requires: Iterable[str] = (),
        priority: int = 0,
        version: str = "",
        max_tries: int | None = None,
        expires: Duration | None = None,
        max_concurrent: int | None = None,
        max_concurrent_total: int | None = None,
        concurrency_key: str | None = None,
        rate_limit: str | None = None,
        retry_policy: RetryPolicy | None = None,
        timeout: Duration | None = None,
        idempotent: bool = False,
        idempotency_key_func: KeyFunction | None = None,
        cached: bool | Duration = False,
        isolation: Isolation | None = None,
        memory_limit: int | None = None,
        cpu_limit: float | None = None,
        fenced: bool = False,
        cron: str | None = None,
        timezone: str | None = None,
    ) -> "_Decorator": ...
    def __call__(self, function: Any = None, /, **options: Any) -> Any:
        """Make a function durable: bare, or with options."""

        def decorate(function: Callable[..., Any]) -> Function[..., Any, Any]:
            made = _function(function, **options)
            self._registry.add(made)
            return made

        if function is None:
            return decorate
        if options or not callable(function):
            raise InvalidInput("write @durable, or @durable(queue=..., ...), above a function")
        return decorate(function)


class _Decorator:
    """For type checkers: what `durable(...)` with options gives."""

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> Function[P, Soon[R], R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Function[P, R, R]: ...
    def __call__(self, function: Any, /) -> Any:
        raise NotImplementedError


def _function(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    queue: str = "default",
    tags: Iterable[str] = (),
    requires: Iterable[str] = (),
    priority: int = 0,
    max_tries: int | None = None,
    expires: Duration | None = None,
    timeout: Duration | None = None,
    cached: bool | Duration = False,
    cron: str | None = None,
    timezone: str | None = None,
    **traits: Any,
) -> Function[..., Any, Any]:
    _check_callable(function)
    wishes = Wishes(
        queue=check_name("queue", queue),
        tags=check_labels("tag", tags),
        requires=check_labels("requirement", requires),
        priority=check_priority(priority),
        max_tries=None if max_tries is None else check_tries(max_tries),
        expires=None
        if expires is None
        else longer_than_nothing("expires", duration("expires", expires)),
    )
    if unknown := sorted(set(traits) - set(Traits.__struct_fields__)):
        named = {*inspect.signature(_function).parameters, *Traits.__struct_fields__}
        known = sorted(named - {"function", "traits"})
        raise InvalidInput(
            f"durable() of {getattr(function, '__qualname__', function)} does not know "
            f"{', '.join(unknown)}; it takes {', '.join(known)}"
        )
    made = Traits(
        timeout=None if timeout is None else duration("timeout", timeout),
        cached=_lifetime(cached),
        cron=_cron(cron, timezone),
        **traits,
    )
    _check_traits(made)
    return Function(function, check_type(name or _name_of(function)), made, wishes)


def _cron(cron: str | None, timezone: str | None) -> Cron | None:
    if cron is None:
        if timezone is not None:
            raise InvalidInput("timezone= says by which clocks a cron= counts: give cron= too")
        return None
    return Cron(cron, "UTC" if timezone is None else timezone)


def _lifetime(cached: bool | Duration) -> timedelta | None:
    """For how long a result counts; True: for as long as its task is kept."""
    if isinstance(cached, bool):
        return _FOR_GOOD if cached else None
    return longer_than_nothing("cached", duration("cached", cached))


def _check_callable(function: Any) -> None:
    """What could not be called by a worker from its name and JSON is refused where it stands."""
    match function:
        case Function():
            raise InvalidInput(f"{function.name!r} is durable already; decorate it once")
        case staticmethod():
            function = function.__func__
    if not callable(function) or not hasattr(function, "__qualname__"):
        raise InvalidInput(
            f"{function!r:.80} is no function with a name of its own; write one with def"
        )
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidInput(
            f"{function.__qualname__} is a generator, and a task has one result; return a list"
        )
    owner = function.__qualname__.rpartition(".")[0]
    first = next(iter(inspect.signature(function).parameters), None)
    if inspect.ismethod(function) or (
        owner and not owner.endswith("<locals>") and first in ("self", "cls")
    ):
        raise InvalidInput(
            f"{function.__qualname__} is a method, and a task cannot carry its object; make it a "
            "function or a staticmethod that is given what it needs"
        )


def _check_traits(traits: Traits) -> None:
    if traits.isolation not in (None, "process"):
        raise InvalidInput(f"isolation is 'process' or nothing, not {traits.isolation!r}")
    for name in ("idempotent", "fenced"):
        if type(value := getattr(traits, name)) is not bool:
            raise InvalidInput(f"{name} is True or False, not {value!r:.80}")
    if traits.idempotency_key_func is not None and not callable(traits.idempotency_key_func):
        raise InvalidInput(
            "idempotency_key_func is a function that makes a key of the arguments, as "
            f"lambda order: str(order.id), not {traits.idempotency_key_func!r:.80}"
        )
    if traits.version != "":
        check_name("version", traits.version)
    if traits.timeout == timedelta(0):
        raise InvalidInput("timeout must be longer than nothing; leave it out for none")
    if traits.runs_once and traits.cached not in (None, _FOR_GOOD):
        raise InvalidInput(
            "cached for a while and idempotent exclude each other: the one runs again when its "
            "result is too old, the other never; write cached=True, or leave one of them out"
        )
    if not isinstance(traits.retry_policy, RetryPolicy | None):
        raise InvalidInput(f"retry_policy must be a RetryPolicy, got {traits.retry_policy!r:.80}")
    for what in ("max_concurrent", "max_concurrent_total"):
        if (number := getattr(traits, what)) is not None:
            check_number(what, number, 1, 1_000_000)
    if traits.concurrency_key is not None and traits.max_concurrent is None:
        raise InvalidInput(
            "concurrency_key says for what max_concurrent counts: give max_concurrent too"
        )
    if traits.max_concurrent_total is not None and traits.concurrency_key is None:
        raise InvalidInput(
            "max_concurrent_total goes with a concurrency_key; without one use max_concurrent"
        )
    _check_process_limits(traits)
    _ = traits.limit  # a limit that cannot be kept is refused where it is written


def _check_process_limits(traits: Traits) -> None:
    memory, cpu = traits.memory_limit, traits.cpu_limit
    if memory is None and cpu is None:
        return
    if traits.isolation != "process":
        raise InvalidInput("memory_limit and cpu_limit can be kept only with isolation='process'")
    if memory is not None and (type(memory) is not int or memory < _LEAST_MEMORY):
        raise InvalidInput(
            "memory_limit is in bytes, the interpreter's own included: at least "
            f"{_LEAST_MEMORY:,}, not {memory!r:.80}"
        )
    if cpu is not None and not (
        isinstance(cpu, int | float) and not isinstance(cpu, bool) and 0 < cpu < 1e9
    ):
        raise InvalidInput(f"cpu_limit is in seconds, more than none, not {cpu!r:.80}")


def module_name(module: str) -> str:
    """The same for a program, for its children, and for whoever imports it as a module."""
    if module not in MAINS:
        return module
    main = sys.modules[module]
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if spec is not None and spec.name not in MAINS:
        return str(spec.name)
    # What comes from a prompt or a pipe has no file, or one named <stdin>.
    return Path(file).stem if file and not file.startswith("<") else "__main__"


def _name_of(function: Callable[..., Any]) -> str:
    return f"{module_name(function.__module__)}:{function.__qualname__}"


def _named(function: Function[..., Any, Any]) -> str:
    return f"{function.name}@{function.version}" if function.version else function.name


def _same(one: Function[..., Any, Any], other: Function[..., Any, Any]) -> bool:
    """Also where a file is both the program that runs and a module that somebody imports."""
    if _path(one) == _path(other):
        return True
    same_file = _file(one) is not None and _file(one) == _file(other)
    return same_file and one.function.__qualname__ == other.function.__qualname__


def _file(function: Function[..., Any, Any]) -> Path | None:
    code = getattr(function.function, "__code__", None)
    return Path(code.co_filename).resolve() if code else None


def _path(function: Function[..., Any, Any]) -> str:
    return f"{function.function.__module__}.{function.function.__qualname__}"


def _origin(function: Function[..., Any, Any]) -> str:
    code = getattr(function.function, "__code__", None)
    place = f" ({code.co_filename}:{code.co_firstlineno})" if code else ""
    return _path(function) + place


functions = Registry()
durable = functions.durable
