"""Nothing is stuck: every task has ended or stands in one place, and every counter is right."""

from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import msgspec

__all__ = ["astray"]

Peek = Callable[[str], Awaitable[list[tuple[Any, ...]]]]

_QUERIES = {
    "task": "select id, lane, expires_at from task",
    "outcome": "select id from outcome",
    "ready": "select id, lane, key from ready",
    "later": "select id, lane, run_at, waiting from later",
    "blocked": "select id, lane, pool, key from blocked",
    "lease": "select id, lane, key, gates from lease",
    "lane": "select id, type, pool from lane",
    "gate": "select id, kind, name, running, max_per_key from gate",
    "freed": "select gate, n from freed",
    "key_gate": "select pool, key, running from key_gate",
    "nudge": "select pool, key, freed from nudge",
    "expiry": "select id from expiry",
}
_PLACES = ("ready", "later", "blocked", "lease")


async def astray(peek: Peek) -> list[str]:
    """What contradicts it, in words."""
    rows = {table: await peek(query) for table, query in _QUERIES.items()}
    return [*_places(rows), *_gates(rows), *_keys(rows), *_timers(rows)]


def _places(rows: dict[str, Any]) -> Iterator[str]:
    tasks = {id for id, *_ in rows["task"]}
    ended = {id for (id,) in rows["outcome"]}
    places = Counter(id for place in _PLACES for id, *_ in rows[place])
    for id in tasks:
        if places[id] != (id not in ended):
            yield f"task {id} stands in {places[id]} places, has ended: {id in ended}"
    for id in (places.keys() | ended) - tasks:
        yield f"a row of {id} leads to no task"
    lanes = {id for id, *_ in rows["lane"]}
    for place in _PLACES:
        for id, lane, *_ in rows[place]:
            if lane not in lanes and not (place == "later" and lane == 0):
                yield f"task {id} stands in {place} with lane {lane}, which is not there"


def _gates(rows: dict[str, Any]) -> Iterator[str]:
    freed: Counter[int] = Counter()
    for gate, n in rows["freed"]:
        freed[gate] += n
    held = Counter(gate for *_, gates in rows["lease"] for gate in _list(gates))
    for gate, kind, name, running, _ in rows["gate"]:
        if running - freed[gate] != held[gate]:
            yield f"{kind} {name} counts {running - freed[gate]}, and {held[gate]} leases passed it"


def _keys(rows: dict[str, Any]) -> Iterator[str]:
    pools = {id: pool for id, _, pool in rows["lane"]}
    most = {name: per_key for _, kind, name, _, per_key in rows["gate"] if kind == "type"}
    room = {id: most.get(type) for id, type, _ in rows["lane"]}
    counted: defaultdict[tuple[int, str], int] = defaultdict(int)
    for pool, key, running in rows["key_gate"]:
        counted[pool, key] += running
    for pool, key, freed in rows["nudge"]:
        counted[pool, key] -= freed
    held = Counter(
        (pools[lane], key)
        for place in ("ready", "lease")
        for _, lane, key, *_ in rows[place]
        if key is not None
    )
    for place in counted.keys() | held.keys():
        if counted[place] != held[place]:
            yield f"key {place} counts {counted[place]}, and {held[place]} tasks passed it"
    nudged = {(pool, key) for pool, key, _ in rows["nudge"]}
    for id, lane, pool, key in rows["blocked"]:
        limit = room[lane]
        if (pool, key) not in nudged and (limit is None or counted[pool, key] < limit):
            yield f"task {id} is blocked by key {key}, which has room, and nobody was nudged"


def _timers(rows: dict[str, Any]) -> Iterator[str]:
    ended = {id for (id,) in rows["outcome"]}
    timers = {id for (id,) in rows["expiry"]}
    for id, _, expires in rows["task"]:
        if expires is not None and id not in ended and id not in timers:
            yield f"task {id} expires, and no timer knows"
    for id, _, run_at, waiting in rows["later"]:
        if waiting is None and _never(run_at):
            yield f"task {id} is never to run and waits for nothing"


def _list(gates: Any) -> list[int]:
    """PostgreSQL has arrays, SQLite JSON."""
    found: list[int] = msgspec.json.decode(gates) if isinstance(gates, str) else gates or []
    return found


def _never(run_at: Any) -> bool:
    return run_at == 2**63 - 1 if isinstance(run_at, int) else run_at.year == 9999
