"""What the functions' code says of their limits, told to the store that keeps them."""

from collections.abc import Callable, Iterable
from typing import Any

from holdfast.function import Function
from holdfast.store import Store
from holdfast.tasks.limits import Limit

__all__ = ["Declaring"]


class Declaring:
    """For one worker. Each limit is declared once, when its function is first seen or has changed:
    where two deployments say different things, the worker that started last is right."""

    def __init__(
        self, store: Store, functions: Callable[[], Iterable[Function[..., Any, Any]]]
    ) -> None:
        self._store, self._functions = store, functions
        self._declared: dict[str, Limit] = {}

    async def declare(self) -> None:
        """Also that there is none any more; what the store knows already is not written."""
        said = self._said()
        news = {name: limit for name, limit in said.items() if self._declared.get(name) != limit}
        if not news:
            return
        known = {one.name: one.declared for one in await self._store.limits() if one.kind == "type"}
        for name, limit in news.items():
            if known.get(name, Limit()) != limit:
                await self._store.limit("type", name, limit, declared=True)
        self._declared = said

    def _said(self) -> dict[str, Limit]:
        """Versions share a limit: that of the last one that has any."""
        said: dict[str, Limit] = {}
        for function in self._functions():
            said[function.name] = function.traits.limit or said.get(function.name, Limit())
        return said
