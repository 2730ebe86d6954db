"""What the tables say when all is over, asked past the store."""

from typing import Any

from tests.servers import ask

_COUNTERS = """
select
  coalesce((select sum(running) from {s}gate), 0)
    - coalesce((select sum(n) from {s}freed), 0),
  coalesce((select sum(running) from {s}key_gate), 0)
    - coalesce((select sum(freed) from {s}nudge), 0)
"""
_LEFT = """
select (select count(*) from {s}ready), (select count(*) from {s}later),
  (select count(*) from {s}blocked), (select count(*) from {s}lease),
  (select count(*) from {s}task t where not exists (select 1 from {s}outcome o where o.id = t.id))
"""


def peek(place: str, sql: str) -> list[tuple[Any, ...]]:
    """Rows of a statement that says {s} where the schema's name belongs."""
    if place.startswith("postgresql:"):
        return ask(place, sql.replace("{s}", "holdfast."))
    import apsw

    connection = apsw.Connection(place, flags=apsw.SQLITE_OPEN_READWRITE)
    connection.set_busy_timeout(60_000)
    try:
        return list(connection.execute(sql.replace("{s}", "")))
    finally:
        connection.close()


def finished(place: str) -> int:
    return int(peek(place, "select count(*) from {s}outcome")[0][0])


def assert_all_over(place: str, tasks: int) -> None:
    """Every task ended, none stands anywhere else, and no gate counts anything."""
    assert finished(place) == tasks
    assert peek(place, _LEFT) == [(0, 0, 0, 0, 0)]
    assert [tuple(map(int, row)) for row in peek(place, _COUNTERS)] == [(0, 0)]
