"""Where a function stands in the code, so that another process of the same program finds it."""

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from holdfast.errors import HoldfastError, InvalidInput
from holdfast.function import Function
from holdfast.registry import MAINS, functions

__all__ = ["Place", "check_not_importing", "find", "place_of"]

_CHILDS_MAIN = "__mp_main__"  # the name that multiprocessing gives it: scripts know how to look

_importing: set[str] = set()


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Told by the worker from its own code, never read from a database."""

    name: str
    version: str
    module: str
    qualname: str
    script: str | None = None  # the file of a program that was started by its path


def place_of(function: Function[..., Any, Any]) -> Place:
    """Raises `InvalidInput` where another process could not find it."""
    plain = function.function
    module, qualname, script = plain.__module__, plain.__qualname__, None
    if "<locals>" in qualname:
        raise _refused(function, "is defined inside another function")
    loaded = sys.modules.get(module)
    if loaded is None:
        raise _refused(function, f"belongs to a module {module!r} that is not loaded")
    if module in MAINS:
        spec = getattr(loaded, "__spec__", None)
        if spec is not None and spec.name not in MAINS:  # python -m package.module
            module = spec.name
        else:
            script = _script(function, loaded)
    place = Place(
        name=function.name, version=function.version, module=module, qualname=qualname,
        script=script,
    )  # fmt: skip
    if not any(found.function is plain for found in _candidates(loaded, place)):
        raise _refused(function, f"is not what {place.module}.{place.qualname} leads to")
    return place


def find(place: Place) -> Function[..., Any, Any]:
    """Import its module and look it up, in the child."""
    module = _script_module(place.script) if place.script else importlib.import_module(place.module)
    for found in _candidates(module, place):
        return found
    raise InvalidInput(
        f"{place.name!r} was not found in {place.script or place.module}: a process started "
        "anew does not register it. Define it at the top of its module, under no condition"
    )


def check_not_importing() -> None:
    """Refuse what a program does when it is started, while a child only looks for a function."""
    if _importing:
        raise HoldfastError(
            f"{_importing.copy().pop()} is imported by a child process and would do again "
            "there what it does when it is started: put that under `if __name__ == '__main__':`"
        )


def _candidates(module: ModuleType, place: Place) -> Iterator[Function[..., Any, Any]]:
    found: Any = module
    for part in place.qualname.split("."):
        found = getattr(found, part, None)
    known = functions.all().get((place.name, place.version))
    for each in (found, known, *list(vars(module).values())):
        if (
            isinstance(each, Function)
            and (each.name, each.version) == (place.name, place.version)
            and each.function.__qualname__ == place.qualname
        ):
            yield each


def _script(function: Function[..., Any, Any], main: ModuleType) -> str:
    file = getattr(main, "__file__", None)
    if not file or not Path(file).is_file():
        raise _refused(function, "was typed at a prompt or read from standard input")
    return str(Path(file).resolve())


def _script_module(script: str) -> ModuleType:
    there = sys.modules.get(_CHILDS_MAIN)
    if there is not None:
        return there
    spec = importlib.util.spec_from_file_location(_CHILDS_MAIN, script)
    if spec is None or spec.loader is None:
        raise InvalidInput(f"{script} cannot be imported; put the functions into a module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[_CHILDS_MAIN] = sys.modules["__main__"] = module
    _importing.add(script)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[_CHILDS_MAIN]
        raise
    finally:
        _importing.discard(script)
    return module


def _refused(function: Function[..., Any, Any], why: str) -> InvalidInput:
    return InvalidInput(
        f"{function.name!r} cannot run in a process of its own: it {why}. Define it at the top "
        "of a module or a script, where another process finds it"
    )
