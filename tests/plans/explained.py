"""The plans of everything that a verb runs, also inside of functions, as PostgreSQL tells them."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import asyncpg

from holdfast.stores.driver import Row
from holdfast.stores.postgres.driver import PostgresDriver

_EXPLAIN = """
load 'auto_explain';
set auto_explain.log_min_duration = 0;
set auto_explain.log_nested_statements = on;
set auto_explain.log_format = json;
set auto_explain.log_level = notice;
set client_min_messages = notice;
"""


@dataclass(frozen=True)
class Look:
    """One node of a plan that reads a table."""

    how: str  # Index Scan, Seq Scan …
    table: str
    index: str | None
    statement: str
    condition: str = ""  # by which the index is asked


class Explained(PostgresDriver):
    """A driver that keeps the plans of what it was asked."""

    def __init__(self, url: str, conn: asyncpg.Connection) -> None:
        super().__init__(url)
        self._conn = conn
        self.looks: list[Look] = []

    async def start(self) -> None:
        await self._conn.execute(_EXPLAIN)
        self._conn.add_log_listener(self._heard)

    async def call(self, verb: str, /, **parameters: Any) -> Sequence[Row]:
        return await self._fetch(self._conn, verb, parameters, None)

    def take(self) -> list[Look]:
        looks, self.looks = self.looks, []
        return looks

    def _heard(self, _: Any, message: Any) -> None:
        _, found, plan = message.message.partition("plan:\n")
        if found:
            explained = json.loads(plan)
            self.looks += _looks(explained["Plan"], explained["Query Text"])


def _looks(node: dict[str, Any], statement: str) -> Iterator[Look]:
    if "Relation Name" in node and node["Node Type"] != "ModifyTable":
        by = node["Plans"][0] if node["Node Type"] == "Bitmap Heap Scan" else node
        yield Look(
            node["Node Type"],
            node["Relation Name"],
            by.get("Index Name"),
            statement,
            by.get("Index Cond", ""),
        )
    for child in node.get("Plans", ()):
        yield from _looks(child, statement)
