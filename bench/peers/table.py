"""What was measured, as a table for people."""

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table

from bench.peers.flows import Flowing
from bench.peers.measures import Killed, Limits, PickUp, Throughput
from bench.peers.roster import Peer, Store

__all__ = ["Report", "Row", "report", "show"]

DURABILITY: dict[Store, str] = {
    "postgres": "PostgreSQL, fsync and synchronous_commit on",
    "redis": "Valkey, appendonly yes, appendfsync {appendfsync}",
    "sqlite": "SQLite, WAL, synchronous FULL",
}


class Row(msgspec.Struct, kw_only=True):
    """One system on one store; what failed has its error instead of a figure."""

    peer: Peer
    version: str = "?"
    settings: str = ""
    one: Throughput | None = None
    two: Throughput | None = None
    pick_up: PickUp | None = None
    killed: Killed | None = None
    errors: dict[str, str] = {}


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A run, whole."""

    limits: Limits
    stores: dict[Store, str]
    rows: list[Row]
    flows: list[Flowing]


def report(rows: list[Row], flows: list[Flowing], limits: Limits, appendfsync: str) -> Report:
    used: dict[Store, None] = dict.fromkeys(row.peer.store for row in rows)
    if flows:
        used["postgres"] = None
    stores = {store: DURABILITY[store].format(appendfsync=appendfsync) for store in used}
    return Report(limits=limits, stores=stores, rows=rows, flows=flows)


def show(found: Report) -> None:
    console = Console(width=150)
    if found.rows:
        _show_rows(console, found)
    if found.flows:
        _show_flows(console, found.flows)
    _notes(console, found)


def _show_flows(console: Console, flows: list[Flowing]) -> None:
    table = Table(box=box.SIMPLE, title="Durable functions on PostgreSQL, one process each")
    table.add_column("system")
    for name in ("steps/s of\none function", "functions/s\nat once", "children/s\nin a chain"):
        table.add_column(name, justify="right")
    for one in flows:
        rates = (one.steps, one.functions, one.children)
        table.add_row(
            f"{one.title} {one.version}",
            *(_absent(one.error) if rate is None else f"{rate:,.0f}" for rate in rates),
        )
    console.print(table)


def _show_rows(console: Console, found: Report) -> None:
    table = Table(box=box.SIMPLE, title="Measured in this run, on this machine")
    for name in ("system", "store"):
        table.add_column(name)
    for name in ("1 worker\ntasks/s", "2 workers\ntasks/s", "pick-up\np50 ms", "p99 ms"):
        table.add_column(name, justify="right")
    for name in (
        "after kill -9\nfinished",
        "lost or\nstuck",
        "finished\ntwice",
        "ran again\nafter",
    ):
        table.add_column(name, justify="right")
    for row in found.rows:
        table.add_row(f"{row.peer.title} {row.version}", row.peer.store, *_figures(row))
    console.print(table)


def _figures(row: Row) -> list[str]:
    return [
        _rate(row.one, row.errors.get("one")),
        _rate(row.two, row.errors.get("two")),
        *_pick_up(row.pick_up, row.errors.get("pick_up")),
        *_killed(row.killed, row.errors.get("killed")),
    ]


def _rate(found: Throughput | None, error: str | None) -> str:
    if found is None:
        return _absent(error)
    return f"{found.rate:,.0f}" + ("" if found.shared else " *")


def _pick_up(found: PickUp | None, error: str | None) -> list[str]:
    if found is None:
        return [_absent(error)] * 2
    return [f"{found.p50:.1f}", f"{found.p99:.1f}"]


def _killed(found: Killed | None, error: str | None) -> list[str]:
    if found is None:
        return [_absent(error)] * 4
    return [
        f"{found.finished}/{found.tasks}",
        str(found.unfinished),
        str(found.finished_twice),
        _again(found),
    ]


def _again(found: Killed) -> str:
    """When the first and the last of them ran again."""
    if found.first is None:
        return f"never in {found.waited:.0f} s"
    if found.last is None:
        return f"{found.again} of {found.tasks} in {found.waited:.0f} s"
    return f"{found.first:.1f} to {found.last:.1f} s"


def _absent(error: str | None) -> str:
    return "failed" if error else "-"


def _notes(console: Console, found: Report) -> None:
    def say(text: str) -> None:
        console.print(text, markup=False, highlight=False)

    for store, how in found.stores.items():
        say(f"{store}: {how}")
    for row in found.rows:
        slots = f"slots for throughput: {row.one.slots}; " if row.one else ""
        say(f"{row.peer.title} ({row.peer.store}): {slots}{row.settings}")
        for what, error in row.errors.items():
            say(f"  {what} FAILED: {error}")
        if row.two and not row.two.shared:
            say("  * one of the two workers found nothing to do")
    for one in found.flows:
        said = f"FAILED: {one.error}" if one.error else one.settings
        say(f"{one.title} (durable functions): {said}")
