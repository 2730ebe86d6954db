"""Checks of the store itself: schema, hints, and the database below."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from importlib.resources import files
from typing import Any

from holdfast.app.home import Home
from holdfast.cli.cells import span
from holdfast.cli.doctor.finding import Finding, fail, ok, skipped, warn
from holdfast.cli.schema import Moved, fits, is_sqlite
from holdfast.errors import HoldfastError
from holdfast.ids import new_id
from holdfast.notifier import Hint, Notifier
from holdfast.store import Store
from holdfast.stores import queries

__all__ = ["file_system", "held_rows", "hints", "is_sqlite", "postgres", "schema"]

_HEARD = 5.0  # seconds for a hint to come back
_STATEMENTS = queries.load(files("holdfast.cli.doctor"))


def schema(made: Sequence[Moved]) -> Finding:
    known = list(made)
    version = max((one.version for one in known if one.state != "pending"), default=0)
    if fits(known):
        return ok("HF102", f"version {version}, which this release works on")
    if any(one.state == "newer" for one in known):
        return fail(
            "HF102",
            f"version {version} is newer than this release works on",
            "upgrade holdfast on this machine",
        )
    pending = sum(one.state == "pending" for one in known)
    return fail(
        "HF102",
        f"version {version}; {pending} migrations of this release are to come",
        "holdfast migrate up",
    )


def file_system(url: str) -> Finding:
    if not is_sqlite(url):
        return skipped("HF301", "of SQLite only")
    return ok("HF301", "the file is on a local disk")


async def hints(home: Home) -> Finding:
    """Does what one process tells reach another, by every way? Without it workers only poll."""
    for name, carrier in home.carriers().items():
        try:
            if not await _comes_back(carrier):
                return warn(
                    "HF109",
                    f"a hint that was sent through {name} did not come back within {_HEARD:g} s: "
                    "workers find by polling only what nobody tells them of otherwise",
                    "behind a pooler in transaction mode give the server's own address in the "
                    "store's URL (?listen_url=…); or have a look at --redis-url",
                )
        finally:
            await carrier.close()
    return ok("HF109", "workers hear of new work at once")


async def _comes_back(notifier: Notifier) -> bool:
    heard = asyncio.Event()
    wanted = Hint("wake", str(new_id()))  # of a function that nobody knows

    def hear(hint: Hint) -> None:
        if hint == wanted:
            heard.set()

    await notifier.listen(hear)
    notifier.tell([wanted])
    with suppress(TimeoutError):
        async with asyncio.timeout(_HEARD):
            await heard.wait()
    return heard.is_set()


async def postgres(store: Store, old: timedelta) -> list[Finding]:
    seconds = old.total_seconds()
    return [
        await _asked("HF201", store, "old_transactions", _old_transactions, seconds),
        await _asked("HF202", store, "held_rows", held_rows, seconds),
        await _asked("HF203", store, "dead_rows", _dead_rows, seconds),
    ]


async def _asked(code: str, store: Store, name: str, judge: Any, seconds: float) -> Finding:
    """A role that may not look is no fault of the database."""
    try:
        _, rows = await store.query(_STATEMENTS[name].replace(":seconds", f"{seconds:f}"))
    except HoldfastError as error:
        return skipped(code, f"cannot be asked: {error}")
    found: Finding = judge(rows)
    return found


def _old_transactions(rows: Sequence[Any]) -> Finding:
    if not rows:
        return ok("HF201", "no transaction is open for long")
    told = "; ".join(
        f"pid {pid} ({name or '?'}, {state}, {span(age)})" for pid, name, state, age in rows
    )
    return fail(
        "HF201",
        f"old transactions keep dead rows from being cleaned up, and claims slow down: {told}",
        f"end them: select pg_terminate_backend({rows[0][0]}); and set "
        "idle_in_transaction_session_timeout",
    )


def held_rows(rows: Sequence[Any]) -> Finding:
    if not rows:
        return ok("HF202", "no prepared transaction and no unused replication slot holds rows")
    told = "; ".join(f"{kind} {name!r}" for kind, name in rows)
    kind, name = rows[0]
    way = (
        f"rollback prepared '{name}';"
        if kind == "prepared transaction"
        else f"select pg_drop_replication_slot('{name}');"
    )
    return fail("HF202", f"dead rows cannot be cleaned up because of {told}", f"end it: {way}")


def _dead_rows(rows: Sequence[Any]) -> Finding:
    if not rows:
        return ok("HF203", "no table has more dead rows than live ones")
    told = ", ".join(f"{table} ({dead:,} dead, {live:,} live)" for table, dead, live in rows)
    names = ", ".join(table for table, _, _ in rows)
    return warn(
        "HF203",
        f"dead rows pile up in {told}",
        f"vacuum (analyze) {names}; see that autovacuum runs, and HF201 and HF202",
    )
