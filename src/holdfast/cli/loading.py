"""From `pkg.module:app` to the app."""

import importlib
import os
import sys
import traceback
from types import ModuleType
from typing import Any

from holdfast import config
from holdfast.app import Holdfast
from holdfast.cli.exits import Exit, Stop
from holdfast.config import Config

__all__ = ["app_at", "apply", "load_app"]


def apply(**settings: str | int | None) -> Config:
    """Put flags where the environment has its settings, so that an app that is made later reads
    them; answers all settings, checked."""
    for name, value in settings.items():
        if value is not None:
            os.environ[f"HOLDFAST_{name.upper()}"] = str(value)
    return config.read(os.environ)


def app_at(
    store: str | None, name: str | None, redis_url: str | None = None, pool_size: int | None = None
) -> Holdfast:
    """The named app, or one without functions; on the given store, whatever its code says."""
    settings = apply(store=store, redis_url=redis_url, pool_size=pool_size)
    place = name or settings.app
    if place is None:
        return Holdfast()
    app = load_app(place)
    if store or redis_url or pool_size:
        app.move(store=store, redis_url=redis_url, pool_size=pool_size)
    return app


def load_app(place: str) -> Holdfast:
    module_name, _, attribute = place.partition(":")
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())
    module = _import(module_name)
    return _named(module, attribute) if attribute else _only(module)


def _import(name: str) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        raise Stop(
            Exit.NO_APP, f"{name!r:.100} is not the name of a module; write --app pkg.module:app"
        )
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise Stop(
                Exit.NO_APP,
                f"there is no module {name!r} here: {error}; start this where the module can be "
                f"imported (this is {os.getcwd()}), or set PYTHONPATH",
            ) from None
        raise _failed(name, error) from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # also SystemExit: a script that is no module
        raise _failed(name, error) from error


def _failed(name: str, error: BaseException) -> Stop:
    """With the last line of the error, and where it happened."""
    said = traceback.format_exception_only(error)[-1].strip()
    return Stop(
        Exit.NO_APP,
        f"the app did not import: {said}\n  {_where(error)}\n"
        f'Mend that; `python -c "import {name}"` shows the whole error.',
    )


def _where(error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        return f"in {error.filename}, line {error.lineno}"
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if "importlib" not in frame.filename and frame.filename != __file__
    ]
    return f"in {frames[-1].filename}, line {frames[-1].lineno}" if frames else "before its code"


def _named(module: ModuleType, attribute: str) -> Holdfast:
    found: Any = module
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if isinstance(found, Holdfast):
        return found
    what = "is missing" if found is None else f"is a {type(found).__name__}, not a Holdfast app"
    raise Stop(
        Exit.NO_APP,
        f"{attribute!r} in {module.__name__} {what}; {_known(module)}",
    )


def _only(module: ModuleType) -> Holdfast:
    apps = _apps(module)
    if len(set(map(id, apps.values()))) == 1:
        return next(iter(apps.values()))
    many = "several apps are" if apps else "no app is"
    raise Stop(Exit.NO_APP, f"{many} in {module.__name__}; {_known(module)}")


def _apps(module: ModuleType) -> dict[str, Holdfast]:
    return {name: value for name, value in vars(module).items() if isinstance(value, Holdfast)}


def _known(module: ModuleType) -> str:
    apps = _apps(module)
    if not apps:
        return "write `app = Holdfast()` in it"
    return "name one: " + ", ".join(f"--app {module.__name__}:{name}" for name in apps)
