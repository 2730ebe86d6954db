"""Who is measured, in which environment, on which store. Every module offers the same verbs:

- `SETTINGS`: what is set, in a line
- `async setup(url)`: make tables, connect
- `async enqueue(task, numbers)`: `noop` or `hold`, one for each number; acknowledged on return
- `command(slots)`: how to start a worker with so many slots; it finds BENCH_URL, BENCH_LEDGER and
  BENCH_WORKER in its environment
"""

from typing import Literal

import msgspec

__all__ = ["ROSTER", "Peer", "Store"]

Store = Literal["postgres", "redis", "sqlite"]


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the table."""

    name: str
    title: str
    module: str
    store: Store
    package: str
    slots: tuple[int, ...]  # for throughput, the fastest one first, as of the last try of all
    ours: bool = False


def _peer(name: str, title: str, store: Store, *slots: int) -> Peer:
    library = name.partition("-")[0]
    return Peer(
        name=name,
        title=title,
        module=f"bench.peers.{library}_peer",
        store=store,
        package=library,
        slots=slots,
        ours=library == "holdfast",
    )


ROSTER = [
    _peer("holdfast-postgres", "Holdfast", "postgres", 200),
    _peer("holdfast-sqlite", "Holdfast", "sqlite", 200),
    _peer("pgqueuer", "PgQueuer", "postgres", 200, 50),
    _peer("procrastinate", "Procrastinate", "postgres", 100, 20),
    _peer("saq-postgres", "SAQ", "postgres", 50, 10),
    _peer("dbos", "DBOS", "postgres", 200, 50),
    _peer("celery", "Celery", "redis", 2, 1),
    _peer("dramatiq", "Dramatiq", "redis", 32, 8),
    _peer("rq", "RQ", "redis", 1),
    _peer("huey-redis", "Huey", "redis", 16, 4),
    _peer("huey-sqlite", "Huey", "sqlite", 1, 4),
    _peer("saq-redis", "SAQ", "redis", 50, 10),
]
