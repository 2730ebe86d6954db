"""The HTTP face, when somebody asks for it. It stands on the app, so the app knows it by name
only, and does without it."""

from importlib import import_module
from typing import Any

from holdfast.errors import InvalidInput

__all__ = ["face"]


def face(module: str) -> Any:
    try:
        return import_module(f"holdfast.http.{module}")
    except ModuleNotFoundError as error:
        if error.name and error.name.startswith("holdfast"):
            raise
        raise InvalidInput(
            f"the HTTP API needs {error.name}; install it: pip install 'holdfast[server]'"
        ) from None
